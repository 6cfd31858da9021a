"""Members of groups of both protocols as state machines: what they send after each event, and what they have the application do."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafkalake.client.consuming.assignors import ASSIGNORS, Assigned, Assignor, GroupMember, RebalanceProtocol
from kafkalake.client.consuming.classic_membership import ClassicMembership, State
from kafkalake.client.consuming.consumer_membership import LEAVE_EPOCH, ConsumerMembership
from kafkalake.client.consuming.membership import Change, GroupRequest, Identity, Membership
from kafkalake.client.consuming.settings import ConsumerSettings
from kafkalake.client.consuming.subscriptions import Subscriptions
from kafkalake.client.errors import AssignorError
from kafkalake.client.requests import CONSUMER_GROUP_HEARTBEAT, HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from kafkalake.client.settings import parse_settings
from kafkalake.errors import (
    ConnectionLostError,
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupAuthorizationError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    MemberIdRequiredError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedVersionError,
)
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafkalake.wire.messages.groups import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    HeartbeatResponse,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
    TopicPartitions,
)
from kafkalake.wire.messages.message import Message

T = uuid.UUID(int=7)
ALL = frozenset(("t", number) for number in range(4))


@dataclass
class Topics:
    """The topics of the cluster. `counts`: None while metadata is not there."""

    counts: dict[str, int] | None = field(default_factory=lambda: {"t": 4})
    ids: dict[uuid.UUID, str] = field(default_factory=lambda: {T: "t"})
    updates: int = 0

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int] | None:
        return self.counts

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return self.ids.get(topic_id)

    def topic_id(self, name: str) -> uuid.UUID | None:
        return next((found for found, known in self.ids.items() if known == name), None)

    def request_update(self) -> None:
        self.updates += 1


class Group:
    """One member, its application, and what it sends to a coordinator."""

    def __init__(
        self, protocol: str = "classic", assignors: tuple[str | Assignor, ...] = ("range",), **given: object
    ) -> None:
        self.settings = parse_settings(ConsumerSettings, {"group.id": "g", "group.protocol": protocol, **given})
        self.subscriptions = Subscriptions()
        self.subscriptions.subscribe(["t"])
        self.topics = Topics()
        self.now_ms = 1_000
        self.changes: list[Change] = []
        self.sent: list[GroupRequest] = []
        self.member: Membership
        if protocol == "classic":
            chosen = [ASSIGNORS[each] if isinstance(each, str) else each for each in assignors]
            self.member = ClassicMembership(self.settings, chosen, self.subscriptions, self.topics.partition_counts)
        else:
            self.member = ConsumerMembership(self.settings, "me", self.subscriptions, self.topics)

    def poll(self) -> Change | None:
        """Let the application poll, and carry out what is asked of it. Return that."""
        self.member.poll(self.now_ms)
        change = self.member.change
        if change is not None:
            self.subscriptions.revoke(change.revoked | change.lost)
            self.subscriptions.assign_by_group(change.assigned)
            self.member.changed(self.now_ms)
        return change

    def requests(self) -> list[Any]:
        """Return the APIs of what is sent now."""
        found = self.member.requests(self.now_ms)
        self.sent = found or self.sent
        return [each.api for each in found]

    def answer(self, response: Message) -> bool:
        """Answer the last request."""
        return self.member.take(self.sent[-1], response, self.now_ms)

    def join(self, generation: int = 1, leader: str = "other", assigned: Collection[TopicPartition] = ALL) -> None:
        """Go through a whole rebalance up to the application's part."""
        assert self.requests() == [JOIN_GROUP]
        self.answer(joined(generation, leader))
        assert self.requests() == [SYNC_GROUP]
        self.answer(synced(assigned))

    def assignment(self) -> set[TopicPartition]:
        return set(self.subscriptions.partitions)


def joined(generation: int = 1, leader: str = "other", **values: Any) -> JoinGroupResponse:
    data = encode_subscription(Subscription(("t",)))
    members = [JoinGroupResponseMember(member_id=each, metadata=data) for each in ("me", "other")]
    return JoinGroupResponse(
        generation_id=generation, leader=leader, member_id="me", protocol_name="range", members=members, **values
    )


def synced(partitions: Collection[TopicPartition]) -> SyncGroupResponse:
    return SyncGroupResponse(assignment=encode_assignment({"t": sorted(number for _, number in partitions)}))


def stable(**given: Any) -> Group:
    group = Group(**given)
    group.poll()
    group.join()
    change = group.poll()
    assert change is not None and change.added == ALL and change.is_complete
    assert group.member.is_stable and group.assignment() == ALL
    return group


def test_a_member_joins_once_the_application_polls_and_asks_again_with_its_id() -> None:
    group = Group()
    assert group.requests() == []
    assert group.poll() is None
    assert group.requests() == [JOIN_GROUP] and group.sent[0].message.member_id == ""  # type: ignore[attr-defined]
    assert group.requests() == []  # one at a time
    group.answer(JoinGroupResponse(error_code=MemberIdRequiredError.code, member_id="me"))
    assert group.requests() == [JOIN_GROUP] and group.sent[0].message.member_id == "me"  # type: ignore[attr-defined]


def test_the_leader_assigns_once_it_knows_the_topics_and_joins_again_when_they_grow() -> None:
    group = Group()
    group.topics.counts = None
    group.poll()
    group.requests()
    group.answer(joined(leader="me"))
    assert group.requests() == [] and group.member.topics_needed == {"t"}
    group.topics.counts = {"t": 3}
    assert group.requests() == [SYNC_GROUP]
    assignments = {each.member_id: each.assignment for each in group.sent[0].message.assignments}  # type: ignore[attr-defined]
    assert decode_assignment(assignments["me"]) == (("t", 0), ("t", 1))
    assert decode_assignment(assignments["other"]) == (("t", 2),)
    group.answer(synced([("t", 0), ("t", 1)]))
    group.poll()
    group.member.metadata_changed()
    assert group.member.is_stable
    group.topics.counts = {"t": 4}
    group.member.metadata_changed()
    assert not group.member.is_stable


class AllToLast:
    """An assignor of an application's own."""

    name = "all-to-last"
    rebalance_protocol: RebalanceProtocol = "eager"

    def encode_user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        return b"%d" % generation

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assigned:
        everything = [(topic, number) for topic, count in partitions.items() for number in range(count)]
        return {each: everything if each == max(members) else [] for each in members}


def test_an_assignor_of_ones_own_is_named_to_the_group_and_called_in_its_leader() -> None:
    group = Group(assignors=(AllToLast(), "range"))
    group.poll()
    group.requests()
    offered = group.sent[0].message.protocols  # type: ignore[attr-defined]
    assert [each.name for each in offered] == ["all-to-last", "range"]
    assert decode_subscription(offered[0].metadata).user_data == b"-1"
    response = joined(leader="me")
    response.protocol_name = "all-to-last"
    group.answer(response)
    assert group.requests() == [SYNC_GROUP]
    assignments = {each.member_id: each.assignment for each in group.sent[0].message.assignments}  # type: ignore[attr-defined]
    assert decode_assignment(assignments["other"]) == tuple(sorted(ALL))
    assert decode_assignment(assignments["me"]) == ()


class Failing(AllToLast):
    """Fails in one of its methods, or returns what is no assignment, for some times."""

    def __init__(self, kind: str, times: int) -> None:
        self.kind, self.times = kind, times

    def fails(self, kind: str) -> bool:
        is_now = kind == self.kind and self.times > 0
        self.times -= is_now
        return is_now

    def encode_user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        if self.fails("encode"):
            raise ZeroDivisionError("of the test")
        return super().encode_user_data(owned, generation)

    def assign(self, members: Mapping[str, GroupMember], partitions: Mapping[str, int]) -> Assigned:
        if self.fails("raise"):
            raise ZeroDivisionError("of the test")
        return [] if self.fails("return") else super().assign(members, partitions)  # type: ignore[return-value]


def lead(group: Group, generation: int = 1) -> list[Any]:
    """Let the member lead its group. Return the APIs of what it sends then."""
    assert group.requests() == [JOIN_GROUP]
    response = joined(generation, leader="me")
    response.protocol_name = "all-to-last"
    group.answer(response)
    return group.requests()


@pytest.mark.parametrize("kind", ["encode", "raise", "return"])
def test_an_assignor_that_fails_is_heard_of_in_poll_and_asked_again(kind: str) -> None:
    group = Group(assignors=(Failing(kind, 2),))
    group.poll()
    for _ in range(2):
        assert (group.requests() if kind == "encode" else lead(group)) == []
        assert group.requests() == []  # once for each poll
        with pytest.raises(AssignorError, match="all-to-last") as raised:
            group.poll()
        assert isinstance(raised.value.__cause__, AttributeError if kind == "return" else ZeroDivisionError)
        assert group.poll() is None and group.requests() == []
        group.now_ms += 100
    assert lead(group, 2) == [SYNC_GROUP]
    group.answer(synced(ALL))
    group.poll()
    assert group.member.is_stable and group.assignment() == ALL


def test_a_leader_whose_assignor_fails_stays_a_member_until_its_application_polls() -> None:
    group = Group(assignors=(Failing("raise", 2),))
    group.poll()
    assert lead(group) == []
    for _ in range(3):
        group.now_ms += 3_000
        assert group.requests() == [HEARTBEAT]
        group.answer(HeartbeatResponse())
    group.now_ms += 3_000
    assert group.requests() == [HEARTBEAT]
    group.answer(HeartbeatResponse(error_code=RebalanceInProgressError.code))
    assert group.sent[-1].message.member_id == "me"  # type: ignore[attr-defined]
    assert lead(group, 2) == []  # the next rebalance asks the assignor, too
    with pytest.raises(AssignorError):
        group.poll()
    group.now_ms += 100
    assert lead(group, 3) == [SYNC_GROUP]


def test_a_leader_whose_assignor_fails_can_leave() -> None:
    group = Group(assignors=(Failing("raise", 1),))
    group.poll()
    assert lead(group) == []
    leaving = group.member.leave(group.now_ms)
    assert leaving is not None and leaving.api is LEAVE_GROUP
    assert group.poll() is None and lead(group) == [SYNC_GROUP]


def test_a_leader_that_is_told_to_skip_the_assignment_sends_none() -> None:
    group = Group(**{"group.instance.id": "i"})
    group.poll()
    group.requests()
    group.answer(joined(leader="me", skip_assignment=True))
    assert group.requests() == [SYNC_GROUP] and group.sent[0].message.assignments == []  # type: ignore[attr-defined]


def test_an_eager_member_gives_everything_up_before_it_joins_again() -> None:
    group = stable()
    group.now_ms += 3_000
    assert group.requests() == [HEARTBEAT]
    group.answer(HeartbeatResponse(error_code=RebalanceInProgressError.code))
    assert not group.member.is_stable and group.requests() == []  # the application has to poll first
    change = group.poll()
    assert change is not None and change.revoked == ALL and group.assignment() == set()
    group.join(2, assigned=[("t", 1)])
    change = group.poll()
    assert change is not None and change.added == {("t", 1)} and not change.revoked


def test_a_cooperative_member_gives_up_what_goes_to_others_and_joins_again() -> None:
    group = stable(assignors=("cooperative-sticky",))
    group.member.commit_refused(RebalanceInProgressError.code)
    assert group.poll() is None and group.assignment() == ALL
    group.join(2, assigned=[("t", 0), ("t", 1)])
    change = group.poll()
    assert change is not None and change.revoked == {("t", 2), ("t", 3)} and group.assignment() == change.assigned
    group.poll()
    group.join(3, assigned=[("t", 0), ("t", 1)])
    change = group.poll()
    assert change is not None and not change.revoked and not change.added and group.member.is_stable


@pytest.mark.parametrize("error", [UnknownMemberIdError, IllegalGenerationError])
def test_a_member_that_is_no_more_has_lost_its_partitions(error: type[UnknownMemberIdError]) -> None:
    group = stable()
    for generation in (2, 3):  # once, and again
        group.now_ms += 3_000
        assert group.requests() == [HEARTBEAT]
        group.answer(HeartbeatResponse(error_code=error.code))
        change = group.poll()
        assert change is not None and change.lost == ALL and not change.revoked
        group.join(generation)
        assert group.sent[-1].message.member_id == "me"  # type: ignore[attr-defined]
        group.poll()
        assert group.assignment() == ALL


@pytest.mark.parametrize("end", ["is refused", "does not poll"])
def test_a_member_that_is_no_more_commits_as_the_one_that_it_was(end: str) -> None:
    """Without a member and a generation the commit would count in an empty group, and in every transaction."""
    group = stable()
    assert group.member.identity == Identity("me", 1)
    if end == "is refused":
        group.now_ms += 3_000
        assert group.requests() == [HEARTBEAT]
        group.answer(HeartbeatResponse(error_code=UnknownMemberIdError.code))
    else:
        group.now_ms += 300_000
        assert LEAVE_GROUP in group.requests()
    assert group.member.identity == Identity("me", 1)
    group.member.commit_refused(UnknownMemberIdError.code)
    change = group.poll()
    assert change is not None and change.lost == ALL
    assert group.member.identity == Identity("me", 1)
    assert group.requests() == [JOIN_GROUP]
    group.member.commit_refused(UnknownMemberIdError.code)  # of the commit before
    assert group.sent[0].message.member_id == ""  # type: ignore[attr-defined]
    group.answer(joined(2))
    assert group.requests() == [SYNC_GROUP]
    group.answer(synced(ALL))
    group.poll()
    assert group.member.identity == Identity("me", 2) and group.assignment() == ALL
    group.member.leave(group.now_ms)
    assert group.member.identity == Identity()


def test_an_interrupted_join_is_repeated() -> None:
    group = Group()
    group.poll()
    group.requests()
    group.member.failed(group.sent[0], ConnectionLostError("cut"), group.now_ms)
    assert group.requests() == []
    group.now_ms += 100
    assert group.requests() == [JOIN_GROUP]
    group.answer(JoinGroupResponse(error_code=CoordinatorLoadInProgressError.code))
    group.now_ms += 100
    assert group.requests() == [JOIN_GROUP]
    assert not group.answer(JoinGroupResponse(error_code=NotCoordinatorError.code))
    assert group.requests() == [JOIN_GROUP]
    group.answer(joined())
    assert group.requests() == [SYNC_GROUP]
    group.answer(SyncGroupResponse(error_code=RebalanceInProgressError.code))
    group.join(2)


def test_heartbeats_come_in_their_interval_and_a_lost_one_is_repeated() -> None:
    group = stable()
    assert group.requests() == [] and group.member.next_deadline_ms(group.now_ms) == group.now_ms + 3_000
    group.now_ms += 3_000
    assert group.requests() == [HEARTBEAT] and group.requests() == []
    group.member.failed(group.sent[-1], ConnectionLostError("cut"), group.now_ms)
    group.now_ms += 3_000
    assert group.requests() == [HEARTBEAT]
    assert not group.member.is_silent(group.now_ms)
    assert group.member.is_silent(group.now_ms + 45_000)
    group.answer(HeartbeatResponse())
    assert not group.member.is_silent(group.now_ms + 44_000)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_an_application_that_does_not_poll_loses_its_partitions_and_comes_back(protocol: str) -> None:
    group = stable() if protocol == "classic" else stable_of_consumer_protocol()
    for _ in range(120):
        group.now_ms += 2_500
        found = group.requests()
        if LEAVE_GROUP in found or getattr(group.sent[-1].message, "member_epoch", 0) < 0:
            break
        if found:
            group.answer(HeartbeatResponse() if protocol == "classic" else beaten(1))
    else:
        pytest.fail("it stays")
    assert group.sent[0].api in (LEAVE_GROUP, CONSUMER_GROUP_HEARTBEAT)
    change = group.poll()
    assert change is not None and change.lost == ALL and group.assignment() == set()
    group.poll()
    assert group.requests()[-1] in (JOIN_GROUP, CONSUMER_GROUP_HEARTBEAT)


@pytest.mark.parametrize("error", [FencedInstanceIdError, GroupMaxSizeReachedError])
def test_what_cannot_be_repaired_is_raised_in_poll(error: type[FencedInstanceIdError]) -> None:
    group = stable()
    group.now_ms += 3_000
    group.requests()
    group.answer(HeartbeatResponse(error_code=error.code))
    with pytest.raises(error):
        group.poll()
    assert group.requests() == []
    assert not group.member.has_place


def test_a_join_that_was_refused_is_raised_once_and_tried_again() -> None:
    group = Group()
    group.poll()
    for response in (JoinGroupResponse, SyncGroupResponse, JoinGroupResponse):
        assert group.requests() == [JOIN_GROUP]
        if response is SyncGroupResponse:
            group.answer(joined())
            assert group.requests() == [SYNC_GROUP]
        group.answer(response(error_code=GroupAuthorizationError.code))
        assert group.requests() == []
        with pytest.raises(GroupAuthorizationError):
            group.poll()
        assert group.requests() == [], "there is a pause"
        assert group.member.next_deadline_ms(group.now_ms) == group.now_ms + group.settings.retry_backoff_ms
        group.now_ms += group.settings.retry_backoff_ms
        group.poll()
    group.join()
    group.poll()
    assert group.assignment() == ALL and group.member.has_place


def test_a_heartbeat_that_was_refused_is_raised_once_and_the_next_one_tells() -> None:
    group = stable()
    group.now_ms += 3_000
    group.requests()
    group.answer(HeartbeatResponse(error_code=GroupAuthorizationError.code))
    with pytest.raises(GroupAuthorizationError):
        group.poll()
    assert not group.member.has_place
    group.now_ms += 3_000
    assert group.poll() is None and group.requests() == [HEARTBEAT]
    group.answer(HeartbeatResponse())
    assert group.member.has_place and group.assignment() == ALL


def test_a_member_that_joins_again_has_no_place_until_it_is_assigned_what_it_kept() -> None:
    group = stable(assignors=("cooperative-sticky",))
    group.member.subscription_changed()
    assert group.member.has_place, "nobody has its partitions before it has joined again"
    group.poll()
    assert group.requests() == [JOIN_GROUP] and group.assignment() == ALL
    assert not group.member.has_place
    group.answer(joined(2))
    assert group.requests() == [SYNC_GROUP]
    assert not group.member.has_place
    group.answer(synced(ALL))
    assert group.member.has_place


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_an_assignment_of_topics_that_are_not_subscribed_to_any_more_is_not_taken(assignor: str) -> None:
    group = stable(assignors=(assignor,))
    group.member.subscription_changed()
    kept = group.assignment() if group.poll() is None else set()
    assert group.requests() == [JOIN_GROUP]
    group.answer(joined(2))
    assert group.requests() == [SYNC_GROUP]
    group.subscriptions.subscribe(["u"])
    group.member.subscription_changed()
    group.answer(synced(ALL))
    assert group.member.change is None and group.assignment() == kept
    change = group.poll()
    assert (set() if change is None else change.revoked) == kept and group.assignment() == set()
    assert group.requests() == [JOIN_GROUP]
    assert decode_subscription(group.sent[0].message.protocols[0].metadata).topics == ("u",)  # type: ignore[attr-defined]


def test_an_assigned_topic_that_the_pattern_matches_need_not_be_known_yet() -> None:
    group = Group()
    group.subscriptions.unsubscribe()
    group.subscriptions.subscribe_pattern("[a-z]")
    group.poll()
    group.join()
    group.poll()
    assert group.assignment() == ALL


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_nothing_is_due_of_a_member_that_was_refused(protocol: str) -> None:
    group = Group(protocol)
    group.poll()
    (api,) = group.requests()
    refused = JoinGroupResponse if api is JOIN_GROUP else ConsumerGroupHeartbeatResponse
    group.answer(refused(error_code=GroupMaxSizeReachedError.code))
    assert group.requests() == []
    assert group.member.next_deadline_ms(group.now_ms) is None, "an event loop would turn without a pause"


def test_the_answer_to_a_join_of_a_membership_that_was_left_counts_for_nothing() -> None:
    group = Group(**{"group.instance.id": "i"})
    group.poll()
    assert group.requests() == [JOIN_GROUP]
    (joining,) = group.sent
    group.member.leave(group.now_ms)
    group.subscriptions.unsubscribe()
    group.subscriptions.subscribe(["u"])
    group.member.subscription_changed()
    group.poll()
    assert group.requests() == [JOIN_GROUP]
    group.member.take(joining, joined(1), group.now_ms)
    group.member.failed(joining, ConnectionLostError("late"), group.now_ms)
    assert group.requests() == []
    group.answer(joined(2))
    assert group.requests() == [SYNC_GROUP]
    assert group.sent[0].message.generation_id == 2  # type: ignore[attr-defined]


def test_a_member_that_leaves_as_the_leader_needs_no_topics_of_others() -> None:
    group = Group()
    group.topics.counts = None
    group.poll()
    group.requests()
    group.answer(joined(leader="me"))
    assert group.member.topics_needed == {"t"}
    group.member.leave(group.now_ms)
    assert group.member.topics_needed == frozenset()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_is_no_more_has_no_place(protocol: str) -> None:
    group = stable() if protocol == "classic" else stable_of_consumer_protocol()
    assert group.member.has_place
    group.member.commit_refused(UnknownMemberIdError.code)
    assert not group.member.has_place


def test_a_static_member_leaves_nothing_behind_but_its_place() -> None:
    assert stable(**{"group.instance.id": "i"}).member.leave(2_000) is None
    leaving = stable().member.leave(2_000)
    assert leaving is not None and leaving.api is LEAVE_GROUP


# The consumer protocol


def beaten(epoch: int, *numbers: int, topic: uuid.UUID = T) -> ConsumerGroupHeartbeatResponse:
    assigned = Assignment(topic_partitions=[TopicPartitions(topic_id=topic, partitions=numbers)]) if numbers else None
    return ConsumerGroupHeartbeatResponse(
        member_id="me", member_epoch=epoch, heartbeat_interval=5_000, assignment=assigned
    )


def stable_of_consumer_protocol() -> Group:
    group = Group("consumer")
    assert group.requests() == []
    group.poll()
    assert group.requests() == [CONSUMER_GROUP_HEARTBEAT]
    first: Any = group.sent[0].message
    assert (first.member_epoch, first.subscribed_topic_names, first.topic_partitions) == (0, ["t"], [])
    group.answer(beaten(1, 0, 1, 2, 3))
    change = group.poll()
    assert change is not None and change.added == ALL
    assert group.requests() == [CONSUMER_GROUP_HEARTBEAT]  # says so at once
    said: Any = group.sent[0].message
    assert (said.member_epoch, said.subscribed_topic_names) == (1, None)
    assert [each.partitions for each in said.topic_partitions] == [[0, 1, 2, 3]]
    group.answer(beaten(1))
    assert group.member.is_stable and group.requests() == []
    return group


def test_a_member_gives_up_what_is_not_in_its_target_and_says_so() -> None:
    group = stable_of_consumer_protocol()
    group.now_ms += 5_000
    assert group.requests() == [CONSUMER_GROUP_HEARTBEAT]
    said: Any = group.sent[0].message
    assert said.topic_partitions is None  # nothing has changed
    group.answer(beaten(1, 0, 1))
    assert not group.member.is_stable
    change = group.poll()
    assert change is not None and change.revoked == {("t", 2), ("t", 3)} and change.assigned == {("t", 0), ("t", 1)}
    assert group.requests() == [CONSUMER_GROUP_HEARTBEAT]
    said = group.sent[0].message
    assert [each.partitions for each in said.topic_partitions] == [[0, 1]]


def test_a_fenced_member_has_lost_its_partitions_and_joins_with_everything() -> None:
    group = stable_of_consumer_protocol()
    for _ in range(2):  # once, and again
        group.now_ms += 5_000
        group.requests()
        group.answer(ConsumerGroupHeartbeatResponse(error_code=FencedMemberEpochError.code))
        assert group.requests() == []
        change = group.poll()
        assert change is not None and change.lost == ALL
        group.poll()
        assert group.requests() == [CONSUMER_GROUP_HEARTBEAT]
        said: Any = group.sent[0].message
        assert (said.member_epoch, said.subscribed_topic_names, said.topic_partitions) == (0, ["t"], [])
        group.answer(beaten(3, 0, 1, 2, 3))
        group.poll()
        group.requests()
        group.answer(beaten(3))
        assert group.assignment() == ALL


@pytest.mark.parametrize("interval_ms", [0, -1])
def test_an_interval_that_is_none_leaves_the_one_before(interval_ms: int) -> None:
    group = stable_of_consumer_protocol()
    group.now_ms += 5_000
    assert group.requests() == [CONSUMER_GROUP_HEARTBEAT]
    group.answer(ConsumerGroupHeartbeatResponse(member_id="me", member_epoch=1, heartbeat_interval=interval_ms))
    assert group.requests() == [] and group.member.next_deadline_ms(group.now_ms) == group.now_ms + 5_000


def test_after_a_lost_response_all_fields_are_sent_again() -> None:
    group = stable_of_consumer_protocol()
    group.now_ms += 5_000
    group.requests()
    group.member.failed(group.sent[0], ConnectionLostError("cut"), group.now_ms)
    assert group.requests() == []
    group.now_ms += 100
    assert group.requests() == [CONSUMER_GROUP_HEARTBEAT]
    said: Any = group.sent[0].message
    assert said.subscribed_topic_names == ["t"] and [each.partitions for each in said.topic_partitions] == [
        [0, 1, 2, 3]
    ]
    assert not group.answer(ConsumerGroupHeartbeatResponse(error_code=NotCoordinatorError.code))


def test_metadata_that_lacks_a_topic_for_a_while_takes_no_partitions_from_a_member() -> None:
    group = stable_of_consumer_protocol()
    group.topics.ids.clear()
    for target in ([0, 1, 2, 3], [0, 1]):
        group.now_ms += 5_000
        assert group.requests() == [CONSUMER_GROUP_HEARTBEAT]
        said: Any = group.sent[0].message
        assert said.topic_partitions is None, "it has given up nothing"
        assert group.assignment() == ALL
        group.answer(beaten(1, *target))
    change = group.poll()
    assert change is not None and change.revoked == {("t", 2), ("t", 3)} and change.assigned == {("t", 0), ("t", 1)}
    assert group.requests() == [CONSUMER_GROUP_HEARTBEAT]
    said = group.sent[0].message
    assert [(each.topic_id, each.partitions) for each in said.topic_partitions] == [(T, [0, 1])]
    group.answer(beaten(1))
    assert group.poll() is None and group.member.is_stable
    group.topics.ids[T] = "t"
    assert group.poll() is None and group.requests() == []


def test_a_topic_that_is_not_known_yet_is_assigned_once_it_is() -> None:
    group = Group("consumer")
    group.poll()
    group.requests()
    unknown = uuid.UUID(int=9)
    group.answer(beaten(1, 0, topic=unknown))
    assert group.poll() is None and group.topics.updates == 1 and not group.member.is_stable
    group.topics.ids[unknown] = "u"
    change = group.poll()
    assert change is not None and change.added == {("u", 0)}


def test_another_member_of_the_same_instance_is_raised_in_poll() -> None:
    group = Group("consumer", **{"group.instance.id": "i"})
    group.poll()
    group.requests()
    group.answer(ConsumerGroupHeartbeatResponse(error_code=UnreleasedInstanceIdError.code))
    with pytest.raises(UnreleasedInstanceIdError):
        group.poll()
    leaving = stable_of_consumer_protocol().member.leave(2_000)
    assert leaving is not None and leaving.message.member_epoch == -1  # type: ignore[attr-defined]


def test_a_member_that_leaves_while_it_joins_says_so_and_what_is_answered_later_counts_for_nothing() -> None:
    group = Group("consumer")
    group.poll()
    assert group.requests() == [CONSUMER_GROUP_HEARTBEAT]
    (joining,) = group.sent
    leaving = group.member.leave(group.now_ms)
    assert leaving is not None and leaving.message.member_epoch == LEAVE_EPOCH  # type: ignore[attr-defined]
    group.poll()
    assert group.requests() == [CONSUMER_GROUP_HEARTBEAT]
    group.member.take(joining, beaten(3, 0, 1), group.now_ms)
    group.member.take(leaving, beaten(LEAVE_EPOCH), group.now_ms)
    group.member.failed(joining, ConnectionLostError("late"), group.now_ms)
    assert group.poll() is None and group.requests() == []
    group.answer(beaten(5, 2))
    change = group.poll()
    assert change is not None and change.assigned == {("t", 2)}


@pytest.mark.parametrize(
    ("protocol", "error"), [("classic", FencedInstanceIdError), ("consumer", GroupMaxSizeReachedError)]
)
def test_a_member_that_was_refused_joins_again_once_it_has_left(
    protocol: str, error: type[FencedInstanceIdError]
) -> None:
    group = Group(protocol)
    for _ in range(2):
        group.poll()
        (api,) = group.requests()
        refused = JoinGroupResponse if api is JOIN_GROUP else ConsumerGroupHeartbeatResponse
        group.answer(refused(error_code=error.code))
        for _ in range(2):
            with pytest.raises(error):
                group.poll()
        assert group.requests() == []
        group.member.leave(group.now_ms)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_broker_without_the_protocol_is_said_in_poll(protocol: str) -> None:
    group = Group(protocol)
    group.poll()
    group.requests()
    group.member.failed(group.sent[0], UnsupportedVersionError("version 0 is needed"), group.now_ms)
    with pytest.raises(UnsupportedVersionError):
        group.poll()


def test_a_member_that_gives_up_and_is_lost_meanwhile_goes_on() -> None:
    """The coordinator forgets the member while the application's listener runs."""
    group = stable()
    group.member.subscription_changed()
    group.member.poll(group.now_ms)
    change = group.member.change
    assert change is not None and change.revoked == ALL
    group.member.commit_refused(UnknownMemberIdError.code)
    group.subscriptions.revoke(change.revoked)
    group.member.changed(group.now_ms)
    group.poll()
    group.join(5)
    group.poll()
    assert isinstance(group.member, ClassicMembership) and group.member.state is State.STABLE
