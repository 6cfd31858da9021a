"""`spark.readStream.format("kafkalake")`: what Spark asks of a stream, answered from the lake's files.

One Python process answers for one query as long as it runs. Its offsets are what Spark's Kafka source writes into checkpoints.
What a batch holds follows from its two offsets alone, so that Spark can ask for a batch again, in another process, after a
crash, and gets the same records: what is below the last stable offset does not change.

    initialOffset    first offsets, once a checkpoint
    latestOffset     end of the next batch: edges of the partitions, within maxOffsetsPerTrigger
    partitions       tasks of a batch, planned as those of a batch query
    commit           a batch is done: the group, if one is named, is told
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from kafkalake.reader.columns import project
from kafkalake.reader.json_values import JsonColumns
from kafkalake.reader.positions import Edge, Partition, Positions, from_json, ids_from_json, next_end, to_json
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import TIME_ZONE_NOTE, ReadOptions, Use, parse_options
from kafkalake.spark.source.plain_errors import plain_errors
from kafkalake.spark.source.tasks import read_task, tasks_of
from kafkalake.spark.stream.checkpoint import initial_offsets

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kafkalake.reader.group_positions import ConsumerGroup
    from kafkalake.reader.partition_edges import Edges

Offsets = dict[str, Any]


@plain_errors
class KafkaLakeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream over the topics of `given`. Raises `ConfigurationError` when it is made, and whatever reading raises later."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options: ReadOptions = parse_options(given, Use.STREAM, given.get(TIME_ZONE_NOTE))
        self._checkpoint = given.get("__checkpoint", "")
        self._projection = project(
            to_arrow_schema(schema, timezone="UTC"),
            json_values=self._options.value_schema is not None,
            time_zone=given.get(TIME_ZONE_NOTE) or "UTC",
        )
        JsonColumns.of(self._projection)
        # Executors get this object before it is asked anything, so none of these travels.
        self._edges: Edges | None = None
        self._target: Positions | None = None
        self._seen: Positions = {}
        self._began: Offsets | None = None
        self._group: ConsumerGroup | None = None

    def initialOffset(self) -> Offsets:
        """Where the query begins: what its checkpoint says, else what the options say, which the checkpoint then keeps."""
        self._began = initial_offsets(self._checkpoint, self._first, is_repeatable=self._options.has_lasting_start)
        return self._began

    def getDefaultReadLimit(self) -> ReadLimit:
        """`maxOffsetsPerTrigger`."""
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is what the query will read."""
        self._target = {partition: edge.readable_end for partition, edge in self._look().items()}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The end of the batch that begins at `start`."""
        self._done(start)
        edges = self._look()
        self._seen = {partition: edge.readable_end for partition, edge in edges.items()}
        end = next_end(
            from_json(start),
            edges,
            topic_ids=ids_from_json(start),
            offsets_max=limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            target=self._target,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return to_json(end, {topic: edge.topic_id for (topic, _), edge in edges.items()})

    def reportLatestOffset(self) -> Offsets | None:
        """What the last look saw, for the query's progress."""
        return to_json(self._seen) or None

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The tasks that read from `start` to `end`."""
        # Only here: the Delta library is large, and an executor does without it.
        from kafkalake.spark.stream.plan import plan_batch

        store = self._open_edges().store
        groups = plan_batch(
            self._options,
            from_json(start),
            from_json(end),
            store,
            start_ids=ids_from_json(start),
            end_ids=ids_from_json(end),
        )
        return tasks_of(groups, self._projection)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return read_task(partition, self._projection, Selection())

    def commit(self, end: Offsets) -> None:
        """Batches up to `end` are done."""
        self._done(end)

    def _first(self) -> Offsets:
        from kafkalake.spark.stream.plan import first_positions

        return to_json(*first_positions(self._options))

    def _done(self, end: Offsets) -> None:
        """Tell the group how far the query is, where one is named.

        Spark says `commit` of a batch when the next one has been planned, and of the last one never. But it asks for the end of
        the next batch only when the last one is done.
        """
        if self._options.group is None or end == self._began:
            return
        if self._group is None:
            from kafkalake.reader.group_positions import ConsumerGroup

            self._group = ConsumerGroup(self._options.lake, self._options.group)
        self._group.commit(from_json(end))

    def _look(self) -> dict[Partition, Edge]:
        return self._open_edges().look()

    def _open_edges(self) -> Edges:
        if self._edges is None:
            from kafkalake.reader.partition_edges import Edges

            self._edges = Edges(self._options)
        return self._edges
