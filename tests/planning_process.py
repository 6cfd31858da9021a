"""The planning process of a Spark driver, which tests kill."""

from __future__ import annotations

import os
import signal

from pyspark.sql import SparkSession


def planner_of(spark: SparkSession) -> int:
    """Return the pid of the planning process of the session's driver. Raise `AssertionError` if there is not exactly one."""
    assert spark._jvm is not None
    handles = spark._jvm.java.lang.ProcessHandle.current().children().toArray()
    planners: list[int] = [
        handle.pid() for handle in handles if "kafkalake.spark.planner" in handle.info().commandLine().orElse("")
    ]
    assert len(planners) == 1
    return planners[0]


def kill_planner(spark: SparkSession) -> None:
    """Kill the planning process of the session's driver. Raise `AssertionError` if there is not exactly one."""
    os.kill(planner_of(spark), signal.SIGKILL)
