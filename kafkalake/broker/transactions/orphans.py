"""Ends orphaned transactions: open in a partition, and unknown to every transactional id.

So are those whose records in the journal are lost: the one that adds a partition, or the id itself; and those that a batch opens
which was under way for too long (KIP-890). Such a transaction would never end, and read_committed consumers would be stuck before
it for ever. It is aborted, except in `__consumer_offsets` if the producer's newest known outcome is a commit.

The leader of a partition looks for transactions to which nothing was appended since the last look, and asks the coordinators,
wherever they are. Nothing is ended unless each partition of the journal has a coordinator that has answered: the id could have any
name. Nor is a transaction to which something was appended, or that has ended, since the coordinators were asked: they may know the
next one. A broker that coordinates all ids need not wait when it starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, Protocol

from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.transactions.decisions import Marker
from kafkalake.broker.transactions.markers import MarkerWriter, TransactionalOffsets
from kafkalake.broker.transactions.states import State
from kafkalake.broker.transactions.table import TransactionTable
from kafkalake.broker.transactions.transaction_peers import KnownTransactions
from kafkalake.cluster.image import NO_LEADER
from kafkalake.errors import KafkaError, KafkaLakeError
from kafkalake.internal_topics import GROUP_JOURNAL, TRANSACTION_JOURNAL
from kafkalake.run_blocking import in_turns
from kafkalake.storage.producer_state import NO_PRODUCER_ID, ProducerStateEntry
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

ASKED_MAX = 1_000
"""The maximum number of producers about which coordinators are asked at one look. The others follow with the next ones."""
IDS_PER_TURN = PARTITIONS_PER_TURN = 200

Ask = Callable[[int, Collection[int]], Awaitable[KnownTransactions]]


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition. state: of its producer in the log, None if it has only offsets of a group."""

    partition: TopicPartition
    producer_id: int
    state: ProducerStateEntry | None


def find_orphans(
    found: Iterable[OpenTransaction], known: Iterable[KnownTransactions], journal_partitions: int
) -> dict[OpenTransaction, bool]:
    """Return the transactions that no coordinator knows, and whether the producer's newest outcome is a commit.

    None are orphans unless the coordinators that `known` is of coordinate all partitions of the journal.
    """
    answers = list(known)
    coordinated: set[int] = set().union(*(each.coordinated for each in answers))
    if len(coordinated) < journal_partitions:
        return {}
    unfinished = {each for answer in answers for each in answer.unfinished}
    committed = {each for answer in answers for each in answer.committed}
    return {
        each: each.producer_id in committed for each in found if (each.producer_id, each.partition) not in unfinished
    }


def known_transactions(
    table: TransactionTable, producer_ids: Collection[int] | None = None
) -> Generator[None, None, KnownTransactions]:
    """Return what a coordinator knows of the transactions of producers, or of all. It yields after some ids."""
    shards = {index: table.shard(index) for index in table.serving}
    unfinished: set[tuple[int, TopicPartition]] = set()
    committed = set()
    for number, entry in enumerate(table, 1):
        current = entry.transaction.current
        if current is not None and (producer_ids is None or current.producer_id in producer_ids):
            unfinished.update((current.producer_id, each) for each in entry.transaction.unfinished_partitions)
            if current.state is State.COMPLETE_COMMIT:
                committed.add(current.producer_id)
        if number % IDS_PER_TURN == 0:
            yield
    coordinated = frozenset(index for index, shard in shards.items() if table.shard(index) is shard)
    return KnownTransactions(coordinated, frozenset(unfinished), frozenset(committed))


class OrphanHost(Protocol):
    """The parts of a broker that the search needs."""

    topics: Topics
    broker_id: int

    def flush(self) -> bool: ...


class Orphans:
    """The search of one broker. Runs on the event loop's thread. `ask` asks another broker for its `known_transactions`."""

    def __init__(
        self,
        host: OrphanHost,
        offsets: TransactionalOffsets,
        table: TransactionTable,
        markers: MarkerWriter,
        ask: Ask,
    ) -> None:
        self._host = host
        self._offsets = offsets
        self._table = table
        self._markers = markers
        self._ask = ask
        self._seen: frozenset[OpenTransaction] = frozenset()
        self._asked_last = NO_PRODUCER_ID

    async def end_known(self) -> None:
        """End those that this broker finds alone: it coordinates all ids, and serves nothing yet."""
        known = await in_turns(known_transactions(self._table))
        found = chain.from_iterable(map(self._open_in, self._led()))
        self._end(find_orphans(found, [known], len(known.coordinated)))

    async def look(self) -> None:
        """Look for transactions that were open at the last look and are as they were, and end the orphans among them."""
        found: set[OpenTransaction] = set()
        for number, partition in enumerate(self._led(), 1):
            found.update(self._open_in(partition))
            if number % PARTITIONS_PER_TURN == 0:
                await asyncio.sleep(0)
        lasting, self._seen = self._seen & found, frozenset(found)
        if lasting:
            await self._look_into(lasting)

    async def _look_into(self, lasting: Collection[OpenTransaction]) -> None:
        leaders = self._journal_leaders()
        if not leaders or NO_LEADER in leaders:
            return
        producer_ids = self._next_of(sorted({each.producer_id for each in lasting}))
        try:
            known = await asyncio.gather(*(self._known(leader, producer_ids) for leader in sorted(set(leaders))))
        except KafkaLakeError as error:
            logger.info("whether transactions are orphans is not known producers=%d error=%s", len(producer_ids), error)
            return
        asked = [each for each in lasting if each.producer_id in producer_ids]
        self._end(find_orphans(asked, known, len(leaders)))

    def _next_of(self, producer_ids: Sequence[int]) -> frozenset[int]:
        """Return those to be asked about now, if there are too many for one look."""
        later = [each for each in producer_ids if each > self._asked_last]
        asked = [*later, *producer_ids][:ASKED_MAX]
        self._asked_last = asked[-1]
        return frozenset(asked)

    def _journal_leaders(self) -> Sequence[int]:
        topic = self._host.topics.find(TRANSACTION_JOURNAL)
        return () if topic is None else [each.leader for each in topic.registrations]

    async def _known(self, broker_id: int, producer_ids: Collection[int]) -> KnownTransactions:
        if broker_id == self._host.broker_id:
            return await in_turns(known_transactions(self._table, producer_ids))
        return await self._ask(broker_id, producer_ids)

    def _end(self, orphans: Mapping[OpenTransaction, bool]) -> None:
        if orphans:
            self._host.flush()  # a batch may be queued
        for each in sorted(orphans, key=itemgetter(0, 1)):
            self._end_one(each, committed=orphans[each])

    def _end_one(self, orphan: OpenTransaction, *, committed: bool) -> None:
        try:
            partition = self._host.topics.leader(*orphan.partition)
        except KafkaError:
            return
        if orphan not in self._open_in(partition):
            return
        known = orphan.state
        epoch, coordinator_epoch = (0, 0) if known is None else (known.epoch, max(known.coordinator_epoch, 0))
        is_committed = committed and orphan.partition[0] == GROUP_JOURNAL
        logger.warning(
            "ending a transaction that no id knows of topic=%s partition=%d producer_id=%d committed=%s",
            *orphan.partition,
            orphan.producer_id,
            is_committed,
        )
        marker = Marker(orphan.producer_id, epoch, is_committed)
        self._markers.write(partition, marker, coordinator_epoch, lambda error: None)

    def _led(self) -> list[Partition]:
        return [partition for topic in self._host.topics for partition in topic.replicas.values()]

    def _open_in(self, partition: Partition) -> Iterator[OpenTransaction]:
        """Yield each open transaction with records, or committed offsets of a group, in a partition that is led here."""
        log, key = partition.log, (partition.topic.name, partition.index)
        found: dict[int, ProducerStateEntry | None] = {}
        if partition.topic.name == GROUP_JOURNAL:
            for producer_id in self._offsets.open_transactions(partition.index):
                found[producer_id] = log.producer(producer_id)
        if log.last_stable_offset < log.log_end_offset:
            for producer_id, producer in log.producers():
                if producer.transaction_offset >= 0:
                    found[producer_id] = producer
        for producer_id, state in found.items():
            yield OpenTransaction(key, producer_id, state)
