"""A Spark session that suits kafkalake: Delta, filters pushed into topics, Arrow in large batches, UTC.

For scripts, notebooks and tests. The same settings for spark-submit are in `spark-conf/spark-defaults.conf`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalake.reader.read_options import LAKE_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.python.filterPushdown.enabled": "true",
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
"""What a session gets unless the caller says otherwise."""

DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

SCAN_JAR = Path(__file__).parent / "jvm" / "kafkalake-spark.jar"
"""Gives every scan a plan, filters and columns of its own; see `jvm/`."""

# Jars that Delta asks for and Spark already ships: two versions of one class is a lottery.
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
    """A session, or the one that runs already.

    lake: what queries read that name no lake of their own. master: default is all cores of this machine. delta: with Delta's
    jar, which Spark fetches the first time. config: more settings; they win. Under spark-submit its own settings hold, and
    of these only `config` is added.
    """
    from pyspark.sql import SparkSession

    if lake is not None:
        # Python workers inherit the environment of the JVM, which this process starts.
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
    return builder.getOrCreate()


def session_zone(spark: SparkSession) -> str:
    """The time zone of the session: that of times that name none."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone is not None
    return zone


def _scan_jar() -> dict[str, str]:
    """The jar, where it is not among Spark's own already, as it is after an installation."""
    import pyspark

    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return {} if (Path(home) / "jars" / SCAN_JAR.name).exists() else {"spark.jars": str(SCAN_JAR)}


def _delta_jars() -> dict[str, str]:
    """Delta's jar by its Maven coordinates: that of the installed Python package, for this Spark and Scala."""
    spark = ".".join(version("pyspark").split(".")[:2])
    return {
        "spark.jars.packages": f"io.delta:delta-spark_{spark}_2.13:{version('delta-spark')}",
        "spark.jars.excludes": _DELTA_EXCLUDES,
    }
