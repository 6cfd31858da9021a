"""A coordinator's table: its groups or transactional ids as the journal defines them, and the changes that Delta lacks.

`follow` applies one record in order, at run time and while loading. A journal partition is loading while its history is read, then
active. Requests for names of a loading partition are refused. The records of a partition may be trimmed below `resume_at` once the
changes are published.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from kafkalake.broker.coordination.automata import MachineSlot
from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import journal_partition
from kafkalake.errors import CoordinatorLoadInProgressError, InvalidRequestError, NotCoordinatorError
from kafkalake.run_blocking import take_all

NAME_BYTES_MAX = 32_000
"""Maximum length of names in journal records, which have an int16 length. Member ids are a name and 37 more bytes."""


def check_names(*names: str | None) -> None:
    """Raise `InvalidRequestError` if a name does not fit the journal's formats."""
    if any(len((name or "").encode()) > NAME_BYTES_MAX for name in names):
        raise InvalidRequestError("A name is too long.")


@dataclass(slots=True, eq=False)
class Shard:
    """One journal partition that this broker coordinates.

    `next_position` is the offset after the last applied record, `lost` the ranges of offsets that could not be read.
    """

    next_position: int
    leader_epoch: int = 0
    loading: bool = field(default=True, init=False)
    lost: Sequence[range] = field(default=(), init=False)

    def passed(self, position: int) -> None:
        """Note that the record at `position` has been applied."""
        self.next_position = max(self.next_position, position + 1)


@dataclass(slots=True)
class MetadataMemory:
    """Memory in bytes of the names in a table and the metadata of its groups' members, or of its groups' committed offsets."""

    bytes: int = 0

    def add(self, bytes_: int) -> None:
        """Add `bytes_` (may be negative)."""
        self.bytes += bytes_


class Changed(Protocol):
    """A row that the table's Delta twin lacks."""

    @property
    def journal_partition(self) -> int: ...


Keys = dict[tuple[str, Any], None]
"""Names, each with a detail, of rows that have changed, in order."""
E = TypeVar("E", bound=MachineSlot)
C = TypeVar("C", bound=Changed)
C_co = TypeVar("C_co", bound=Changed, covariant=True)


@dataclass(frozen=True, slots=True)
class Changes(Generic[C_co]):
    """Changes since the last `take_changes`. `resume_at`: journal partition -> the offset to read on from, once published.

    keys: journal partition -> what identifies its rows, in their order.
    """

    rows: Sequence[C_co]
    resume_at: dict[int, int]
    keys: Mapping[int, Keys] = field(default_factory=dict)


class JournaledTable(Generic[E, C]):
    """Entries by name. `partitions` returns the journal's number of partitions, `new_entry(name, partition)` an empty entry.

    A name that is empty or too long is refused with `name_error`.
    """

    def __init__(
        self,
        partitions: Callable[[], int],
        new_entry: Callable[[str, int], E],
        name_error: ErrorClass,
        memory: MetadataMemory | None = None,
    ) -> None:
        self.memory = memory or MetadataMemory()
        self._partitions = partitions
        self._new_entry = new_entry
        self._name_error = name_error
        self._entries: dict[str, E] = {}
        self._shards: dict[int, Shard] = {}
        self._changed: defaultdict[int, Keys] = defaultdict(dict)
        """Journal partition -> the keys of its rows that Delta lacks."""
        self._collected: dict[int, Keys] = {}
        """Those that `collect_changes` has taken and not returned yet."""

    def __iter__(self) -> Iterator[E]:
        """Iterate over the entries that there are now, as long as their partitions are active."""
        return filter(self._is_active, list(self._entries.values()))

    def _is_active(self, entry: E) -> bool:
        shard = self._shards.get(entry.partition)
        return shard is not None and not shard.loading

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_loading(self) -> bool:
        """Return whether a partition is still loading."""
        return any(shard.loading for shard in self._shards.values())

    @property
    def is_damaged(self) -> bool:
        """Return whether a partition lacked records when it was loaded."""
        return any(shard.lost for shard in self._shards.values())

    @property
    def is_whole(self) -> bool:
        """Return whether all partitions of the journal are loaded here, so that an unknown name has no state anywhere."""
        return len(self._shards) == self._partitions() and not self.is_loading

    def is_serving(self, partition: int) -> bool:
        """Return whether a partition is loaded here."""
        shard = self._shards.get(partition)
        return shard is not None and not shard.loading

    @property
    def serving(self) -> frozenset[int]:
        """The partitions of the journal that are loaded here."""
        return frozenset(index for index, shard in self._shards.items() if not shard.loading)

    def check(self, name: str, *, may_be_empty: bool = False) -> int:
        """Return the journal partition of a name that this broker serves.

        Raise the error of bad names, `NotCoordinatorError` or `CoordinatorLoadInProgressError`.
        """
        if (not name and not may_be_empty) or len(name.encode()) > NAME_BYTES_MAX:
            raise self._name_error
        partition = self.partition_of(name)
        shard = self._shards.get(partition)
        if shard is None:
            raise NotCoordinatorError
        if shard.loading:
            raise CoordinatorLoadInProgressError
        return partition

    def partition_of(self, name: str) -> int:
        """Return the journal partition of a name, whether or not it is known."""
        return journal_partition(name, self._partitions())

    def find(self, name: str) -> E | None:
        return self._entries.get(name)

    def find_or_create(self, name: str, partition: int) -> E:
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = self._new_entry(name, partition)
            self.memory.add(len(name))
        return entry

    def forget(self, entry: E) -> None:
        """Remove an entry that the journal does not have, or not here."""
        if self._entries.pop(entry.name, None) is not None:
            self.memory.add(-len(entry.name))

    # Partitions of the journal

    def begin(self, partition: int, position: int = 0, leader_epoch: int = 0) -> None:
        """Begin to load a partition that this broker coordinates. Its history follows, from `position`."""
        assert partition not in self._shards
        self._shards[partition] = Shard(position, leader_epoch)

    def raise_epoch(self, partition: int, leader_epoch: int) -> None:
        """Note that this broker leads a partition in a newer epoch, with all that it had."""
        shard = self._shards[partition]
        shard.leader_epoch = max(shard.leader_epoch, leader_epoch)

    def load_published(self, rows: Iterable[C]) -> None:
        """Load Delta's rows as of the journal position to read from. Call between `begin` and `follow`."""
        raise NotImplementedError

    def follow(self, partition: int, position: int, record: Any, producer_id: int | None = None) -> None:
        """Apply one journal record. `producer_id` is set if it is part of a transaction."""
        raise NotImplementedError

    def end_transaction(self, partition: int, producer_id: int, *, committed: bool, position: int) -> None:
        """Apply a commit or abort marker just written at `position`. While the partition is loading, it is read there instead."""
        if self.is_serving(partition):
            self.follow_end(partition, producer_id, committed=committed, position=position)

    def follow_end(self, partition: int, producer_id: int, *, committed: bool, position: int) -> None:
        """Apply a commit or abort marker at `position` of the journal, in order."""
        self._shards[partition].passed(position)
        self._complete(partition, producer_id, committed=committed)

    def _complete(self, partition: int, producer_id: int, *, committed: bool) -> None:
        """Apply or discard the records of a producer's transaction. Only some tables have records in transactions."""

    def finish(self, partition: int, end: int = 0, lost: Sequence[range] = ()) -> list[E]:
        """End loading at the offset `end`, even if the last records are lost, and return the partition's entries."""
        shard = self._shards[partition]
        assert shard.loading
        shard.passed(end - 1)
        shard.loading = False
        shard.lost = lost
        return self._entries_of(partition)

    def end(self, partition: int) -> list[E]:
        """Remove and return the entries of a partition that this broker no longer coordinates."""
        self._shards.pop(partition, None)
        gone = self._entries_of(partition)
        for entry in gone:
            self.forget(entry)
        return gone

    def _entries_of(self, partition: int) -> list[E]:
        return [entry for entry in self._entries.values() if entry.partition == partition]

    def shard(self, partition: int) -> Shard | None:
        """Return the partition's shard, None if this broker does not coordinate it."""
        return self._shards.get(partition)

    @property
    def partitions(self) -> list[int]:
        """The journal partitions that are loaded or loading."""
        return list(self._shards)

    # For Delta

    @property
    def has_changes(self) -> bool:
        """Return whether Delta may lack changes."""
        return bool(self._changed or self._collected)

    def take_changes(self) -> Changes[C]:
        """Return the changes that Delta lacks. After a failed publish, pass them to `put_back`.

        Those of a partition that is loading stay, and those of one led elsewhere are left to its leader.
        """
        return take_all(self.collect_changes())

    def collect_changes(self) -> Generator[None, None, Changes[C]]:
        """Return the same in turns: each partition as of its own moment, with its position then.

        A call that another one overtakes returns nothing. One that is not taken to its end loses nothing: the next has all of it.
        """
        self._merge(self._collected)
        collected = self._collected = {}
        loaded = {each: shard for each, shard in self._shards.items() if not shard.loading}
        positions = {each: self.resume_at(each) for each in loaded if each not in self._changed}
        rows: dict[int, list[C]] = {}
        for partition in list(self._changed):
            shard = self._shards.get(partition)
            if shard is not None and shard is not loaded.get(partition):
                continue
            collected[partition] = keys = self._changed.pop(partition)
            if shard is not None:
                newest, positions[partition] = shard.next_position - 1, self.resume_at(partition)
                rows[partition] = found = []
                for make_row in [self._row_of(name, detail) for name, detail in keys]:
                    found.append(make_row(partition, newest))
                    yield
                    if self._collected is not collected:
                        return Changes((), {})
        self._collected = {}
        here = {each for each, shard in loaded.items() if self._shards.get(each) is shard}
        return Changes(
            [row for each, found in rows.items() if each in here for row in found],
            {each: position for each, position in positions.items() if each in here},
            {each: keys for each, keys in collected.items() if each in here},
        )

    def put_back(self, changes: Changes[C]) -> None:
        """Restore `changes` after a failed publish."""
        self._merge(changes.keys)

    def _merge(self, keys: Mapping[int, Keys]) -> None:
        for partition, of_partition in keys.items():
            newer = self._changed.pop(partition, {})
            of_partition.update(newer)
            self._changed[partition] = of_partition

    def resume_at(self, partition: int) -> int:
        """Return the first journal offset that a coordinator has to read if all changes are published."""
        return self._shards[partition].next_position

    def _row_of(self, name: str, detail: Any) -> Callable[[int, int], C]:
        """Return what makes a row of the current state of a changed key, of its partition and the last journal offset now."""
        raise NotImplementedError
