"""A stream with invalid options, which reports the error on Spark's first call.

If creating a reader fails, pyspark 4.2's `python_streaming_source_runner` stops the reader that it does not have, and reports
that (`UnboundLocalError`) instead of the original error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from kafkalake.errors import KafkaLakeError
from kafkalake.spark.source.hidden_tracebacks import hide_tracebacks


@hide_tracebacks
class FailedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A reader that raises `error` from every method that a query may begin with."""

    def __init__(self, error: KafkaLakeError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, object]:
        self._refuse()

    def getDefaultReadLimit(self) -> ReadLimit:
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        self._refuse()

    def read(self, partition: InputPartition) -> Iterator[object]:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise self._error
