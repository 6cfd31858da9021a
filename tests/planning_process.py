"""The planning process of a Spark driver, which tests kill."""

from __future__ import annotations

import os
import signal

from pyspark.sql import SparkSession


def planners_of(spark: SparkSession) -> list[int]:
    """Return the pids of the planning processes of the session's driver: one, and those that are late with an answer."""
    assert spark._jvm is not None
    handles = spark._jvm.java.lang.ProcessHandle.current().children().toArray()
    return [handle.pid() for handle in handles if "kafkalake.spark.planner" in handle.info().commandLine().orElse("")]


def planner_of(spark: SparkSession) -> int:
    """Return the pid of the planning process of the session's driver. Raise `ValueError` if there is not exactly one."""
    (planner,) = planners_of(spark)
    return planner


def kill_planner(spark: SparkSession) -> None:
    """Kill the planning process of the session's driver. Raise `ValueError` if there is not exactly one."""
    os.kill(planner_of(spark), signal.SIGKILL)
