"""The journal partitions that a broker coordinates: their positions, and whether they are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kafkalake.broker.coordination.journal import journal_partition
from kafkalake.errors import CoordinatorLoadInProgressError, NotCoordinatorError

NAME_BYTES_MAX = 32_000
"""Maximum length of names in journal records, which have an int16 length. Member ids are a name and 37 more bytes."""


@dataclass(slots=True, eq=False)
class Shard:
    """One journal partition, loading while its history is read. `next_position` is the offset after the last applied record."""

    next_position: int
    loading: bool = field(default=True, init=False)

    def passed(self, position: int) -> None:
        """Note that the record at `position` has been applied."""
        self.next_position = max(self.next_position, position + 1)


S = TypeVar("S", bound=Shard)


class Shards(Generic[S]):
    """Shards by partition. `partitions` returns the journal's number of partitions."""

    def __init__(self, partitions: Callable[[], int]) -> None:
        self._partitions = partitions
        self._shards: dict[int, S] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(self._shards)

    def __getitem__(self, partition: int) -> S:
        return self._shards[partition]

    def get(self, partition: int) -> S | None:
        return self._shards.get(partition)

    def partition_of(self, name: str) -> int:
        """Return the partition of a group or transactional id."""
        return journal_partition(name, self._partitions())

    def check(self, name: str) -> int:
        """Return the partition of `name`, if served here. Raise `NotCoordinatorError` or `CoordinatorLoadInProgressError`."""
        partition = self.partition_of(name)
        shard = self._shards.get(partition)
        if shard is None:
            raise NotCoordinatorError
        if shard.loading:
            raise CoordinatorLoadInProgressError
        return partition

    @property
    def is_loading(self) -> bool:
        """Whether a partition is still loading."""
        return any(shard.loading for shard in self._shards.values())

    def begin(self, partition: int, shard: S) -> None:
        """Begin to load a partition that this broker coordinates."""
        assert partition not in self._shards
        self._shards[partition] = shard

    def finish(self, partition: int, end: int) -> None:
        """End loading at the offset `end`, even if the last records are lost."""
        shard = self._shards[partition]
        assert shard.loading
        shard.passed(end - 1)
        shard.loading = False

    def end(self, partition: int) -> None:
        """Remove a partition that this broker no longer coordinates."""
        self._shards.pop(partition, None)
