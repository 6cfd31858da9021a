"""A transaction over two brokers ends in both, whatever becomes of the requests between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from broker.transactions.two_brokers import P0, P1, TOPIC_ID, TwoBrokers, run, until
from leaderships import sole_replica
from manual_clock import ManualClock

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.partitions.purgatory import Timers
from kafkalake.broker.transactions.decisions import Marker, MarkerResult, error_of
from kafkalake.broker.transactions.remote_markers import Done, RemoteMarkers
from kafkalake.broker.transactions.transaction_peers import MarkerRequest
from kafkalake.cluster.image import NO_LEADER
from kafkalake.errors import (
    InvalidProducerEpochError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    ProducerFencedError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from kafkalake.storage.producer_state import ABORT, EndMarker
from kafkalake.topic_partition import TopicPartition


@pytest.fixture
def c(tmp_path: Path) -> TwoBrokers:
    return TwoBrokers(tmp_path)


def begin(c: TwoBrokers) -> ProducerIdAndEpoch:
    """A transaction of broker 0's coordinator with a record on each broker."""
    producer = c.nodes[0].producer()
    c.nodes[0].add(producer, P0, P1)
    for node in c.nodes:
        node.write(producer)
        node.turn()
    return producer


def ended(c: TwoBrokers) -> Callable[[], bool]:
    return lambda: c.nodes[0].state == "CompleteCommit"


def test_it_ends_when_the_markers_of_both_brokers_are_written(c: TwoBrokers) -> None:
    async def scenario() -> None:
        producer = begin(c)
        assert [node.stable for node in c.nodes] == [0, 0]
        (answer,) = c.nodes[0].end(producer)
        assert answer.error is None
        await c.go(lambda: c.nodes[0].stable == 2, without=[1])
        assert c.nodes[0].state == "PrepareCommit"
        assert c.nodes[0].unfinished == 1, "until both have it"
        await c.go(ended(c))
        assert [(node.stable, node.unfinished) for node in c.nodes] == [(2, 0), (2, 0)]
        assert len(c.network.sent) == 1

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("script", [["lost"], ["lost"] * 12, ["unanswered"], ["unanswered", "lost", "unanswered"]])
def test_requests_without_an_answer_are_sent_again(c: TwoBrokers, script: list[str]) -> None:
    async def scenario() -> None:
        producer = begin(c)
        c.network.script = list(script)
        c.nodes[0].end(producer)
        await c.go(ended(c))
        assert len(c.network.sent) == len(script) + 1
        assert [node.stable for node in c.nodes] == [c.nodes[0].partition.log.log_end_offset, c.nodes[1].stable]
        log = c.nodes[1].partition.log
        assert log.last_stable_offset == log.log_end_offset == 2 + script.count("unanswered")

    run(scenario())


def test_a_marker_that_comes_late_ends_nothing_of_the_next_transaction(c: TwoBrokers) -> None:
    """Transactions version 2: each has an epoch of its own, and a marker has the one that the producer gets next."""

    async def scenario() -> None:
        node, other = c.nodes
        producer = node.producer()
        node.add(producer, P0, P1, v2=True)
        other.write(producer)
        other.turn()
        (answer,) = node.end(producer, v2=True)
        await c.go(ended(c))
        ((late,),) = c.network.sent
        for transaction in (1, 2):
            producer = ProducerIdAndEpoch(answer.producer_id, answer.epoch)
            node.add(producer, P1, v2=True)
            other.write(producer)
            other.turn()
            (answer,) = node.end(producer, v2=True)
            await c.go(lambda n=transaction: len(c.network.sent) == 1 + n and ended(c)())  # type: ignore[misc]
        assert isinstance(late, MarkerRequest)
        results: list[MarkerResult] = []
        other.markers.write(other.partition, late.marker, late.coordinator_epoch, results.append)
        other.turn()
        assert results == [InvalidProducerEpochError]

    run(scenario())


def test_what_is_refused_is_sent_again_until_it_is_written(c: TwoBrokers) -> None:
    async def scenario() -> None:
        producer = begin(c)
        c.nodes[1].disk.capacity_bytes = 0
        c.nodes[0].end(producer)
        await c.go(lambda: len(c.network.sent) > 3)
        assert (c.nodes[0].state, c.nodes[0].unfinished) == ("PrepareCommit", 1)
        assert c.nodes[1].stable == 0
        c.nodes[1].disk.capacity_bytes = None
        await c.go(ended(c))
        assert [node.stable for node in c.nodes] == [2, 2]

    run(scenario())


def test_a_late_answer_ends_it_late(c: TwoBrokers) -> None:
    async def scenario() -> None:
        producer = begin(c)
        c.network.script = ["late"]
        c.nodes[0].end(producer)
        await c.settle()
        assert (c.nodes[0].state, c.nodes[1].stable) == ("PrepareCommit", 2)
        c.network.release()
        await c.go(ended(c))

    run(scenario())


def test_a_marker_of_an_older_coordinator_is_refused_for_good(c: TwoBrokers) -> None:
    async def scenario() -> None:
        producer = begin(c)
        newer = EndMarker(producer.producer_id, producer.epoch, ABORT, coordinator_epoch=9)
        c.nodes[1].partition.log.append_control(newer, 0)
        c.nodes[0].end(producer)
        await c.settle()
        assert c.nodes[0].state == "PrepareCommit"
        assert len(c.network.sent) == 1
        assert [node.unfinished for node in c.nodes] == [0, 0], "nothing is held back for it"

    run(scenario())


def test_the_next_coordinator_ends_it_and_the_former_sends_nothing_more(c: TwoBrokers) -> None:
    async def scenario() -> None:
        node, other = c.nodes
        producer = begin(c)
        c.network.script = ["lost"] * 3
        node.end(producer)
        await c.go(lambda: len(c.network.sent) == 2)
        node.coordinator.journaled.unload(0)
        node.markers.abandon(producer.producer_id)
        c.network.script.clear()
        other.journal.batches[0] = list(node.journal.batches[0])
        other.journal.ends[0] = node.journal.ends[0]
        for each in c.nodes:
            each.journal_leaders[0] = 1
        sent = len(c.network.sent)
        other.load(0, leader_epoch=2)
        await c.settle()
        requests = [one for request in c.network.sent[sent:] for one in request]
        assert [(one.partition, one.coordinator_epoch) for one in requests if isinstance(one, MarkerRequest)] == [
            (P0, 2)
        ]
        log = node.partition.log
        assert log.producer(producer.producer_id).coordinator_epoch == 2  # type: ignore[union-attr]
        assert [each.stable for each in c.nodes] == [3, 2]

    run(scenario())


def test_a_marker_of_a_former_coordinator_that_comes_late_is_refused(c: TwoBrokers) -> None:
    async def scenario() -> None:
        other = c.nodes[1]
        producer = begin(c)
        marker = Marker(producer.producer_id, producer.epoch, committed=True)
        results: list[ErrorClass | None] = []
        for epoch in (2, 1):
            other.markers.write(other.partition, marker, epoch, results.append)
        other.turn()
        assert list(map(error_of, results)) == [None, TransactionCoordinatorFencedError]

    run(scenario())


def test_a_topic_that_is_deleted_meanwhile_needs_no_marker(c: TwoBrokers) -> None:
    async def scenario() -> None:
        producer = begin(c)
        c.network.script = ["lost"] * 100
        c.nodes[0].end(producer)
        await c.go(lambda: len(c.network.sent) == 2)
        topics = c.nodes[0].topics
        topics.remove(topics.topic("clicks"))
        await c.go(ended(c))

    run(scenario())


def test_a_partition_that_moves_here_meanwhile_is_marked_here(c: TwoBrokers) -> None:
    async def scenario() -> None:
        node, other = c.nodes
        producer = begin(c)
        c.network.script = ["lost"] * 100
        node.end(producer)
        await c.go(lambda: len(c.network.sent) == 2)
        topic = node.topics.topic("clicks")
        topic.replicas[1] = other.partition
        node.topics.apply(node.topics.image.with_topics({TOPIC_ID: (sole_replica(0, 0), sole_replica(0, 1))}))
        await c.go(ended(c))
        assert other.stable == 2

    run(scenario())


@pytest.mark.parametrize("comes_back", [False, True], ids=["another leads", "it comes back"])
def test_a_marker_waits_while_this_broker_is_the_leader_and_cannot_write_it(c: TwoBrokers, comes_back: bool) -> None:
    """The disk has failed, and the controller has yet to elect another leader, or a newer epoch is about to begin here."""

    async def scenario() -> None:
        node, other = c.nodes
        producer = begin(c)
        topic = node.topics.topic("clicks")
        partition = topic.replicas.pop(0)
        node.end(producer)
        await c.settle()
        assert (node.state, node.stable, other.stable) == ("PrepareCommit", 0, 2)
        if comes_back:
            topic.replicas[0] = partition
        else:
            other.topics.topic("clicks").replicas[0] = partition
            node.topics.apply(node.topics.image.with_topics({TOPIC_ID: (sole_replica(1, 1), sole_replica(1, 0))}))
        await c.go(ended(c))
        assert [each.stable for each in c.nodes] == [2, 2]

    run(scenario())


def test_a_fenced_producer_is_told_while_markers_are_missing(c: TwoBrokers) -> None:
    """The same id again: the next producer waits for the end of the transaction before it."""

    async def scenario() -> None:
        node = c.nodes[0]
        producer = begin(c)
        c.network.script = ["lost"] * 5
        node.end(producer)
        await c.go(ended(c))
        again = node.producer()
        assert again.epoch == producer.epoch + 1
        answers: list[ErrorClass | None] = []
        node.coordinator.add_partitions("app-0", producer, [P0], answers.append)
        assert answers[0] is not None
        assert node.coordinator.table.find("app-0") is None or answers == [ProducerFencedError]

    run(scenario())


class Others:
    """Another broker that refuses the markers of some partitions."""

    def __init__(self) -> None:
        self.refuses: dict[TopicPartition, ErrorClass] = {}
        self.requests: list[list[TopicPartition]] = []

    async def write_markers(self, broker_id: int, markers: Sequence[MarkerRequest]) -> Sequence[MarkerResult]:
        self.requests.append([each.partition for each in markers])
        await asyncio.sleep(0)
        return [self.refuses.get(each.partition) for each in markers]


class Sender:
    """`RemoteMarkers` alone. `leaders`: who leads what."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.others = Others()
        self.leaders: dict[TopicPartition, int] = {}
        self.here: list[TopicPartition] = []
        self.done: dict[TopicPartition, list[MarkerResult]] = {}
        self.markers = RemoteMarkers(0, self._leader, self.others, self.timers, self._write_here)  # type: ignore[arg-type]

    def _leader(self, partition: TopicPartition) -> int:
        if partition not in self.leaders:
            raise UnknownTopicOrPartitionError
        return self.leaders[partition]

    def _write_here(self, partition: TopicPartition, marker: Marker, epoch: int, done: Done) -> bool:
        self.here.append(partition)
        done(None)
        return True

    def write(self, *partitions: TopicPartition, producer_id: int = 7) -> None:
        for each in partitions:
            answers = self.done.setdefault(each, [])
            self.markers.write(each, Marker(producer_id, 0, committed=True), 1, answers.append)

    async def pass_ms(self, milliseconds: int) -> None:
        for _ in range(milliseconds):
            self.clock.advance(1)
            self.timers.ring()
            for _ in range(5):
                await asyncio.sleep(0)


A, B, C = ("clicks", 1), ("clicks", 2), ("views", 0)


@pytest.mark.exhaustive
def test_markers_of_one_turn_go_together_and_a_refused_one_holds_up_no_other() -> None:
    async def scenario() -> None:
        s = Sender()
        s.leaders = {A: 1, B: 1}
        s.others.refuses[A] = KafkaStorageError
        s.write(A, B)
        await s.pass_ms(1)
        assert s.others.requests == [[A, B]]
        assert s.done == {A: [], B: [None]}
        s.write(B, producer_id=8)
        await s.pass_ms(1)
        assert s.others.requests[1:] == [[B]]
        await s.pass_ms(5_000)
        pauses = [request for request in s.others.requests if request == [A]]
        assert 6 <= len(pauses) <= 12, "with increasing pauses"
        del s.others.refuses[A]
        await s.pass_ms(1_100)
        assert s.done[A] == [None]
        sent = len(s.others.requests)
        await s.pass_ms(5_000)
        assert len(s.others.requests) == sent

    run(scenario())


def test_a_marker_waits_for_a_leader_and_follows_it() -> None:
    async def scenario() -> None:
        s = Sender()
        s.leaders = {A: NO_LEADER, B: 1, C: NO_LEADER}
        s.others.refuses[B] = NotLeaderOrFollowerError
        s.write(A, B, C)
        await s.pass_ms(100)
        s.leaders = {A: 2, B: 0}
        await s.pass_ms(1_100)
        assert s.done == {A: [None], B: [None], C: [UnknownTopicOrPartitionError]}
        assert s.here == [B] and s.others.requests[-1] == [A]

    run(scenario())


def test_the_same_marker_asked_for_again_is_one() -> None:
    async def scenario() -> None:
        s = Sender()
        s.leaders = {A: NO_LEADER}
        s.write(A)
        s.write(A)
        s.leaders = {A: 1}
        await s.pass_ms(200)
        assert (s.others.requests, s.done) == ([[A]], {A: [None]})

    run(scenario())


def test_abandoned_markers_are_neither_sent_nor_answered() -> None:
    async def scenario() -> None:
        s = Sender()
        s.leaders = {A: 1, B: 1, C: 1}
        s.write(A)
        s.write(B, producer_id=8)
        s.write(C, producer_id=9)
        assert s.markers.abandon(7) == [A] and s.markers.abandon(7) == []
        await s.pass_ms(0)
        await until(lambda: bool(s.others.requests))
        s.markers.abandon(8)
        await s.pass_ms(50)
        assert s.others.requests == [[B, C]]
        assert s.done == {A: [], B: [], C: [None]}

    run(scenario())
