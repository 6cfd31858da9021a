"""`spark.readStream.format("kafkalake")`: Spark's calls for a stream, served from the lake's files.

One Python process serves one query as long as it runs. Its offsets have the format of Spark's Kafka source in checkpoints.
A batch is determined by its two offsets alone, so that Spark can request it again, in another process, after a
crash, and gets the same records: records below the last stable offset do not change.

    initialOffset    initial offsets, once per checkpoint
    latestOffset     end of the next batch: edges of the partitions, within maxOffsetsPerTrigger
    partitions       tasks of a batch, planned like those of a batch query
    commit           end of a batch, committed to the group if one is named
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
from kafkalake.reader.positions import Edge, Positions, from_json, ids_from_json, next_end, to_json
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import TIME_ZONE_NOTE, ReadOptions, Use, parse_options
from kafkalake.spark.source.hidden_tracebacks import hide_tracebacks
from kafkalake.spark.source.tasks import read_task, tasks_of
from kafkalake.spark.stream.checkpoint import initial_offsets
from kafkalake.topic_partition import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kafkalake.reader.group_positions import GroupPositions
    from kafkalake.reader.partition_edges import PartitionBounds

Offsets = dict[str, Any]


@hide_tracebacks
class KafkaLakeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream over the topics of `given`. Raise `ConfigurationError` when created, and the errors of reading later."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options: ReadOptions = parse_options(given, Use.STREAM, given.get(TIME_ZONE_NOTE))
        self._checkpoint = given.get("__checkpoint", "")
        self._projection = project(
            to_arrow_schema(schema, timezone="UTC"),
            json_values=self._options.value_schema is not None,
            time_zone=given.get(TIME_ZONE_NOTE) or "UTC",
        )
        JsonColumns.of(self._projection)
        # This object is sent to executors before its first call, so none of these is sent along.
        self._edges: PartitionBounds | None = None
        self._target: Positions | None = None
        self._seen: Positions = {}
        self._began: Offsets | None = None
        self._group: GroupPositions | None = None

    def initialOffset(self) -> Offsets:
        """Return the query's start: from its checkpoint, or else from the options, stored in the checkpoint."""
        self._began = initial_offsets(self._checkpoint, self._first, is_repeatable=self._options.has_lasting_start)
        return self._began

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return `maxOffsetsPerTrigger`."""
        limit = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Limit the query to the records available now."""
        self._target = {partition: edge.readable_end for partition, edge in self._look().items()}

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return the end of the batch that begins at `start`."""
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
        """Return the last seen ends of the partitions, for the query's progress."""
        return to_json(self._seen) or None

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return the tasks that read from `start` to `end`."""
        # Imported here: the Delta library is large, and executors do not need it.
        from kafkalake.spark.stream.plan import plan_batch

        groups = plan_batch(
            self._options,
            from_json(start),
            from_json(end),
            self._open_edges().tables,
            start_ids=ids_from_json(start),
            end_ids=ids_from_json(end),
        )
        return tasks_of(groups, self._projection)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the records of one task."""
        return read_task(partition, self._projection, Selection())

    def commit(self, end: Offsets) -> None:
        """Commit the batches up to `end`."""
        self._done(end)

    def _first(self) -> Offsets:
        from kafkalake.spark.stream.plan import first_positions

        return to_json(*first_positions(self._options, self._open_edges().tables))

    def _done(self, end: Offsets) -> None:
        """Commit the query's progress to the group, if one is named.

        Spark calls `commit` for a batch after it has planned the next one, and never for the last one. But it requests the end of
        the next batch only when the last one is done.
        """
        if self._options.group is None or end == self._began:
            return
        if self._group is None:
            from kafkalake.reader.group_positions import GroupPositions

            self._group = GroupPositions(self._options.lake, self._options.group, self._open_edges().tables)
        self._group.commit(from_json(end))

    def _look(self) -> dict[TopicPartition, Edge]:
        return self._open_edges().look()

    def _open_edges(self) -> PartitionBounds:
        if self._edges is None:
            from kafkalake.reader.partition_edges import PartitionBounds

            self._edges = PartitionBounds(self._options)
        return self._edges
