"""What jobs have done to sealed segments while the broker looked away, per partition. Pure.

Jobs work on sealed segments and say what they did in Delta: `segments` names what they rewrote, `cleaning` how far the
log's beginning was removed. The broker takes their word when it opens its logs, and looks again at every publish interval.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafkalake.metadata.publisher import published_by
from kafkalake.metadata.store import JobChanges
from kafkalake.storage.generations import SwappedSegment

PartitionKey = tuple[str, int]
"""Topic id (text) and number."""


@dataclass(slots=True)
class PartitionChanges:
    """Segments that were rewritten, and the offset below which the log was removed."""

    swapped: list[SwappedSegment] = field(default_factory=list)
    log_start_offset: int = 0


class JobsWord:
    """What `changes` say of the partitions of one broker."""

    def __init__(self, broker_id: int, changes: JobChanges | None) -> None:
        self._partitions: dict[PartitionKey, PartitionChanges] = {}
        if changes is None:
            return
        for row in published_by(broker_id, changes.swapped):
            segment = SwappedSegment(row.base_offset, row.next_offset, row.generation)
            self._of((row.topic_id, row.partition)).swapped.append(segment)
        for cleaning in changes.cleaning:
            self._of(cleaning.key).log_start_offset = cleaning.log_start_offset

    def of_partition(self, topic_id: str, partition: int) -> PartitionChanges:
        """What was done to one partition; nothing where nothing is said."""
        return self._partitions.get((topic_id, partition), PartitionChanges())

    def partitions(self) -> Iterable[tuple[PartitionKey, PartitionChanges]]:
        """All that anything is said of."""
        return self._partitions.items()

    def _of(self, key: PartitionKey) -> PartitionChanges:
        return self._partitions.setdefault(key, PartitionChanges())
