"""The lowest offset that any group has committed for a partition: what a topic that waits for its groups must keep.

Each coordinator answers for its groups. Together they are complete if each partition of the groups' journal has a coordinator that
has answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Generator, Iterable, Mapping
from typing import NamedTuple, Protocol

from kafkalake.broker.groups.table import GroupTable
from kafkalake.broker.partitions.topics import Topics
from kafkalake.cluster.image import NO_LEADER
from kafkalake.errors import CoordinatorNotAvailableError
from kafkalake.internal_topics import GROUP_JOURNAL
from kafkalake.run_blocking import in_turns
from kafkalake.topic_partition import TopicPartition

OFFSETS_PER_TURN = 500


class LowestOffset(NamedTuple):
    """The lowest committed offset of a partition, and a group that has it."""

    offset: int
    group: str


class LowestOffsets(NamedTuple):
    """The answer of a coordinator. coordinated: the partitions of the groups' journal whose groups it coordinates."""

    coordinated: frozenset[int]
    of_partitions: Mapping[TopicPartition, LowestOffset]


class GroupPeers(Protocol):
    """The other brokers, as coordinators of groups."""

    async def lowest_offsets(self, broker_id: int, topics: Collection[str]) -> LowestOffsets:
        """Ask a coordinator for the lowest offsets of these topics. Raise `BrokerUnavailableError` if there is no answer."""
        ...


def lowest_offsets(table: GroupTable, topics: Collection[str]) -> Generator[None, None, LowestOffsets]:
    """Return the lowest offsets of these topics that the groups of a coordinator have committed. It yields after some of them."""
    shards = {index: table.shard(index) for index in table.serving}
    found: dict[TopicPartition, LowestOffset] = {}
    seen = 0
    for entry in table:
        for key in entry.offsets.committed_keys():
            committed = entry.offsets.get(key) if key[0] in topics else None
            if committed is not None:
                here = LowestOffset(committed.committed.offset, entry.group.group_id)
                found[key] = min(here, found.get(key, here))
            seen += 1
            if seen % OFFSETS_PER_TURN == 0:
                yield
    coordinated = frozenset(index for index, shard in shards.items() if table.shard(index) is shard)
    return LowestOffsets(coordinated, found)


def combine(answers: Iterable[LowestOffsets], journal_partitions: int) -> dict[TopicPartition, LowestOffset]:
    """Return the lowest offsets of all. Raise `CoordinatorNotAvailableError` if partitions of the journal are missing."""
    coordinated: set[int] = set()
    found: dict[TopicPartition, LowestOffset] = {}
    for answer in answers:
        coordinated |= answer.coordinated
        for key, lowest in answer.of_partitions.items():
            found[key] = min(lowest, found.get(key, lowest))
    if len(coordinated) < journal_partitions:
        missing = journal_partitions - len(coordinated)
        raise CoordinatorNotAvailableError(f"{missing} partitions of {GROUP_JOURNAL} have no coordinator now")
    return found


class CommittedOffsets:
    """The committed offsets of all groups of the cluster. Runs on the event loop's thread."""

    def __init__(self, broker_id: int, topics: Topics, table: GroupTable, peers: GroupPeers) -> None:
        self._broker_id = broker_id
        self._topics = topics
        self._table = table
        self._peers = peers

    async def lowest(self, names: Collection[str]) -> dict[TopicPartition, dict[str, int]]:
        """Return the lowest offset of each partition of these topics by a group that has it, as far as a group has committed one.

        Raise `CoordinatorNotAvailableError` or `BrokerUnavailableError` if it is not known now.
        """
        journal = self._topics.find(GROUP_JOURNAL)
        if journal is None:
            return {}
        leaders = [each.leader for each in journal.registrations]
        if NO_LEADER in leaders:
            raise CoordinatorNotAvailableError(f"{GROUP_JOURNAL} has partitions without a leader now")
        answers = await asyncio.gather(*(self._ask(leader, names) for leader in sorted(set(leaders))))
        found = combine(answers, len(leaders))
        return {partition: {lowest.group: lowest.offset} for partition, lowest in found.items()}

    async def _ask(self, broker_id: int, names: Collection[str]) -> LowestOffsets:
        if broker_id == self._broker_id:
            return await in_turns(lowest_offsets(self._table, names))
        return await self._peers.lowest_offsets(broker_id, names)
