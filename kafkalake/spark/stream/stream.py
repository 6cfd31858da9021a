"""`spark.readStream.format("kafkalake")` on a driver without the jar: Spark's calls for a stream, as a Python source gets them.

One Python process serves one query as long as it runs. `TopicStream` answers, as it does in the planner of a driver with the jar.

    initialOffset    initial offsets, once per checkpoint
    latestOffset     end of the next batch: edges of the partitions, within maxOffsetsPerTrigger
    partitions       tasks of a batch, planned like those of a batch query
    commit           end of a batch, committed to the group if one is named
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from kafkalake.reader.columns import projection_of
from kafkalake.reader.positions import Positions, to_json
from kafkalake.reader.read_options import TIME_ZONE_NOTE, ReadOptions, Use, parse_options
from kafkalake.reader.value_columns import value_columns
from kafkalake.spark.source.hidden_tracebacks import hide_tracebacks
from kafkalake.spark.source.tasks import read_task, tasks_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kafkalake.spark.stream.topic_stream import Offsets, TopicStream


@hide_tracebacks
class KafkaLakeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream over the topics of `given`. Raise `ConfigurationError` when created, and the errors of reading later."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options: ReadOptions = parse_options(given, Use.STREAM, given.get(TIME_ZONE_NOTE))
        self._projection = projection_of(
            to_arrow_schema(schema, timezone="UTC"), self._options, given.get(TIME_ZONE_NOTE)
        )
        value_columns(self._projection)
        # This object is sent to executors before its first call, so none of these is sent along.
        self._opened: TopicStream | None = None
        self._target: Positions | None = None
        self._seen: Positions = {}
        self._began: Offsets | None = None

    def initialOffset(self) -> Offsets:
        """Return the query's start. Spark tells a Python source nothing of its checkpoint."""
        self._began = self._stream().begin("")
        return self._began

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `maxOffsetsPerTrigger`."""
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the records available now."""
        self._target = self._stream().readable_ends()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return the end of the batch that begins at `start`."""
        self.commit(start)  # Spark commits the last batch with the one after it, but here it is known to be done
        end, self._seen = self._stream().next_batch(
            start,
            offsets_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            target=self._target,
            may_wait=self._target is None,
        )
        return end

    def reportLatestOffset(self) -> Offsets | None:
        """Return the last seen ends of the partitions, for the query's progress."""
        return to_json(self._seen) or None

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return the tasks that read from `start` to `end`."""
        return tasks_of(self._stream().plan(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records of one task."""
        return read_task(partition, self._projection)

    def commit(self, end: Offsets) -> None:
        """Commit the batches up to `end`."""
        if end != self._began:
            self._stream().commit(end)

    def _stream(self) -> TopicStream:
        if self._opened is None:
            # Imported here: the Delta library is large, and executors do not need it.
            from kafkalake.metadata.delta import DeltaMetadataStore
            from kafkalake.spark.stream.topic_stream import TopicStream

            tables = DeltaMetadataStore(Path(self._options.lake).absolute(), create=False)
            self._opened = TopicStream(self._options, tables)
        return self._opened
