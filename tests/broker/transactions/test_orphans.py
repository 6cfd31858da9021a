"""Transactions that are open in a partition and unknown to every coordinator are ended, and no others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from uuid import UUID

import pytest
from broker.transactions.two_brokers import P0, P1, Member, NoOffsets, TwoBrokers, run

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.partitions.topics import Topic
from kafkalake.broker.transactions import orphans
from kafkalake.broker.transactions.orphans import OpenTransaction, Orphans, find_orphans, known_transactions
from kafkalake.broker.transactions.transaction_peers import KnownTransactions
from kafkalake.cluster.image import NO_LEADER, PartitionRegistration
from kafkalake.config.layers import Settings
from kafkalake.errors import BrokerUnavailableError
from kafkalake.internal_topics import TRANSACTION_JOURNAL
from kafkalake.run_blocking import in_turns

FOUND = [OpenTransaction(P0, 7, None), OpenTransaction(P1, 7, None), OpenTransaction(P0, 8, None)]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ([KnownTransactions(frozenset({0})), KnownTransactions(frozenset({1}))], FOUND),
        ([KnownTransactions(frozenset({0}))], []),  # the other half of the ids is not known
        ([KnownTransactions(frozenset({0})), KnownTransactions(frozenset({0}))], []),
        ([KnownTransactions(frozenset({0, 1}), frozenset({(7, P0), (7, P1), (8, P0)}))], []),
        ([KnownTransactions(frozenset({0, 1}), frozenset({(7, P1)}))], [FOUND[0], FOUND[2]]),
    ],
)
def test_orphans_are_those_that_no_coordinator_knows(
    known: Iterable[KnownTransactions], expected: list[OpenTransaction]
) -> None:
    assert list(find_orphans(FOUND, known, 2)) == expected


def test_the_newest_outcome_of_the_producer_counts() -> None:
    known = [KnownTransactions(frozenset({0}), frozenset(), frozenset({8}))]
    assert find_orphans(FOUND, known, 1) == {FOUND[0]: False, FOUND[1]: False, FOUND[2]: True}


class Searching:
    """Both brokers of a pair with their searches. leaders: of the two partitions of the transactions' journal."""

    def __init__(self, directory: Path) -> None:
        self.pair = TwoBrokers(directory)
        self.asked: list[tuple[int, frozenset[int]]] = []
        self.is_cut = False
        self.meanwhile: Callable[[], None] = lambda: None
        """Called when coordinators have answered, before their answers arrive."""
        self.searches = [self._search(node) for node in self.pair.nodes]
        self.lead([0, 1])

    def _search(self, node: Member) -> Orphans:
        class Host:
            topics, broker_id = node.topics, node.broker_id

            def flush(self) -> bool:
                node.turn()
                return False

        return Orphans(Host(), NoOffsets(), node.coordinator.table, node.markers, self._ask)

    async def _ask(self, broker_id: int, producer_ids: Collection[int]) -> KnownTransactions:
        self.asked.append((broker_id, frozenset(producer_ids)))
        if self.is_cut:
            raise BrokerUnavailableError("no network")
        known = await in_turns(known_transactions(self.pair.nodes[broker_id].coordinator.table, producer_ids))
        self.meanwhile()
        return known

    def lead(self, leaders: list[int]) -> None:
        for node in self.pair.nodes:
            if node.topics.find(TRANSACTION_JOURNAL) is None:
                settings = Settings({}, {}, {}).topic({})
                node.topics.add(Topic(TRANSACTION_JOURNAL, UUID(int=1), {}, settings, 0))
            topic = node.topics.topic(TRANSACTION_JOURNAL)
            topic.registrations = tuple(PartitionRegistration(leader) for leader in leaders)

    def look(self, broker_id: int, times: int = 2) -> None:
        for _ in range(times):
            asyncio.run(self.searches[broker_id].look())
            self.pair.nodes[broker_id].turn()

    def stable(self) -> list[int]:
        return [node.stable for node in self.pair.nodes]


@pytest.fixture
def searching(tmp_path: Path) -> Searching:
    return Searching(tmp_path)


def lost(searching: Searching, *known: tuple[str, int]) -> ProducerIdAndEpoch:
    """A transaction with a record on each broker, of which broker 0's coordinator knows these partitions."""
    node = searching.pair.nodes[0]
    producer = node.producer()
    if known:
        node.add(producer, *known)
    for each in searching.pair.nodes:
        each.write(producer)
        each.turn()
    return producer


@pytest.mark.parametrize(("known", "expected"), [((), [2, 2]), ((P0,), [0, 2]), ((P0, P1), [0, 0])])
def test_each_leader_ends_its_own(
    searching: Searching, known: tuple[tuple[str, int], ...], expected: list[int]
) -> None:
    lost(searching, *known)
    for broker_id in (0, 1):
        searching.look(broker_id)
    assert searching.stable() == expected
    searching.look(0, 3)
    assert searching.stable() == expected


def test_nothing_is_ended_at_the_first_look_or_after_an_append(searching: Searching) -> None:
    producer = lost(searching)
    searching.look(0, 1)
    assert searching.stable() == [0, 0] and searching.asked == []
    node = searching.pair.nodes[0]
    for sequence in (1, 2, 3):
        node.write(producer, sequence)
        node.turn()
        searching.look(0, 1)
    assert searching.stable() == [0, 0] and searching.asked == []
    searching.look(0, 1)
    assert searching.stable() == [5, 0]


def test_nothing_is_ended_until_all_coordinators_have_answered(searching: Searching) -> None:
    lost(searching)
    searching.is_cut = True
    searching.look(0)
    searching.lead([0, NO_LEADER])
    searching.is_cut = False
    searching.look(0)
    searching.lead([0, 0])  # it does not coordinate the second one yet
    searching.look(0)
    assert searching.stable() == [0, 0]
    searching.lead([0, 1])
    searching.look(0)
    assert searching.stable() == [2, 0]


def test_what_was_appended_since_the_coordinators_were_asked_is_spared(searching: Searching) -> None:
    """The producer's next transaction, of which the coordinator knows by now, has come into the same partition."""
    producer = lost(searching)
    node = searching.pair.nodes[0]

    def write_more() -> None:
        node.add(producer, P0)
        node.write(producer, 1)  # queued only

    searching.meanwhile = write_more
    searching.look(0)
    assert searching.stable() == [0, 0]
    node.end(producer)
    run(searching.pair.go(lambda: node.stable == node.partition.log.log_end_offset))


def test_many_producers_are_asked_about_one_after_the_other(
    searching: Searching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "ASKED_MAX", 2)
    node = searching.pair.nodes[0]
    for producer_id in range(5):
        node.write(ProducerIdAndEpoch(producer_id, 0))
    node.turn()
    searching.look(0, 5)
    assert all(len(producer_ids) <= 2 for _, producer_ids in searching.asked)
    assert node.stable == node.partition.log.log_end_offset == 10
