"""The calls of a consumer with a simulated coordinator: what they send, how long they take, what the application may raise."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

import pytest
from client.consuming.test_consumer_core import P0, P1, World
from manual_clock import ManualClock

from kafkalake.client.consuming.calls import ConsumerCalls
from kafkalake.client.consuming.listeners import RebalanceListener
from kafkalake.client.consuming.script import Call, Script
from kafkalake.client.errors import CommitFailedError, IllegalStateError, WakeupError
from kafkalake.client.records import OffsetAndMetadata
from kafkalake.client.requests import CONSUMER_GROUP_HEARTBEAT, FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH
from kafkalake.errors import (
    CoordinatorLoadInProgressError,
    InvalidCommitOffsetSizeError,
    NetworkExceptionError,
    RequestTimedOutError,
    UnknownMemberIdError,
)
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    FindCoordinatorResponse,
    TopicPartitions,
)
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.offsets import (
    OffsetCommitResponse,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    PartitionResult,
    TopicResult,
)
from kafkalake.wire.messages.reading import ELEMENTS_MAX

T = TypeVar("T")
STEP_MS = 10
ASIDE = ("t", 9)
"""In place of a partition that an answer lacks."""


class GroupWorld(World):
    """A consumer whose group is coordinated by broker 1, which assigns `target`, and answers while `answers`.

    falls_silent: the next commit is not answered, and nothing after it.
    lacking: how many answers about offsets lack the partitions that were asked for. left: how often the consumer has left.
    refusals: the errors of the next commits.
    """

    def __init__(self, **given: object) -> None:
        super().__init__(**{"group.id": "g", "group.protocol": "consumer", **given})
        self.know_ids()
        self.target = [0, 1]
        self.answers, self.falls_silent, self.lacking, self.left = True, False, 0, 0
        self.refusals: list[int] = []
        self.committed: dict[TopicPartition, int] = {}
        self.commits: list[tuple[int, dict[TopicPartition, int]]] = []
        self.clock = ManualClock(self.network.now_ms)
        self.calls = ConsumerCalls(self.core, self.settings, self.clock, (None, None), ())
        for broker in self.brokers:
            broker.handlers |= {
                FIND_COORDINATOR: lambda request: FindCoordinatorResponse(node_id=1),
                CONSUMER_GROUP_HEARTBEAT: self._beat,
                OFFSET_COMMIT: self._commit,
                OFFSET_FETCH: self._fetch_offsets,
            }

    def run(self, script: Script[T], steps: int = 10_000) -> T:
        """Return what a call returns."""
        try:
            step = next(script)
            for _ in range(steps):
                if isinstance(step, Call):
                    try:
                        answer = step.call()
                    except Exception as error:
                        step = script.throw(error)
                    else:
                        step = script.send(answer)
                else:
                    self.pass_time()
                    step = script.send(None)
        except StopIteration as stop:
            found: T = stop.value
            return found
        raise AssertionError("the call does not end")

    def pass_time(self) -> None:
        self.network.run(STEP_MS)
        self.clock.advance(STEP_MS)

    def join(self, listener: RebalanceListener | None = None) -> None:
        self.core.subscriptions.subscribe(["t"])
        self.calls.listen(listener)
        while not self.core.subscriptions.positions():
            self.run(self.calls.poll(100, 0))

    def _beat(self, request: Any) -> Message | None:
        if not self.answers:
            return None
        if request.member_epoch < 0:
            self.left += 1
            return ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch, heartbeat_interval=100)
        target = [TopicPartitions(topic_id=self.topics.ids["t"], partitions=self.target)]
        assignment = Assignment(topic_partitions=target)
        return ConsumerGroupHeartbeatResponse(member_epoch=5, heartbeat_interval=100, assignment=assignment)

    def _names(self, topics: Any, numbers: Callable[[Any], Collection[int]]) -> list[TopicPartition]:
        if self.lacking:
            self.lacking -= 1
            return [ASIDE]
        return [(topic.name, number) for topic in topics for number in numbers(topic)]

    def _commit(self, request: Any) -> Message | None:
        offsets = {
            (topic.name, each.partition_index): each.committed_offset
            for topic in request.topics
            for each in topic.partitions
        }
        self.commits.append((self.network.now_ms, offsets))
        self.answers = self.answers and not self.falls_silent
        if not self.answers:
            return None
        names = self._names(request.topics, lambda topic: [each.partition_index for each in topic.partitions])
        code = self.refusals.pop(0) if self.refusals else 0
        results = [PartitionResult(partition_index=number, error_code=code) for _, number in names]
        return OffsetCommitResponse(topics=[TopicResult(name="t", partitions=results)])

    def _fetch_offsets(self, request: Any) -> Message | None:
        if not self.answers:
            return None
        names = self._names(request.topics, lambda topic: topic.partition_indexes)
        results = [
            OffsetFetchResponsePartition(partition_index=number, committed_offset=self.committed.get(("t", number), -1))
            for _, number in names
        ]
        return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=results)])


@pytest.fixture
def world() -> GroupWorld:
    return GroupWorld()


def test_calls_end_in_their_time_although_the_coordinator_does_not_answer(world: GroupWorld) -> None:
    world.assign()
    world.run(world.calls.commit({P0: 1}, 30_000))
    world.answers = False
    for call in (world.calls.commit({P0: 2}, 1_000), world.calls.committed([P0], 1_000)):
        began_ms = world.clock.monotonic_ms()
        with pytest.raises(RequestTimedOutError):
            world.run(call)
        assert world.clock.monotonic_ms() <= began_ms + 1_000 + STEP_MS
    world.answers = True
    world.end_waits()
    world.run(world.calls.commit({P0: 3}, 30_000))
    assert [offsets for _, offsets in world.commits] == [{P0: 1}, {P0: 2}, {P0: 3}]


def test_an_answer_that_lacks_a_partition_is_no_commit(world: GroupWorld) -> None:
    world.assign()
    world.run(world.calls.poll(1_000, 1))
    world.lacking = 2
    world.run(world.calls.commit({P0: 1, P1: 2}, 30_000))
    assert len(world.commits) == 3
    errors: list[Any] = []
    world.lacking = 1
    world.calls.commit_async({P0: 2}, lambda offsets, error: errors.append(error))
    for _ in range(100):
        world.pass_time()
    world.run(world.calls.poll(0, 1))
    assert [type(each) for each in errors] == [NetworkExceptionError]


def test_a_commit_of_very_many_partitions_goes_in_several_requests_before_those_of_a_later_one(
    world: GroupWorld,
) -> None:
    """A broker writes a request as one batch of its journal, and refuses one that is too large."""
    world.assign()
    world.run(world.calls.poll(1_000, 1))
    many = {("t", number): 7 for number in range(2_500)}
    errors: list[Any] = []
    world.calls.commit_async(many, lambda offsets, error: errors.append(error))
    world.run(world.calls.commit({P0: 8}, 30_000))
    *parts, (_, last) = world.commits
    assert [len(offsets) for _, offsets in parts] == [1_000, 1_000, 500]
    assert {place: offset for _, offsets in parts for place, offset in offsets.items()} == many
    assert last == {P0: 8}
    assert errors == [None]


def test_one_request_that_is_refused_ends_a_commit_of_several(world: GroupWorld) -> None:
    world.assign()
    many = {("t", number): 7 for number in range(2_500)}
    world.refusals = [CoordinatorLoadInProgressError.code, 0, CoordinatorLoadInProgressError.code]
    world.run(world.calls.commit(many, 30_000))
    assert [len(offsets) for _, offsets in world.commits] == [1_000, 1_000, 500, 1_000, 500]
    world.refusals = [0, InvalidCommitOffsetSizeError.code, InvalidCommitOffsetSizeError.code]
    with pytest.raises(InvalidCommitOffsetSizeError):
        world.run(world.calls.commit(many, 30_000))
    world.run(world.calls.commit({P0: 8}, 30_000))
    assert world.commits[-1][1] == {P0: 8}
    script = world.calls.commit(many, 30_000)
    next(script)
    world.answers = False
    script.close()
    world.run(world.calls.close(0))


@pytest.mark.exhaustive
def test_offsets_of_more_partitions_than_a_request_may_name_are_found(world: GroupWorld) -> None:
    many = {("t", number): number for number in range(ELEMENTS_MAX + 1)}
    world.committed |= many
    del world.committed["t", 5]
    found = world.run(world.calls.committed(list(many), 30_000))
    assert {place: committed and committed.offset for place, committed in found.items()} == many | {("t", 5): None}


def test_an_answer_that_lacks_a_partition_does_not_say_that_nothing_is_committed(world: GroupWorld) -> None:
    world.logs[P0].batches_max = 10
    world.logs[P0].append(b"a")
    world.logs[P0].append(b"b")
    world.committed[P0] = 1
    world.lacking = 2
    world.assign(P0)
    found = world.run(world.calls.poll(5_000, 10))
    assert [record.value for record in found] == [b"b"]
    world.lacking = 2
    assert world.run(world.calls.committed([P0], 30_000)) == {P0: OffsetAndMetadata(1)}


@pytest.mark.parametrize("when", ["before it is sent", "in flight", "refused"])
def test_a_commit_that_was_left_is_not_repeated_behind_a_later_one(world: GroupWorld, when: str) -> None:
    world.assign()
    world.run(world.calls.poll(1_000, 1))
    world.refusals = [CoordinatorLoadInProgressError.code]
    script = world.calls.commit({P0: 1}, 30_000)
    next(script)
    if when == "in flight":
        world.network.hold_answers()
    while when != "before it is sent" and not world.commits:
        world.network.run(1)
    script.close()
    if when == "in flight":
        world.network.deliver()
    world.run(world.calls.commit({P0: 2}, 30_000))
    for _ in range(100):
        world.pass_time()
    sent = [offsets[P0] for _, offsets in world.commits]
    assert sent == ([2, 2] if when == "before it is sent" else [1, 2])


@pytest.mark.exhaustive
def test_offsets_are_committed_by_polls_in_their_interval() -> None:
    world = GroupWorld(**{"auto.commit.interval.ms": 5_000})
    world.logs[P0].append(b"a")
    world.join()
    began_ms = world.clock.monotonic_ms()
    while world.clock.monotonic_ms() < began_ms + 12_000:
        world.run(world.calls.poll(100, 10))
    for _ in range(1_000):
        world.pass_time()  # nobody polls
    times = [at_ms - began_ms for at_ms, _ in world.commits]
    assert len(times) == 2 and times[1] - times[0] == pytest.approx(5_000, abs=200), times
    assert world.commits[-1][1] == {P0: 1, P1: 0}


def test_a_consumer_that_reads_nothing_is_told_of_a_topic() -> None:
    world = GroupWorld()
    assert len(world.run(world.calls.partitions_for("t", 1_000))) == 2
    for _ in range(2):
        assert world.run(world.calls.topics(1_000)).keys() == {"t"}


def test_polls_that_do_not_wait_do_the_work_of_the_network() -> None:
    world = GroupWorld()
    world.logs[P0].append(b"a")
    world.logs[P0].append(b"b")
    world.assign(P0)
    found = [record.value for _ in range(50) for record in world.run(world.calls.poll(0, 1))]
    world.logs[P0].append(b"c")
    world.end_waits()
    batches = [batch for _ in range(50) for batch in world.run(world.calls.poll_arrow(0, 1))]
    assert (found, [batch.column("value").to_pylist() for batch in batches]) == ([b"a", b"b"], [[b"c"]])


def test_a_wakeup_is_heard_of_while_offsets_are_committed_before_partitions_are_revoked(world: GroupWorld) -> None:
    world.join()
    world.falls_silent = True
    world.target = [0]
    seen = len(world.commits)
    script = world.calls.poll(60_000, 10)
    next(script)
    while len(world.commits) == seen:
        world.pass_time()
        script.send(None)
    with pytest.raises(WakeupError):
        script.throw(WakeupError("wakeup was called"))
    world.answers, world.falls_silent = True, False
    world.end_waits()
    while world.core.subscriptions.partitions.keys() != {P0}:
        world.run(world.calls.poll(100, 10))


class Failing(RebalanceListener):
    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        raise ZeroDivisionError("of the test")


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_a_consumer_leaves_its_group_although_its_listener_fails(world: GroupWorld, end: str) -> None:
    world.join(Failing())
    with pytest.raises(ZeroDivisionError):
        world.run(world.calls.close(5_000) if end == "close" else world.calls.unsubscribe())
    assert world.left == 1
    assert not world.core.subscriptions.partitions
    assert bool(world.core.subscriptions.topics) == (end == "close")


class Heard(RebalanceListener):
    """What a listener hears of partitions that are given up."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("revoked", list(partitions)))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("lost", list(partitions)))


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
@pytest.mark.parametrize("kind", ["revoked", "lost"])
def test_what_a_member_that_was_fenced_gives_up_at_its_end_is_lost(world: GroupWorld, kind: str, end: str) -> None:
    listener = Heard()
    world.join(listener)
    if kind == "lost":
        world.refusals = [UnknownMemberIdError.code]
        with pytest.raises(CommitFailedError):
            world.run(world.calls.commit({P0: 1}, 30_000))
    world.run(world.calls.close(5_000) if end == "close" else world.calls.unsubscribe())
    assert listener.heard == [(kind, [P0, P1])]


def test_a_committed_offset_that_is_none_is_none(world: GroupWorld) -> None:
    world.committed = {P0: -5, P1: 0}
    world.join()
    assert world.run(world.calls.committed([P0, P1], 1_000)) == {P0: None, P1: OffsetAndMetadata(0)}


def test_a_consumer_leaves_its_group_although_callbacks_of_commits_fail(world: GroupWorld) -> None:
    world.join()
    called: list[int] = []

    def fail(number: int) -> None:
        called.append(number)
        raise ZeroDivisionError(f"{number} of the test")

    world.run(world.calls.poll(0, 1))
    for number in (1, 2):
        world.calls.commit_async({P0: number}, lambda offsets, error, number=number: fail(number))
    with pytest.raises(ZeroDivisionError, match="1 of the test"):
        world.run(world.calls.close(5_000))
    assert called == [1, 2] and world.left == 1


def test_a_close_without_time_says_that_the_member_leaves_and_does_not_wait_for_the_answer(world: GroupWorld) -> None:
    world.join()
    world.answers = False
    began_ms = world.clock.monotonic_ms()
    world.run(world.calls.close(0))
    assert world.clock.monotonic_ms() - began_ms <= 2 * STEP_MS
    requests = [each for broker in world.brokers for each in broker.requests]
    assert any(isinstance(each, ConsumerGroupHeartbeatRequest) and each.member_epoch < 0 for each in requests)


@pytest.mark.parametrize("offsets", [{P0: 2}, {}])
@pytest.mark.parametrize("refused", [False, True])
def test_a_commit_comes_back_after_the_callbacks_of_earlier_ones(
    world: GroupWorld, offsets: dict[TopicPartition, int], refused: bool
) -> None:
    world.join()
    called: list[object] = []
    world.refusals = [0, InvalidCommitOffsetSizeError.code] if refused else []
    world.calls.commit_async({P0: 1}, lambda offsets, error: called.append(error))
    script = world.calls.commit(offsets, 30_000)
    if refused and offsets:
        with pytest.raises(InvalidCommitOffsetSizeError):
            world.run(script)
    else:
        world.run(script)
    assert called == [None]


def test_a_listener_that_fails_is_called_again_before_records_come(world: GroupWorld) -> None:
    world.logs[P0].append(b"a")
    calls: list[set[TopicPartition]] = []

    class FailsOnce(RebalanceListener):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            calls.append(set(partitions))
            if len(calls) == 1:
                raise ZeroDivisionError("of the test")

    with pytest.raises(ZeroDivisionError):
        world.join(FailsOnce())
    found: list[Any] = []
    while not found:
        found = world.run(world.calls.poll(100, 10))
    assert calls == [{P0, P1}, {P0, P1}] and [record.value for record in found] == [b"a"]


class Recursive(RebalanceListener):
    """Makes a call, whatever it hears."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.call = call
        self.calls: list[str] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append("assigned")
        self.call()

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append("revoked")
        self.call()


@pytest.mark.parametrize("again", ["poll", "poll_arrow"])
def test_a_poll_in_what_a_poll_calls_is_refused(world: GroupWorld, again: str) -> None:
    world.logs[P0].append(b"a")
    poll_again = world.calls.poll if again == "poll" else world.calls.poll_arrow
    listener = Recursive(lambda: world.run(poll_again(100, 10)))
    for _ in range(2):
        with pytest.raises(
            IllegalStateError, match="a rebalance listener or callback that poll calls cannot call poll"
        ):
            world.join(listener)
    listener.call = lambda: None
    world.join(listener)
    assert listener.calls == ["assigned"] * 3
    world.calls.commit_async(None, lambda offsets, error: world.run(poll_again(100, 10)))
    with pytest.raises(IllegalStateError, match="that poll calls cannot call poll"):
        while True:
            world.run(world.calls.poll(100, 0))
    found: list[Any] = []
    while not found:
        found = world.run(world.calls.poll(100, 10))
    assert [record.value for record in found] == [b"a"]


@pytest.mark.parametrize("when", ["assigned", "revoked"])
def test_a_listener_may_unsubscribe(world: GroupWorld, when: str) -> None:
    listener = Recursive(lambda: when in listener.calls and world.run(world.calls.unsubscribe()))
    if when == "revoked":
        world.join(listener)
        world.target = [0]
    else:
        world.core.subscriptions.subscribe(["t"])
        world.calls.listen(listener)
    while world.core.subscriptions.topics:
        world.run(world.calls.poll(100, 10))
    world.run(world.calls.poll(100, 10))
    assert world.left == 1 and not world.core.subscriptions.partitions
    assert listener.calls == ["assigned", "revoked", *["revoked"] * (when == "revoked")]


def test_fetches_ask_for_what_the_settings_say() -> None:
    world = World(
        **{"fetch.min.bytes": 7, "fetch.max.wait.ms": 70, "fetch.max.bytes": 7_000, "max.partition.fetch.bytes": 700}
    )
    world.assign(P0)
    world.read(500)
    _, asked = world.fetches[0]
    assert (asked.min_bytes, asked.max_wait, asked.max_bytes) == (7, 70, 7_000)
    ((partition,),) = [topic.partitions for topic in asked.topics]
    assert partition.partition_max_bytes == 700
