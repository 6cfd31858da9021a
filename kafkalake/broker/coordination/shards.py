"""The journal partitions that a broker coordinates: what each stands at, and whether its past has been read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kafkalake.broker.coordination.journal import journal_partition
from kafkalake.errors import CoordinatorLoadInProgressError, NotCoordinatorError

NAME_BYTES_MAX = 32_000
"""Names in journal records have an int16 length; member ids are made of a name and 37 more bytes."""


@dataclass(slots=True, eq=False)
class Shard:
    """One journal partition, loading while its past is read: `next_position` is the offset up to which it was followed."""

    next_position: int
    loading: bool = field(default=True, init=False)

    def passed(self, position: int) -> None:
        """What stands at `position` has been followed."""
        self.next_position = max(self.next_position, position + 1)


S = TypeVar("S", bound=Shard)


class Shards(Generic[S]):
    """Shards by partition. `partitions`: how many the journal has."""

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
        """The partition that owns a group or transactional id."""
        return journal_partition(name, self._partitions())

    def check(self, name: str) -> int:
        """The partition that owns `name`, if we serve it. Raises `NotCoordinatorError`, `CoordinatorLoadInProgressError`."""
        partition = self.partition_of(name)
        shard = self._shards.get(partition)
        if shard is None:
            raise NotCoordinatorError
        if shard.loading:
            raise CoordinatorLoadInProgressError
        return partition

    @property
    def is_loading(self) -> bool:
        """Whether some names are not served yet."""
        return any(shard.loading for shard in self._shards.values())

    def begin(self, partition: int, shard: S) -> None:
        """This broker coordinates the partition; its past follows."""
        assert partition not in self._shards
        self._shards[partition] = shard

    def finish(self, partition: int, end: int) -> None:
        """The past has been read up to the offset `end`, also where the last of it is lost."""
        shard = self._shards[partition]
        assert shard.loading
        shard.passed(end - 1)
        shard.loading = False

    def end(self, partition: int) -> None:
        """This broker does not coordinate the partition any more."""
        self._shards.pop(partition, None)
