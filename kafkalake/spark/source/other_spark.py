"""The data source on another Spark than `spark_version.SPARK`: every use of it is refused in one sentence.

Imports only what every Spark with Python data sources has.
"""

from __future__ import annotations

from typing import NoReturn

import pyspark
from pyspark.sql.datasource import DataSource

from kafkalake.spark.source.hidden_tracebacks import hide_tracebacks
from kafkalake.spark.spark_version import require_spark


@hide_tracebacks
class OtherSparkSource(DataSource):
    """A data source that raises `ConfigurationError` whatever it is asked for."""

    @classmethod
    def name(cls) -> str:
        return "kafkalake"

    def schema(self) -> NoReturn:
        _refuse()

    def reader(self, schema: object) -> NoReturn:
        _refuse()

    def writer(self, schema: object, overwrite: bool) -> NoReturn:
        _refuse()

    def streamReader(self, schema: object) -> NoReturn:
        _refuse()

    def streamWriter(self, schema: object, overwrite: bool) -> NoReturn:
        _refuse()


def _refuse() -> NoReturn:
    require_spark(pyspark.__version__)
    raise AssertionError(pyspark.__version__)
