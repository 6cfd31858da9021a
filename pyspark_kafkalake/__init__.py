"""What Spark finds: it looks through installed packages named `pyspark_*` for a `DefaultSource`, so that
`spark.read.format("kafkalake")` works with nothing registered.

Spark imports this package for every session that uses any Python data source, kafkalake or not: it must stay light.
"""

from __future__ import annotations

from kafkalake.spark.source.source import KafkaLakeSource as DefaultSource

__all__ = ["DefaultSource"]
