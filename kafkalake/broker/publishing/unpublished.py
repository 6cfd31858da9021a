"""What a leader has to report for `partitions` and `segments`: moved offsets, sealed and removed segments. Pure.

The broker's event loop notes changes (each a set or dict operation). `report` returns all that were not acknowledged, and
`acknowledge` forgets those of the last report. A report is made in steps: there may be very many partitions. A change that is noted
meanwhile belongs to the next report, whether the rows of this one show it or not; only markers count at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kafkalake.broker.publishing.reports import PartitionReport
from kafkalake.metadata.tables.schemas import PartitionRow, SegmentKey, SegmentRow
from kafkalake.run_blocking import Steps
from kafkalake.topic_partition import TopicPartition


@dataclass(slots=True)
class _Changes:
    """last: the last rows of partitions that this broker leads no longer and no other one leads yet."""

    moved: set[TopicPartition] = field(default_factory=set)
    marked: set[TopicPartition] = field(default_factory=set)
    last: dict[TopicPartition, PartitionRow] = field(default_factory=dict)
    sealed: dict[SegmentKey, SegmentRow] = field(default_factory=dict)
    removed: dict[SegmentKey, None] = field(default_factory=dict)
    is_swapped: bool = False

    def __bool__(self) -> bool:
        return bool(self.moved or self.last or self.sealed or self.removed or self.is_swapped)

    def merge(self, later: _Changes) -> None:
        """Add later changes. Of a segment the last one counts."""
        self.moved |= later.moved
        self.marked |= later.marked
        self.last |= later.last
        for key in later.removed:
            self.sealed.pop(key, None)
        for key in later.sealed:
            self.removed.pop(key, None)
        self.sealed |= later.sealed
        self.removed |= later.removed
        self.is_swapped |= later.is_swapped

    def forget(self, partition: TopicPartition) -> None:
        self.moved.discard(partition)
        self.marked.discard(partition)
        self.last.pop(partition, None)


class UnpublishedChanges:
    """The changes of one broker.

    `describe` returns a partition's row now, None if it is not led here. `sequence`: the number that no report has yet.
    """

    def __init__(
        self, broker_id: int, describe: Callable[[TopicPartition], PartitionRow | None], sequence: int = 0
    ) -> None:
        self._broker_id = broker_id
        self._describe = describe
        self._sequence = sequence
        self._new = _Changes()
        self._reported = _Changes()
        self._awaits = False
        """Whether the last report is not acknowledged."""
        self._marking: Counter[TopicPartition] = Counter()
        """The number of markers that are being written."""
        self._shown: set[TopicPartition] = set()
        """Partitions of which the rows of the last report may show markers."""

    def __bool__(self) -> bool:
        """Return whether there is anything to report."""
        return bool(self._new or self._reported)

    @property
    def is_marked(self) -> bool:
        """Return whether markers were written that are not published."""
        return bool(self._new.marked or self._reported.marked or self._marking)

    def moved(self, partition: TopicPartition) -> None:
        """Note changed offsets, epoch or replicas of a partition, or a new partition."""
        self._new.moved.add(partition)

    def marking(self, partition: TopicPartition) -> None:
        """Note a marker that is being written to a partition, until `marked`."""
        self._marking[partition] += 1
        self._shown.add(partition)

    def marked(self, partition: TopicPartition) -> None:
        """Note that a marker is written, or was perhaps."""
        self._new.marked.add(partition)
        self._shown.add(partition)
        if partition in self._marking:
            self._marking[partition] -= 1
            self._marking += Counter()

    def dropped(self, partition: TopicPartition) -> None:
        """Note that a partition is no longer led here. Its segments are `removed` if its topic was deleted."""
        self._new.forget(partition)
        self._reported.forget(partition)

    def orphaned(self, row: PartitionRow) -> None:
        """Note that a partition is no longer led here, nor elsewhere yet: its last row is reported, with its markers."""
        key = (row.topic, row.partition)
        is_marked = key in self._new.marked or key in self._reported.marked or key in self._marking
        self.dropped(key)
        self._new.last[key] = row
        if is_marked:
            self._new.marked.add(key)

    def sealed(self, segment: SegmentRow) -> None:
        """Note a sealed segment."""
        self._new.merge(_Changes(sealed={segment.key: segment}))

    def removed(self, key: SegmentKey) -> None:
        """Note that a sealed segment is no longer part of the log, even if unpublished: a failed publish may be half committed."""
        self._new.merge(_Changes(removed={key: None}))

    def swapped(self) -> None:
        """Note that jobs have changed `segments`, so that the rows must name its new version."""
        self._new.is_swapped = True

    def report(self) -> Steps[PartitionReport]:
        """Return everything that was not acknowledged, but for sealed segments above the high watermark, which may be truncated.

        It yields after each segment and row. No other report is begun before it has ended.
        """
        self._reported.merge(self._new)
        self._new = _Changes()
        self._sequence += 1
        self._awaits = True
        all_of, sequence = self._reported, self._sequence
        self._shown = {*all_of.marked, *self._marking}
        yield from self._put_back_uncommitted()
        rows = []
        for key in list(all_of.moved):
            if (row := self._describe(key)) is not None:
                rows.append(row)
            yield
        return PartitionReport(
            self._broker_id,
            sequence,
            [*(row for key, row in all_of.last.items() if key not in all_of.moved), *rows],
            tuple(all_of.sealed.values()),
            tuple(all_of.removed),
            frozenset(self._shown),
            all_of.is_swapped,
        )

    def _put_back_uncommitted(self) -> Steps[None]:
        """Take sealed segments that may be truncated out of the report."""
        for key, segment in list(self._reported.sealed.items()):
            row = self._describe((segment.topic, segment.partition))
            if row is not None and row.high_watermark < segment.next_offset:
                del self._reported.sealed[key]
                if key not in self._new.removed:  # meanwhile
                    self._new.sealed[key] = segment
            yield

    def acknowledge(self, sequence: int, kept: Collection[TopicPartition] = ()) -> bool:
        """Forget the last report, once, if it is this one. Partitions of `kept` are reported again. Return whether it is."""
        if sequence != self._sequence or not self._awaits:
            return False
        self._awaits = False
        all_of = self._reported
        last = {key: row for key, row in all_of.last.items() if key in kept and key not in all_of.moved}
        again = all_of.moved.union(all_of.marked).intersection(kept).difference(last)
        self._reported = _Changes(moved=again, marked=all_of.marked.intersection(kept), last=last)
        return True
