"""What Spark finds: it looks through installed packages named `pyspark_*` for a `DefaultSource`, so that
`spark.read.format("kafkalake")` works with nothing registered.

Spark imports this package for every session that uses any Python data source, kafkalake or not: it must stay light, and must not
fail where Spark has another version.
"""

from __future__ import annotations

import pyspark

from kafkalake.spark.spark_version import SPARK

if pyspark.__version__.startswith(f"{SPARK}."):
    from kafkalake.spark.source.source import KafkaLakeSource as DefaultSource
else:
    from kafkalake.spark.source.other_spark import OtherSparkSource as DefaultSource  # type: ignore[assignment]

__all__ = ["DefaultSource"]
