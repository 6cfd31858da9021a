"""A Spark job as a consumer group: copies records from the group's offsets to the current end into a table, exactly once.

The output is authoritative: it contains the records and, in the same commit, their offsets (`output`). The group's committed
offsets define the start of a new output. After each batch they are set to those of the output, for `kafkalake groups describe`
and the lag report: in the partitions that the run reads, as the group may read others into other outputs. So a run may die
anywhere, and the next one starts at the end of the output.

    1. plan      offsets of the output, else of the group, else startingOffsets -> ends of the partitions, at most offsets_max
    2. write     records and offsets, one commit
    3. commit    the group's offsets
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from kafkalake.errors import ConfigurationError
from kafkalake.jobs.consume.exact_frame import exact_frame
from kafkalake.jobs.consume.output import ConsumedOutput, DeltaOutput, ParquetOutput
from kafkalake.jobs.frame import fault_point
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.reader.bounds import bounded
from kafkalake.reader.group_positions import GroupPositions
from kafkalake.reader.positions import (
    Positions,
    TopicIds,
    from_json,
    ids_from_json,
    is_another,
    made_anew,
    shared_out,
    to_json,
)
from kafkalake.reader.read_options import ReadOptions, parse_options
from kafkalake.reader.snapshot import take_snapshot
from kafkalake.spark.spark_session import session_zone
from kafkalake.topic_partition import TopicPartition

FORMATS = ("delta", "parquet")


@dataclass(frozen=True, slots=True)
class Batch:
    """Offsets to read (ends exclusive) and, once written, the number of records and the version of the output with them.

    holds: the output's end in every partition afterwards, including those that this batch does not read.
    there: the available end of each partition. topic_ids: ids of the topics of these offsets.
    """

    starts: Positions
    ends: Positions
    holds: Positions
    there: Positions
    topic_ids: TopicIds
    records: int = 0
    version: int = -1
    seconds: float = 0.0


class Consumption:
    """Copies what `options` (of the data source) select, or its `columns`, to `output` as group `options["group"]`. A context."""

    def __init__(
        self,
        spark: SparkSession,
        output: str,
        options: Mapping[str, str],
        *,
        output_format: str = "delta",
        columns: Sequence[str] = (),
        offsets_max: int | None = None,
    ) -> None:
        """Raise `ConfigurationError` or `LakeError`."""
        self._options: ReadOptions = parse_options(options, time_zone=session_zone(spark))
        if self._options.group is None:
            raise ConfigurationError("name the consumer group: option group")
        self._spark = spark
        self._given = dict(options)
        self._columns = columns
        self._offsets_max = offsets_max
        self._held: Positions | None = None
        self._committed: Positions = {}
        self._topic_ids: TopicIds = {}
        self._tables = DeltaMetadataStore(Path(self._options.lake).absolute(), create=False)
        self._group = GroupPositions(self._options.lake, self._options.group, self._tables)
        self._output: ConsumedOutput
        if output_format == "delta":
            self._output = DeltaOutput(spark, output, self._options.group)
        else:
            self._output = ParquetOutput(output, self._options.group)

    def __enter__(self) -> Consumption:
        return self

    def __exit__(self, *error: object) -> None:
        self._output.close()

    def batches(self) -> Iterator[Batch]:
        """Write the records available now, batch by batch. Yields each batch after it is written and its offsets are committed.

        Raise `KafkaLakeError` if records cannot be read, and Spark's exceptions if they cannot be written.
        """
        batch = self.plan()
        target = batch.there
        while batch.starts != batch.ends:
            fault_point("planned")
            yield self._write(batch)
            batch = self.plan(target)
        # An earlier run may have died after writing and before committing the group's offsets.
        self._group.commit(batch.ends, batch.topic_ids)

    def plan(self, target: Mapping[TopicPartition, int] | None = None) -> Batch:
        """Return the next batch, which ends at `target`, if given, or at the current end, without changing anything.

        Raise `OffsetOutOfRangeError` if a topic was deleted and created again, unless `failOnDataLoss` is false: then it is read
        from its beginning.
        """
        if self._held is None:
            committed = self._group.committed()
            said = self._output.offsets(committed)
            self._committed = committed if said is None else {}
            self._held = from_json(said or {})
            self._topic_ids = ids_from_json(said or ())
        read = take_snapshot(self._options, self._tables)
        topic_ids = read.topic_ids
        anew = {topic for topic, topic_id in topic_ids.items() if is_another(topic, topic_id, self._topic_ids)}
        made_anew(anew, self._options.fail_on_data_loss)
        held = {where: offset for where, offset in self._held.items() if where[0] not in anew}
        again = {where: offset for where, offset in read.starts.items() if where[0] in anew}
        read = bounded(read, self._committed | held | again)
        begins = read.starts
        ends = there = read.ends
        if target is not None:
            ends = {
                where: max(begins[where], min(end, target.get(where, begins[where]))) for where, end in ends.items()
            }
        if self._offsets_max is not None:
            ends = shared_out(begins, ends, self._offsets_max)
        return Batch(begins, ends, held | ends, there, {**self._topic_ids, **topic_ids})

    def _write(self, batch: Batch) -> Batch:
        began = time.monotonic()
        starting, ending = (to_json(offsets, batch.topic_ids) for offsets in (batch.starts, batch.ends))
        frame = exact_frame(self._spark, self._given, starting, ending, self._columns)
        records, version = self._output.write(frame, to_json(batch.holds, batch.topic_ids))
        self._held, self._topic_ids = batch.holds, batch.topic_ids
        fault_point("written")
        self._group.commit(batch.ends, batch.topic_ids)
        fault_point("told")
        return replace(batch, records=records, version=version, seconds=time.monotonic() - began)
