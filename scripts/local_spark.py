"""A Spark session on this machine for tests, benchmarks and the quickstart: spark-conf's settings, and nothing from outside.

The jars come from `jars.py` rather than from `spark.jars.packages`, so that a start asks no registry, and everything Spark
writes (scratch files, warehouse, Derby) goes below one directory.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_ROWS = {"spark.sql.shuffle.partitions": "4", "spark.databricks.delta.snapshotPartitions": "2"}
"""For tables of a few rows: a task has nothing to do there, and Delta alone would start 50 of them for each snapshot."""


def settings(directory: Path, *, jar_sets: Sequence[str] = ("delta",), driver_memory: str = "2g") -> dict[str, str]:
    """The settings of a local session whose files all go below `directory`, with Delta's if its jars are among `jar_sets`.

    Raises `jars.JarsMissing`.
    """
    found = jars.spark_defaults()
    of_delta = () if "delta" in jar_sets else ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
    for left_out in ("spark.jars.packages", "spark.jars.excludes", *of_delta):  # the jars are resolved here
        del found[left_out]
    log4j = jars.PROJECT / "spark-conf" / "log4j2.properties"
    return (
        found
        | _scans_of_this_tree()
        | {
            "spark.jars": ",".join(path for name in jar_sets for path in jars.jars(name)),
            "spark.driver.extraJavaOptions": f"{found['spark.driver.extraJavaOptions']}"
            f" -Dlog4j2.configurationFile=file:{log4j} -Dderby.system.home={directory}",
            "spark.driver.memory": driver_memory,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(directory / "local"),
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.ui.enabled": "false",
        }
    )


def _scans_of_this_tree() -> dict[str, str]:
    """This tree's jar in front of another one that is installed among Spark's own: see `link_scan_jar` of scripts/setup."""
    import pyspark

    own = jars.PROJECT / "kafkalake" / "spark" / "jvm" / "kafkalake-spark.jar"
    installed = Path(pyspark.__file__).parent / "jars" / own.name
    if installed.exists() and installed.samefile(own):
        return {}
    return {"spark.driver.extraClassPath": str(own), "spark.executor.extraClassPath": str(own)}


def session(*, master: str, name: str, of: dict[str, str]) -> SparkSession:
    """Start a session with these settings. Python workers run this interpreter; Spark binds to 127.0.0.1 only."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master(master).appName(name)
    for setting, value in of.items():
        builder = builder.config(setting, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started


def end(session: SparkSession, timeout_s: float = 20) -> None:
    """Stop the session and wait until its JVM is gone; `session.stop()` alone leaves that to the end of this process."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    # A signal may have cut a call to the JVM in two, after which it answers nonsense; it ends below in any case.
    with contextlib.suppress(Exception):
        session.stop()
    with contextlib.suppress(Exception):
        gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when this pipe breaks
    try:
        gateway.proc.wait(timeout_s)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait(20)
    SparkContext._gateway = SparkContext._jvm = None
