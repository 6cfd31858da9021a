"""Creates a Spark session that suits kafkalake: Delta, filters pushed into topics, Arrow in large batches, UTC.

For scripts, notebooks and tests. The same settings for spark-submit are in `spark-conf/spark-defaults.conf`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalake.reader.read_options import LAKE_VARIABLE
from kafkalake.spark.spark_version import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.python.worker.reuse": "true",
    "spark.sql.shuffle.partitions": "32",
    "spark.driver.memory": "2g",
    "spark.ui.showConsoleProgress": "false",
}
"""Default settings of a session."""

DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

SCAN_JAR = Path(__file__).parent / "jvm" / "kafkalake-spark.jar"
"""Gives every scan its own plan, filters and columns. See `jvm/`."""

# Jars that Delta depends on and Spark already ships: with two versions of a class, either may be loaded.
_DELTA_EXCLUDES = (
    "org.apache.hadoop:*,org.apache.parquet:*,org.apache.logging.log4j:*,org.slf4j:*,com.fasterxml.jackson.*:*,"
    "org.roaringbitmap:*,org.xerial.snappy:*,com.github.luben:*,io.airlift:*,commons-logging:*,commons-pool:*,"
    "javax.annotation:*,com.google.code.findbugs:*,org.locationtech.jts:*"
)


def session(
    lake: str | Path | None = None,
    *,
    app_name: str = "kafkalake",
    master: str | None = None,
    delta: bool = True,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a new session, or the running one.

    lake: default lake of queries that name none. master: default is all cores of this machine. delta: include Delta's
    jar, which Spark downloads the first time. config: additional settings, which win. Under spark-submit its own settings
    apply, and only `config` is added. An interrupted start leaves no JVM. Raise `ConfigurationError` on another Spark than `SPARK`.
    """
    import pyspark
    from pyspark.sql import SparkSession

    require_spark(pyspark.__version__)
    if lake is not None:
        # Python workers inherit the environment of the JVM, which is started by this process.
        os.environ[LAKE_VARIABLE] = str(Path(lake).absolute())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is not None or not submitted:
        builder = builder.master(master or "local[*]")
    settings = {} if submitted else {**SETTINGS, **_scan_jar(), **(DELTA_SETTINGS if delta else {})}
    if delta and not submitted:
        settings |= _delta_jars()
    for name, value in (settings | dict(config or {})).items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except BaseException as error:
        _end_jvm(error)
        raise


def _end_jvm(error: BaseException) -> None:
    """End the JVM that was being started when `error`, such as a Ctrl-C, came: Spark leaves it, and it would stay for ever.

    Once it is started it ends with this process.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        starting = frame.f_locals.get("proc") if frame.f_code.co_name == "launch_gateway" else None
        if isinstance(starting, subprocess.Popen):
            starting.terminate()


def session_zone(spark: SparkSession) -> str:
    """Return the session's time zone, which applies to times without a zone."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    return zone


def _scan_jar() -> dict[str, str]:
    """Return the setting for the scan jar, or none if it is installed among Spark's own jars."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return {} if (Path(home) / "jars" / SCAN_JAR.name).exists() else {"spark.jars": str(SCAN_JAR)}


def _delta_jars() -> dict[str, str]:
    """Return Delta's jar by its Maven coordinates: that of the installed Python package, for this Spark and Scala."""
    spark = ".".join(version("pyspark").split(".")[:2])
    return {
        "spark.jars.packages": f"io.delta:delta-spark_{spark}_2.13:{version('delta-spark')}",
        "spark.jars.excludes": _DELTA_EXCLUDES,
    }
