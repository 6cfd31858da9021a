"""`spark.read.format("kafkalake")`: topics as a data frame.

A Python data source of Spark 4: `DataSource` is created with a data frame, `DataSourceReader.partitions` runs once per query and
takes its snapshot, `read` runs on executors. All of it runs in Python workers that Spark starts, therefore
imports are few and numba is loaded with the first record. Streams are in `stream`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema

from kafkalake.errors import KafkaLakeError
from kafkalake.reader.columns import kafka_ddl, projection_of
from kafkalake.reader.lake_broker import located
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import TIME_ZONE_NOTE, Use, parse_options
from kafkalake.reader.value_columns import value_columns
from kafkalake.spark.source.hidden_tracebacks import hide_tracebacks
from kafkalake.spark.source.tasks import read_task, tasks_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@hide_tracebacks
class KafkaLakeSource(DataSource):
    """A data source that reads topics of a lake. `reader.read_options.OPTIONS` lists its options."""

    @classmethod
    def name(cls) -> str:
        return "kafkalake"

    def schema(self) -> str:
        """Return Kafka's columns, then the fields of `valueSchema`. Raise `ConfigurationError` if an option is invalid."""
        options = parse_options(located(self.options), Use.SCHEMA)
        return kafka_ddl(headers=options.headers, value_schema=options.value_schema, topic_id=options.topic_id)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of `schema`, which the user may have given. Raise `ConfigurationError` if invalid."""
        return KafkaLakeReader(located(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer for rows of `schema`. Raise `ConfigurationError`, `BrokerUnavailableError` or `KafkaError`."""
        # Imported here, as below: queries do not need it.
        from kafkalake.spark.sink.sink import KafkaLakeWriter

        return KafkaLakeWriter(dict(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer of the batches of a stream. Raise the errors of `writer`."""
        from kafkalake.spark.sink.sink import KafkaLakeStreamWriter

        return KafkaLakeStreamWriter(dict(self.options), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a stream of the columns of `schema`. An invalid one raises `ConfigurationError` when it is started."""
        # Imported here: batch queries do not need it.
        from kafkalake.spark.stream.refused import FailedStreamReader
        from kafkalake.spark.stream.stream import KafkaLakeStreamReader

        try:
            return KafkaLakeStreamReader(located(self.options), schema)
        except KafkaLakeError as error:
            return FailedStreamReader(error)


@hide_tracebacks
class KafkaLakeReader(DataSourceReader):
    """One read: planned on the driver, then sent to the executors. A driver with the jar of `kafkalake.spark.jvm` uses that.

    It accepts no filters. Spark 4.2 keeps the plan of a Python source in one field per data frame, so that a query without a filter
    after one with a filter, or two filters in one query, would read the wrong records.
    """

    def __init__(self, given: dict[str, str], schema: StructType) -> None:
        self._options = parse_options(given, time_zone=given.get(TIME_ZONE_NOTE))
        self._projection = projection_of(to_arrow_schema(schema, timezone="UTC"), self._options, None)
        value_columns(self._projection)

    def partitions(self) -> Sequence[InputPartition]:
        """Take the snapshot and plan its tasks."""
        # Imported here: the Delta library is large, and executors do not need it.
        from kafkalake.reader.bounds import begin_read
        from kafkalake.reader.plan import plan_slices

        return tasks_of(plan_slices(begin_read(self._options), Selection()) or [[]])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records of one task."""
        return read_task(partition, self._projection)
