"""A whole consumer over a simulated network: what is fetched, from whom, and where reading goes on after what may happen."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pytest
from manual_clock import ManualClock
from record_batches import simple_batch
from simulated_network import SimulatedBroker, SimulatedNetwork, SimulatedTopics

from kafkalake.client.consuming.calls import ConsumerCalls
from kafkalake.client.consuming.core import ConsumerCore
from kafkalake.client.consuming.records import DeserializedRecord
from kafkalake.client.consuming.script import Call
from kafkalake.client.consuming.settings import ConsumerSettings
from kafkalake.client.consuming.subscriptions import Step
from kafkalake.client.errors import LogTruncationError, NoOffsetForPartitionError
from kafkalake.client.records import OffsetAndMetadata
from kafkalake.client.requests import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, ClientApi
from kafkalake.client.settings import parse_settings
from kafkalake.errors import (
    CorruptMessageError,
    FetchSessionIdNotFoundError,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
    UnknownTopicIdError,
)
from kafkalake.record import layout as at
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.records import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
    PartitionData,
)
from kafkalake.wire.record_batch import encode_batch

P0, P1 = ("t", 0), ("t", 1)
FETCH_ANY = FETCH._replace(highest=17)


def encoded(first: int, values: Sequence[bytes], epoch: int = 0, **producer: Any) -> bytes:
    """A batch at its place in a log."""
    batch = simple_batch(values, **producer)
    header = batch.header.copy()
    header[at.BASE_OFFSET], header[at.LEADER_EPOCH] = first, epoch
    offsets = np.frombuffer(batch.body, np.int64, len(values)).copy() + first
    body = offsets.tobytes() + bytes(batch.body[len(values) * 8 :])
    return encode_batch(type(batch)(np.frombuffer(body, np.uint8), batch.layout, header))


@dataclass
class Log:
    """The log of a partition: batches by first offset."""

    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    start: int = 0
    error: int = 0
    aborted: list[tuple[int, int]] = field(default_factory=list)
    epoch_ends: dict[int, int] = field(default_factory=dict)
    replica: int = -1
    batches_max: int = 1

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else self.start

    def append(self, *values: bytes, epoch: int = 0, **producer: Any) -> None:
        first = self.end
        self.batches.append((first, first + len(values), encoded(first, values, epoch, **producer)))

    def read(self, offset: int) -> tuple[int, bytes]:
        """(error, bytes) from an offset on: up to `batches_max` batches."""
        if self.error:
            return self.error, b""
        if not self.start <= offset <= self.end:
            return OffsetOutOfRangeError.code, b""
        return 0, b"".join([data for _, end, data in self.batches if offset < end][: self.batches_max])


class World:
    """Two brokers, the topic t with a partition led by each, and a consumer that is assigned both."""

    def __init__(self, **given: object) -> None:
        self.brokers = [SimulatedBroker(1), SimulatedBroker(2)]
        self.topics = SimulatedTopics(self.brokers, {"t": [1, 2]})
        self.logs = {P0: Log(), P1: Log()}
        self.fetches: list[tuple[int, Any]] = []
        self.session_error = 0
        for broker in self.brokers:
            broker.handlers[FETCH] = lambda request, node=broker.node_id: self.fetch(node, request)
            broker.handlers[LIST_OFFSETS] = self.list_offsets
            broker.handlers[OFFSET_FOR_LEADER_EPOCH] = self.epoch_ends
        self.sessions: dict[int, dict[tuple[str, int], int]] = {}
        self.settings = parse_settings(
            ConsumerSettings, {"bootstrap.servers": "b1:9092", "auto.offset.reset": "earliest", **given}
        )
        self.core = ConsumerCore(self.settings, [], "me", Random(1))
        self.network = SimulatedNetwork(self.core, self.brokers)

    def fetch_by_id(self, node: int, request: Any) -> FetchResponse | None:
        """The same for a broker that knows topics by id: of another id it knows nothing."""
        self.fetches.append((node, request))
        topic_id = self.topics.ids["t"]
        asked = [(topic.topic_id, each) for topic in request.topics for each in topic.partitions]
        parts = [
            self.part(node, each.partition, each.fetch_offset)
            if each_id == topic_id
            else PartitionData(partition_index=each.partition, error_code=UnknownTopicIdError.code)
            for each_id, each in asked
        ]
        found = [part for part in parts if part is not None]
        if not found:
            return None
        return FetchResponse(
            session_id=node, responses=[FetchableTopicResponse(topic_id=asked[0][0], partitions=found)]
        )

    def know_ids(self) -> None:
        """Have the brokers know topics by id."""
        self.topics.ids["t"] = uuid.UUID(int=1)
        for broker in self.brokers:
            del broker.handlers[FETCH]
            broker.handlers[FETCH_ANY] = lambda request, node=broker.node_id: self.fetch_by_id(node, request)

    def fetch(self, node: int, request: Any) -> FetchResponse | None:
        self.fetches.append((node, request))
        if self.session_error:
            code, self.session_error = self.session_error, 0
            return FetchResponse(error_code=code)
        session = self.sessions.setdefault(node, {})
        if request.session_epoch <= 0:
            session.clear()
        named = {
            (topic.topic, each.partition): each.fetch_offset for topic in request.topics for each in topic.partitions
        }
        session.update(named)
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                session.pop((topic.topic, number), None)
        parts = [
            data for (_, number), offset in session.items() if (data := self.part(node, number, offset)) is not None
        ]
        if not parts:
            return None  # waits for records, for longer than the test
        return FetchResponse(session_id=node, responses=[FetchableTopicResponse(topic="t", partitions=parts)])

    def part(self, node: int, number: int, offset: int) -> PartitionData | None:
        log = self.logs["t", number]
        leader = self.topics.leaders["t"][number]
        error, data = log.read(offset) if node in (leader, log.replica) else (NotLeaderOrFollowerError.code, b"")
        redirect = log.replica if node == leader and log.replica >= 0 else -1
        if not error and not data and redirect < 0:
            return None
        return PartitionData(
            partition_index=number,
            error_code=error,
            high_watermark=log.end,
            last_stable_offset=log.end,
            log_start_offset=log.start,
            records=None if redirect >= 0 else data,
            preferred_read_replica=redirect,
            aborted_transactions=[AbortedTransaction(producer_id=p, first_offset=o) for p, o in log.aborted],
        )

    def list_offsets(self, request: Any) -> ListOffsetsResponse:
        found = [
            ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                offset=self.logs["t", each.partition_index].start
                if each.timestamp == -2
                else self.logs["t", each.partition_index].end,
            )
            for topic in request.topics
            for each in topic.partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=found)])

    def epoch_ends(self, request: Any) -> OffsetForLeaderEpochResponse:
        found = [
            OffsetForLeaderEpochEndOffset(
                partition=each.partition,
                leader_epoch=each.leader_epoch,
                end_offset=self.logs["t", each.partition].epoch_ends.get(each.leader_epoch, -1),
            )
            for topic in request.topics
            for each in topic.partitions
        ]
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=found)])

    def end_waits(self) -> None:
        """End the requests that wait for records."""
        for broker in self.brokers:
            self.network.cut(broker)

    def assign(self, *partitions: tuple[str, int]) -> None:
        self.core.assign(partitions or (P0, P1), self.network.now_ms)

    def poll(self, calls: ConsumerCalls, clock: ManualClock, limit: int = 1_000) -> list[DeserializedRecord]:
        """What a poll of a second returns."""
        script = calls.poll(1_000, limit)
        try:
            while True:
                step = next(script)
                if isinstance(step, Call):
                    step.call()
                    continue
                self.network.run(10)
                clock.advance(10)
        except StopIteration as stop:
            found: list[DeserializedRecord] = stop.value
            return found

    def read(self, milliseconds: int = 3_000, limit: int = 1_000) -> list[bytes]:
        """The values of all records that come in some time, as an application that polls again and again."""
        found: list[bytes] = []
        for _ in range(milliseconds // 50):
            self.network.run(50)
            self.core.begin_poll(self.network.now_ms)
            while records := self.core.fetcher.take_records(limit):
                found += [record.value or b"" for record in records]
        return found


def test_records_of_all_partitions_come_in_order_and_positions_follow() -> None:
    world = World()
    world.logs[P0].append(b"a", b"b")
    world.logs[P0].append(b"c")
    world.logs[P1].append(b"x")
    world.assign()
    found = world.read()
    assert sorted(found) == [b"a", b"b", b"c", b"x"] and [each for each in found if each < b"x"] == [b"a", b"b", b"c"]
    assert {each: at.offset for each, at in world.core.positions().items()} == {P0: 3, P1: 1}
    world.logs[P0].append(b"d")
    world.network.run(40_000)  # the request that waits for records ends in a timeout, and the next has them
    assert world.read() == [b"d"]


def test_metrics_show_totals_rates_latencies_and_lag() -> None:
    world = World()
    world.logs[P0].append(b"a", b"b", b"c")
    world.assign(P0)
    assert len(world.read(limit=2)) == 3
    world.core.count_records(3)
    shown = world.core.metrics()
    assert shown["records-consumed-total"] == 3 and shown["records-consumed-rate"] > 0
    assert shown["bytes-consumed-total"] == shown["bytes-fetched-total"] > 0
    assert shown["fetch-latency-max"] >= shown["fetch-latency-avg"] >= 0
    assert (shown["records-lag-max"], shown["assigned-partitions"]) == (0, 1)
    world.core.subscriptions.seek(P0, 1)
    assert world.core.metrics()["records-lag-max"] == 2


def test_what_comes_next_is_fetched_while_records_are_held_and_a_paused_partition_is_not() -> None:
    world = World()
    for number in range(6):
        world.logs[P0].append(b"%d" % number)
    world.assign(P0)
    world.core.begin_poll(0)
    world.network.run(1_000)
    asked = [each.fetch_offset for _, request in world.fetches for topic in request.topics for each in topic.partitions]
    assert asked == [0, 1]  # two responses ahead
    assert [record.value for record in world.core.fetcher.take_records(10)] == [b"0"]
    world.core.subscriptions.pause([P0])
    world.network.run(1_000)
    assert len(world.fetches) == 2 and not world.core.fetcher.has_records
    world.core.subscriptions.resume([P0])
    assert world.read() == [b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_response_may_have_several_batches(limit: int) -> None:
    world = World()
    world.logs[P0].batches_max = 3
    values = [b"%d" % number for number in range(14)]
    for first in range(0, 14, 2):
        world.logs[P0].append(*values[first : first + 2])
    world.assign(P0)
    assert world.read(limit=limit) == values
    world.core.subscriptions.seek(P0, 3)
    world.end_waits()
    world.network.run(500)
    arrow = []
    while len(arrow) < 11:
        world.network.run(50)
        world.core.begin_poll(world.network.now_ms)
        while (batch := world.core.fetcher.take_arrow()) is not None:
            arrow += list(zip(batch.column("offset").to_pylist(), batch.column("value").to_pylist(), strict=True))
    assert arrow == list(enumerate(values))[3:]


class Interceptor:
    """Marks values. It may fail."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark

    def on_consume(self, records: Sequence[DeserializedRecord]) -> Sequence[DeserializedRecord]:
        if not self.mark:
            raise ValueError("no mark")
        return [record._replace(value=record.value + self.mark) for record in records]

    def on_commit(self, offsets: object) -> None:
        raise ValueError("not asked for")


def test_an_interceptor_that_raises_is_skipped_each_time_and_polls_that_have_records_ask_for_more() -> None:
    world, clock = World(), ManualClock(1_000)
    for value in (b"a", b"b", b"c", b"d"):
        world.logs[P0].append(value, value)
    world.assign(P0)
    interceptors = [Interceptor(b"1"), Interceptor(b""), Interceptor(b"2")]
    calls = ConsumerCalls(world.core, world.settings, clock, (None, None), interceptors)
    found = [world.poll(calls, clock, 1) for _ in range(8)]
    values = [b"a", b"a", b"b", b"b", b"c", b"c", b"d", b"d"]
    assert [[record.value for record in each] for each in found] == [[value + b"12"] for value in values]
    assert len(world.fetches) == 5  # one of them waits


def test_what_was_fetched_is_dropped_after_a_seek_and_records_before_the_position_are_cut() -> None:
    world = World()
    world.logs[P0].append(b"a", b"b", b"c", b"d")
    world.assign(P0)
    assert world.read() == [b"a", b"b", b"c", b"d"]
    world.core.subscriptions.seek(P0, 2)
    world.network.run(500)
    world.core.subscriptions.seek(P0, 1)
    world.end_waits()
    assert world.read(limit=1) == [b"b", b"c", b"d"]
    world.end_waits()
    world.network.hold_answers()
    world.core.subscriptions.seek(P0, 0)
    world.network.run(100)
    world.core.subscriptions.seek(P0, 3)  # while the response for 0 is under way
    world.network.deliver()
    assert world.read() == [b"d"]


def seek(world: World) -> None:
    world.core.subscriptions.seek(P0, 1)


def move_leader(world: World) -> None:
    world.logs[P0].epoch_ends = {0: 100}
    world.topics.move("t", 0, 2)
    world.core.metadata.request_update()


def assign_anew(world: World) -> None:
    world.assign(P1)
    world.assign(P0)
    world.core.subscriptions.seek(P0, 1)


@pytest.mark.parametrize("move", [seek, move_leader, assign_anew])
def test_reading_goes_on_although_all_that_was_fetched_ahead_is_dropped(move: Callable[[World], None]) -> None:
    world, clock = World(), ManualClock(1_000)
    world.logs[P0].append(b"a")
    world.logs[P0].append(b"b")
    world.logs[P0].append(b"c")
    world.assign(P0)
    calls = ConsumerCalls(world.core, world.settings, clock, (None, None), ())
    assert [record.value for record in world.poll(calls, clock, 1)] == [b"a"]
    world.network.run(1_000)
    assert world.core.fetcher.metrics()["bytes-held"] > 0
    move(world)
    world.network.run(1_000)
    found = [record.value for _ in range(4) for record in world.poll(calls, clock)]
    assert found == [b"b", b"c"]
    assert world.core.fetcher.metrics()["bytes-held"] == 0


@pytest.mark.parametrize("most", [0, 100])
def test_records_of_paused_partitions_do_not_hold_up_those_of_others(most: int) -> None:
    world, clock = World(**{"fetch.max.bytes": most}), ManualClock(1_000)
    for number in range(4):
        world.logs[P0].append(b"%d" % number)
    world.assign()
    calls = ConsumerCalls(world.core, world.settings, clock, (None, None), ())
    assert [record.value for record in world.poll(calls, clock, 1)] == [b"0"]
    world.network.run(1_000)
    asked, held = len(world.fetches), world.core.fetcher.metrics()["bytes-held"]
    assert held >= most
    world.core.subscriptions.pause([P0, P1])
    assert world.poll(calls, clock) == []
    assert (len(world.fetches), world.core.fetcher.metrics()["bytes-held"]) == (asked, held)  # kept for the resumption
    world.core.subscriptions.resume([P1])
    world.logs[P1].append(b"x")
    world.end_waits()
    assert [record.value for record in world.poll(calls, clock)] == [b"x"]
    world.core.subscriptions.resume([P0])
    world.end_waits()
    assert [record.value for _ in range(4) for record in world.poll(calls, clock)] == [b"1", b"2", b"3"]


def test_an_offset_that_is_not_in_the_log_is_reset_or_raised() -> None:
    world = World()
    world.logs[P0].append(b"a")
    world.assign(P0)
    world.core.subscriptions.seek(P0, 9)
    assert world.read() == [b"a"]
    strict = World(**{"auto.offset.reset": "none"})
    strict.assign(P0)
    with pytest.raises(NoOffsetForPartitionError):
        strict.read()
    strict.core.subscriptions.seek(P0, 9)
    with pytest.raises(OffsetOutOfRangeError):
        strict.read()
    strict.core.subscriptions.seek(P0, 0)
    strict.logs[P0].append(b"a")
    assert strict.read() == [b"a"]  # it goes on


def test_a_refusal_is_raised_once_however_often_it_came_and_not_after_a_seek() -> None:
    world = World(**{"auto.offset.reset": "none"})
    world.logs[P0].append(b"a")
    world.assign(P0)
    world.core.subscriptions.seek(P0, 9)
    world.network.run(60_000)  # the application is at work
    with pytest.raises(OffsetOutOfRangeError):
        world.core.fetcher.take_records(1)
    assert not world.core.fetcher.has_records, "there was one for each request"
    world.network.run(5_000)
    world.core.subscriptions.seek(P0, 0)
    assert world.read() == [b"a"], "an error of the position before"


def test_what_is_refused_of_partitions_that_are_given_up_is_not_raised() -> None:
    world = World()
    world.logs[P0].error = TopicAuthorizationError.code
    world.logs[P1].append(b"b")
    world.assign()
    world.network.run(5_000)
    world.assign(P1)
    assert world.read() == [b"b"]


def test_positions_of_partitions_that_are_being_revoked_are_not_due() -> None:
    world = World()
    world.topics.leaders["t"][0] = -1
    world.assign(P0)
    world.network.run(5_000)
    assert world.core.subscriptions.partitions[P0].step is Step.RESET
    lookups = world.core._lookups
    assert lookups.next_deadline_ms() is not None
    world.core.subscriptions.mark_revoking([P0])
    assert lookups.next_deadline_ms() is None, "it is asked for no more: an event loop would turn without a pause"


def test_errors_about_partitions_that_were_not_asked_for_count_for_nothing() -> None:
    world = World()
    world.logs[P0].append(b"a")
    list_offsets = world.list_offsets

    def with_another(request: Any) -> ListOffsetsResponse:
        another = ListOffsetsPartitionResponse(partition_index=7, error_code=TopicAuthorizationError.code)
        return ListOffsetsResponse(
            topics=[*list_offsets(request).topics, ListOffsetsTopicResponse(name="t", partitions=[another])]
        )

    for broker in world.brokers:
        broker.handlers[LIST_OFFSETS] = with_another
    world.assign(P0)
    assert world.read() == [b"a"]


def test_a_leader_that_moves_is_followed_and_a_cut_connection_survived_again_and_again() -> None:
    world = World()
    world.logs[P0].append(b"a")
    world.assign(P0)
    assert world.read() == [b"a"]
    for number, leader in enumerate((2, 1, 2)):
        world.topics.move("t", 0, leader)
        world.logs[P0].epoch_ends = {0: 100}
        world.logs[P0].append(b"%d" % number)
        for broker in world.brokers:
            world.network.cut(broker)
        assert world.read() == [b"%d" % number]
    world.brokers[1].is_up = False
    world.network.cut(world.brokers[1])
    assert world.read() == []
    world.logs[P0].append(b"z")
    world.brokers[1].is_up = True
    assert world.read(5_000) == [b"z"]


def truncate(world: World, *, ends: dict[int, int]) -> None:
    """Have the other broker lead the partition from epoch 1 on, with a log that lacks the record at offset 2."""
    world.logs[P0] = Log(epoch_ends=ends)
    world.logs[P0].append(b"a", b"b")
    world.logs[P0].append(b"C", epoch=1)
    world.topics.move("t", 0, 2)
    world.core.metadata.request_update()


@pytest.mark.parametrize(
    ("reset", "ends", "divergent", "found"),
    [
        ("earliest", {0: 2}, None, [b"C"]),
        ("latest", {0: 2}, None, [b"C"]),
        ("earliest", {}, None, [b"a", b"b", b"C"]),
        ("none", {0: 2}, OffsetAndMetadata(2, 0), [b"C"]),
        ("none", {}, None, [b"C"]),
    ],
)
def test_a_truncation_is_found_when_the_leader_is_another_one(
    reset: str, ends: dict[int, int], divergent: OffsetAndMetadata | None, found: list[bytes]
) -> None:
    """The log knows where the position's epoch ends, or has nothing of it; by Kafka's rules."""
    world = World(**{"auto.offset.reset": reset})
    world.logs[P0].batches_max = 10
    world.assign(P0)
    world.core.subscriptions.seek(P0, 0)
    world.logs[P0].append(b"a", b"b", b"c")
    assert world.read() == [b"a", b"b", b"c"]
    truncate(world, ends=ends)
    if reset == "none":
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError) as raised:
                world.read(2_000)
            assert isinstance(raised.value, LogTruncationError)
            assert (raised.value.partition, raised.value.position) == (P0, 3)
            assert raised.value.divergent_offset == divergent
        world.core.subscriptions.seek(P0, 2)
    assert world.read(2_000) == found


def test_a_committed_offset_is_checked_by_no_leader_older_than_it() -> None:
    """As a broker that does not know of its successor, whose log ends before the offset."""
    world = World(**{"auto.offset.reset": "none"})
    world.logs[P0].append(b"a")
    world.assign(P0)
    world.core.subscriptions.seek(P0, 2, epoch=1)
    assert world.read(3_000) == []
    truncate(world, ends={1: 3})
    assert world.read(3_000) == [b"C"]


def test_the_check_by_a_leader_that_is_replaced_meanwhile_counts_for_nothing() -> None:
    world = World(**{"auto.offset.reset": "none"})
    world.assign(P0)
    world.core.subscriptions.seek(P0, 0)
    world.logs[P0].append(b"a", b"b", b"c")
    assert world.read() == [b"a", b"b", b"c"]
    subscriptions = world.core.subscriptions
    subscriptions.follow_leader(P0, None, 1)
    asked = subscriptions.partitions[P0].version
    subscriptions.follow_leader(P0, None, 2)
    assert subscriptions.validated(P0, asked, (0, 3)) is None
    assert list(subscriptions.waiting(Step.VALIDATION, world.network.now_ms)) == [P0]


def test_a_replica_that_the_leader_names_is_fetched_from_until_it_fails() -> None:
    world = World()
    world.logs[P0].replica = 2
    world.logs[P0].append(b"a")
    world.assign(P0)
    assert world.read() == [b"a"] and world.fetches[-1][0] == 2
    world.brokers[1].is_up = False
    world.network.cut(world.brokers[1])
    world.logs[P0].replica = -1
    world.logs[P0].append(b"b")
    assert world.read() == [b"b"] and world.fetches[-1][0] == 1


def test_the_leader_is_asked_again_once_the_lease_of_a_replica_is_over() -> None:
    world = World(metadata_max_age_ms=10_000)
    world.logs[P0].replica = 2
    for value in (b"a", b"b", b"c"):
        world.logs[P0].append(value)
    world.assign(P0)
    world.network.run(9_000)
    assert [node for node, _ in world.fetches] == [1, 2, 2]  # two responses are held, and no more are asked for
    world.network.run(2_000)
    assert world.read(1_000) == [b"a", b"b", b"c"]
    assert [node for node, _ in world.fetches[3:]] == [1, 2, 2]


def test_topics_are_fetched_by_id_and_one_made_again_is_read_from_its_start() -> None:
    world = World()
    world.know_ids()
    world.logs[P0].append(b"a", b"b")
    world.assign(P0)
    assert world.read() == [b"a", b"b"]
    assert all(topic.topic_id == uuid.UUID(int=1) and not topic.topic for topic in world.fetches[0][1].topics)
    assert world.fetches[-1][1].session_epoch > 0
    world.topics.ids["t"] = uuid.UUID(int=2)
    world.logs[P0].batches.clear()
    world.logs[P0].append(b"A", b"B", b"C")
    world.end_waits()
    assert world.read() == [b"A", b"B", b"C"]
    named = [topic.topic_id for _, request in world.fetches[-2:] for topic in request.topics]
    assert set(named) == {uuid.UUID(int=2)}


def test_a_session_names_what_is_new_and_begins_anew_when_the_broker_has_forgotten_it() -> None:
    world = World()
    world.topics.leaders["t"] = [1, 1]
    world.logs[P0].append(b"a")
    world.assign()
    world.read()
    later = world.fetches[-1][1]
    assert later.session_id == 1 and later.session_epoch > 0
    assert [each.partition for topic in later.topics for each in topic.partitions] == [0]  # the other is as before
    world.session_error = FetchSessionIdNotFoundError.code
    world.logs[P1].append(b"b")
    world.network.cut(world.brokers[0])
    assert world.read() == [b"b"]


def test_aborted_transactions_are_left_out_if_the_consumer_wants_it() -> None:
    for level, expected in (("read_committed", [b"b"]), ("read_uncommitted", [b"a", b"b"])):
        world = World(**{"isolation.level": level})
        world.logs[P0].batches_max = 3
        world.logs[P0].append(b"a", producer_id=5, epoch=0, sequence=0, transactional=True)
        world.logs[P0].append(b"b", producer_id=6, epoch=0, sequence=0, transactional=True)
        world.logs[P0].aborted = [(5, 0)]
        world.assign(P0)
        assert world.read() == expected
        assert world.core.positions()[P0].offset == 2


def test_corrupt_bytes_and_refusals_are_raised_and_reading_goes_on() -> None:
    world = World()
    world.logs[P0].append(b"a")
    world.logs[P0].append(b"b")
    first, end, data = world.logs[P0].batches[1]
    world.logs[P0].batches[1] = first, end, data[:-1] + bytes([data[-1] ^ 1])
    world.assign(P0)
    found: list[bytes] = []
    for _ in range(2):  # the position stays at the invalid batch
        with pytest.raises(CorruptMessageError, match="partition t-0, from offset 1 on"):
            found += world.read()
    world.logs[P0].batches[1] = first, end, data
    world.end_waits()
    assert world.read() == [b"b"]
    world.logs[P0].error = TopicAuthorizationError.code
    world.core.subscriptions.seek(P0, 0)
    world.end_waits()
    with pytest.raises(KafkaError):
        world.read()
    world.logs[P0].error = 0
    assert world.read() == [b"a", b"b"]


def test_a_topic_made_again_is_read_from_where_a_new_one_is() -> None:
    world = World()
    world.logs[P0].append(b"a", b"b")
    world.assign(P0)
    world.core.subscriptions.seek(P0, 1)
    assert world.read() == [b"b"]
    state = world.core.subscriptions.partitions[P0]
    world.core.subscriptions.follow_leader(P0, uuid.UUID(int=1), 0)
    world.core.subscriptions.follow_leader(P0, uuid.UUID(int=2), 0)
    assert state.position is None
    assert world.read() == [b"a", b"b"]


def test_partitions_and_topics_that_do_not_exist_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.logs[P0].append(b"a")
    world.assign(P0, ("t", 7), ("typo", 0))
    assert world.read() == [b"a"]
    world.network.run(20_000)
    assert sorted(record.message for record in caplog.records) == [
        "partition t-7 does not exist: topic 't' has 2 partitions, numbered from 0",
        "topic 'typo': unknown topic or partition",
    ]


def test_fetches_that_are_refused_as_a_whole_are_repeated_after_a_pause() -> None:
    world = World()
    world.logs[P0].append(b"a")
    refused: list[int] = []

    def refuse(request: object) -> FetchResponse:
        refused.append(world.network.now_ms)
        return FetchResponse(error_code=KafkaStorageError.code)

    handlers = [broker.handlers[FETCH] for broker in world.brokers]
    for broker in world.brokers:
        broker.handlers[FETCH] = refuse
    world.assign(P0)
    assert world.read(2_000) == []
    assert 2 <= len(refused) <= 21
    for broker, handler in zip(world.brokers, handlers, strict=True):
        broker.handlers[FETCH] = handler
    assert world.read(2_000) == [b"a"]


@pytest.mark.parametrize("step", [LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH])
def test_positions_that_an_answer_lacks_are_asked_for_again_after_a_pause(step: ClientApi[Any, Any]) -> None:
    world = World()
    world.logs[P0].append(b"a")
    world.logs[P0].epoch_ends = {0: 1}
    lacking: list[int] = []
    handler = world.brokers[0].handlers[step]

    def lack(request: object) -> Message:
        lacking.append(world.network.now_ms)
        return step.response(topics=[])  # type: ignore[no-any-return]

    world.brokers[0].handlers[step] = lack
    world.assign(P0)
    if step is OFFSET_FOR_LEADER_EPOCH:
        world.core.subscriptions.seek(P0, 0, 0)
    assert world.read(2_000) == []
    assert 2 <= len(lacking) <= 21
    world.brokers[0].handlers[step] = handler
    assert world.read(2_000) == [b"a"]
