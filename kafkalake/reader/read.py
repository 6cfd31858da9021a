"""A read of topics as a value that grows: its options, then the partitions that they name, then the offsets that they ask for.

begin_read      takes the snapshot, agrees on it with other scans of the query, and bounds it (`bounds`, `snapshot`)
plan_slices     cuts it into slices of segments (`plan`)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafkalake.reader.positions import Positions, TopicIds
from kafkalake.reader.read_options import ReadOptions
from kafkalake.storage.files import REAL_FILES, read_file
from kafkalake.storage.producer_state import AbortedTransaction
from kafkalake.storage.txn_index import decode_aborted


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment as the planner uses it: offsets [base_offset, next_offset), whole messages in the first `size` bytes.

    Timestamps (ms) and `records`, the number of its records, are None if the segment is not yet in Delta. `sealed`: whether it is
    in Delta. `generation`: above 0 if a job has rewritten it.
    """

    base_offset: int
    next_offset: int
    path: str
    size: int
    min_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None
    sealed: bool = False
    generation: int = 0
    records: int | None = None

    def records_between(self, first: int, end: int) -> int | None:
        """Return how many records the offsets [first, end) hold, None if that is not known.

        Markers of transactions, and what compaction has removed, leave offsets without a record.
        """
        if (first, end) == (self.base_offset, self.next_offset) or self.records in (0, None):
            return self.records
        return end - first if self.records == self.next_offset - self.base_offset else None

    @property
    def readable_bytes(self) -> int:
        """The number of bytes to read: -1 (all) for a sealed file, else the position given by `state`."""
        return -1 if self.sealed else self.size


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """The readable offsets [start_offset, end_offset) of a partition. `segments` cover them, ascending.

    `later_segments` follow them and may hold the end of a transaction whose records are in `segments`. topic_id: in Kafka's format.
    """

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    segments: Sequence[SegmentFile]
    later_segments: Sequence[SegmentFile] = ()
    topic_id: str = ""

    def aborted_transactions(self, start_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that may have records at or after `start_offset`, from the `.txnindex` files.

        Raise `CorruptSegmentError` if one is damaged, because guessing would show aborted records.
        """
        aborted: list[AbortedTransaction] = []
        there: dict[str, set[str]] = {}
        for segment in (*self.segments, *self.later_segments):
            if segment.next_offset > start_offset:
                directory, name = os.path.split(segment.path)
                if directory not in there:
                    there[directory] = {name for name in REAL_FILES.list(str(directory)) if name.endswith(".txnindex")}
                if (name := name.removesuffix(".arrow") + ".txnindex") in there[directory]:
                    path = os.path.join(directory, name)
                    aborted += decode_aborted(read_file(REAL_FILES, path), path, sealed=segment.sealed)
        return [entry for entry in aborted if entry.last_offset >= start_offset]


@dataclass(frozen=True, slots=True)
class Read:
    """The partitions that `options` name, by topic and number, with the offsets to read.

    version: of the lake's table `partitions`, when the snapshot was taken.
    """

    options: ReadOptions
    partitions: Sequence[PartitionSnapshot]
    version: int = -1

    def of(self, partitions: Sequence[PartitionSnapshot]) -> Read:
        """Return the read of these partitions."""
        return replace(self, partitions=partitions)

    @property
    def starts(self) -> Positions:
        """The first offset to read in each partition."""
        return {(each.topic, each.partition): each.start_offset for each in self.partitions}

    @property
    def ends(self) -> Positions:
        """The end of the offsets to read in each partition."""
        return {(each.topic, each.partition): each.end_offset for each in self.partitions}

    @property
    def topic_ids(self) -> TopicIds:
        """The ids of the topics, in Kafka's format."""
        return {each.topic: each.topic_id for each in self.partitions}
