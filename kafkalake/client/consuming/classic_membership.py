"""A member of a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup as a pure state machine.

    UNJOINED, STABLE --(the application polls, and a join is due)--> PREPARING: partitions are given up
    PREPARING --(the application has done so)--> JOINING --> SYNCING --> ASSIGNING --(again the application)--> STABLE
    JOINING, SYNCING --(it is refused, or an assignor raises)--> FAILED --(the application polls, which raises it)--> JOINING

With the eager protocol PREPARING gives up all partitions; with the cooperative one (KIP-429) only what ASSIGNING shows to go to
others, and then the member joins again. A member whose id or generation is refused has lost its partitions. Until it has joined
again it commits as the member that it was, and is refused. Source: KIP-62, KIP-345, KIP-394, KIP-429; Kafka protocol guide.

A little more than 400 lines: each state has its requests, their answers and errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from kafkalake.client.consuming.assignors import Assignor
from kafkalake.client.consuming.classic_requests import (
    heartbeat_request,
    join_request,
    leave_request,
    members_of,
    sync_request,
)
from kafkalake.client.consuming.membership import COORDINATOR_MOVED, Change, GroupRequest, Identity, PartitionCounts
from kafkalake.client.consuming.settings import ConsumerSettings
from kafkalake.client.consuming.subscriptions import Subscriptions
from kafkalake.client.errors import AssignorError
from kafkalake.client.requests import JOIN_GROUP, SYNC_GROUP, error_name
from kafkalake.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaLakeError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnsupportedVersionError,
    as_value,
    error_for_code,
)
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.consumer_protocol import NO_GENERATION, decode_assignment
from kafkalake.wire.messages.groups import HeartbeatResponse, JoinGroupResponse, SyncGroupResponse
from kafkalake.wire.messages.message import Message

logger = logging.getLogger(__name__)


class State(Enum):
    """See the module."""

    UNJOINED = "unjoined"
    PREPARING = "preparing"
    JOINING = "joining"
    SYNCING = "syncing"
    ASSIGNING = "assigning"
    FAILED = "failed"
    STABLE = "stable"


_REBALANCING = (State.JOINING, State.SYNCING, State.FAILED)
"""States in which a join can begin again without the application: it has given up what it must."""


class ClassicMembership:
    """See the module and `Membership`."""

    def __init__(
        self,
        settings: ConsumerSettings,
        assignors: Sequence[Assignor],
        subscriptions: Subscriptions,
        partition_counts: PartitionCounts,
    ) -> None:
        """assignors: most wanted first."""
        self._settings = settings
        self._group_id = settings.group_id or ""
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._is_cooperative = all(assignor.rebalance_protocol == "cooperative" for assignor in assignors)
        self._subscriptions = subscriptions
        self._partition_counts = partition_counts
        self._state = State.UNJOINED
        self._member_id = ""
        self._generation = NO_GENERATION
        self._identity = Identity(group_instance_id=settings.group_instance_id)
        self._last_assignment: tuple[Sequence[TopicPartition], int] = ((), NO_GENERATION)
        self._must_join = True
        self._asked: GroupRequest | None = None
        self._beating: GroupRequest | None = None
        self._protocol = ""
        self._assigned_counts: tuple[frozenset[str], Mapping[str, int]] | None = None
        self._leading: JoinGroupResponse | None = None
        self._change: Change | None = None
        self._error: KafkaLakeError | None = None
        self._is_refused = False
        self._assignor_error: AssignorError | None = None
        self._polled_ms: int | None = None
        self._beaten_ms = 0
        self._heard_ms = 0
        self._retry_at_ms = 0
        self._leaving: GroupRequest | None = None

    @property
    def identity(self) -> Identity:
        """The member's id and generation, or the last ones that it had: a commit without them is nobody's, and not checked."""
        return self._identity

    @property
    def state(self) -> State:
        """The state of the machine."""
        return self._state

    @property
    def is_stable(self) -> bool:
        """Return whether the member has its assignment, and no rebalance is known of."""
        return self._state is State.STABLE and not self._must_join

    @property
    def has_place(self) -> bool:
        """See `Membership`."""
        is_member = self._generation != NO_GENERATION and not self._is_refused
        return is_member and self._state not in _REBALANCING  # others may have what was kept through a rebalance

    @property
    def change(self) -> Change | None:
        """See `Membership`."""
        return self._change

    @property
    def topics_needed(self) -> frozenset[str]:
        """The topics of all members, if this one leads the group."""
        if self._leading is None:
            return self._assigned_counts[0] if self._assigned_counts is not None else frozenset()
        return frozenset(topic for member in members_of(self._leading).values() for topic in member.subscription.topics)

    # Events

    def poll(self, now_ms: int) -> None:
        """See `Membership`. Begin to join if that is due."""
        self._polled_ms = now_ms
        failure = self._error or self._assignor_error
        if failure is not None:
            self._assignor_error = None
            if isinstance(failure, FencedInstanceIdError):  # another one has the name, and the partitions
                raise failure
            self._error = None
            if self._state is State.FAILED:
                self._retry_at_ms = now_ms + self._settings.retry_backoff_ms
                self._join_again()
            raise failure
        if self._must_join and self._state in (State.UNJOINED, State.STABLE) and self._change is None:
            self._prepare()

    def subscription_changed(self) -> None:
        """Join again with the new topics."""
        self._must_join = True

    def metadata_changed(self) -> None:
        """See `Membership`. The leader assigns again if topics that it assigned have other numbers of partitions."""
        if self._assigned_counts is not None and self._state is State.STABLE:
            topics, before = self._assigned_counts
            counts = self._partition_counts(topics)
            self._must_join = self._must_join or (counts is not None and counts != before)

    def changed(self, now_ms: int) -> None:
        """See `Membership`."""
        change, self._change = self._change, None
        if change is None:  # the membership ended meanwhile
            return
        if self._state is State.PREPARING:
            self._state = State.JOINING
        elif self._state is State.ASSIGNING:
            self._state = State.STABLE
            # What was given up is assigned to others once all members have joined again.
            self._must_join = self._must_join or bool(change.revoked)

    def requests(self, now_ms: int) -> list[GroupRequest]:
        """See `Membership`."""
        if self._error is not None:
            return []
        self._leave_if_not_polled(now_ms)
        found = []
        if self._leaving is not None:
            found.append(self._leaving)
            self._leaving = None
        if self._state is State.JOINING and self._asked is None and self._retry_at_ms <= now_ms:
            found += self._assigned_by(", ".join(self._assignors), self._join)
        elif self._state is State.SYNCING and self._asked is None:
            found += self._assigned_by(self._protocol, self._sync_as_leader)
        self._asked = next((each for each in found if each.api in (JOIN_GROUP, SYNC_GROUP)), self._asked)
        if self._is_member and self._beating is None and self._beat_due_ms() <= now_ms:
            self._beating, self._beaten_ms = heartbeat_request(self._settings, self.identity), now_ms
            found.append(self._beating)
        return found

    def take(self, request: GroupRequest, response: Message, now_ms: int) -> bool:
        """See `Membership`."""
        if request is self._beating:
            self._beating = None
        elif request is self._asked:
            self._asked = None
        else:  # LeaveGroup, or one of a membership that was left
            return True
        assert isinstance(response, HeartbeatResponse | JoinGroupResponse | SyncGroupResponse)
        code = response.error_code
        if code in COORDINATOR_MOVED:
            self._join_again()
            return False
        if code:
            self._refused(code, response, now_ms)
            return True
        self._heard_ms, self._is_refused = now_ms, False
        if isinstance(response, JoinGroupResponse):
            self._joined(response, now_ms)
        elif isinstance(response, SyncGroupResponse):
            self._synced(response)
        return True

    def failed(self, request: GroupRequest, error: KafkaLakeError, now_ms: int) -> None:
        """See `Membership`. Whether the coordinator has seen the request is not known: a join is repeated."""
        if request is self._beating:
            self._beating = None
        elif request is self._asked:
            self._asked = None
            self._retry_at_ms = now_ms + self._settings.retry_backoff_ms
            self._join_again()
        if isinstance(error, UnsupportedVersionError):
            self._end_with(error)

    def commit_refused(self, code: int) -> None:
        """See `Membership`."""
        if code == RebalanceInProgressError.code:
            self._must_join = True
        elif code in (UnknownMemberIdError.code, IllegalGenerationError.code) and self._generation != NO_GENERATION:
            self._lose_membership(code)

    def leave(self, now_ms: int) -> GroupRequest | None:
        """See `Membership`."""
        request = self._leave_request()
        self._forget_generation(keep_id=False)
        self._identity = Identity(group_instance_id=self._settings.group_instance_id)
        self._state, self._must_join, self._change = State.UNJOINED, True, None
        self._error = self._assignor_error = None
        self._asked = self._beating = self._leading = self._assigned_counts = None
        return request

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """See `Membership`."""
        if self._error is not None:
            return None
        deadlines = []
        if self._is_member and self._beating is None:
            deadlines.append(self._beat_due_ms())
        if self._state is State.JOINING and self._asked is None:
            deadlines.append(self._retry_at_ms)
        if self._is_member and self._polled_ms is not None:
            deadlines.append(self._polled_ms + self._settings.max_poll_interval_ms)
        return min(deadlines, default=None)

    def is_silent(self, now_ms: int) -> bool:
        """Return whether the coordinator has not answered for a session timeout: it may be another broker now."""
        return self._is_member and now_ms - self._heard_ms >= self._settings.session_timeout_ms

    def begin_session(self, now_ms: int) -> None:
        """See `Membership`."""
        self._heard_ms = now_ms

    # Joining

    def _prepare(self) -> None:
        """Find out what is given up before the member joins."""
        self._must_join = False
        owned = frozenset(self._subscriptions.partitions)
        if self._generation == NO_GENERATION:
            given_up = Change(frozenset(), lost=owned)
        elif self._is_cooperative:
            revoked = frozenset(each for each in owned if each[0] not in self._subscriptions.topics)
            given_up = Change(owned - revoked, revoked=revoked)
        else:
            given_up = Change(frozenset(), revoked=owned)
        if given_up.revoked or given_up.lost:
            self._state, self._change = State.PREPARING, given_up
        else:
            self._state = State.JOINING

    def _assigned_by(self, names: str, request: Callable[[], list[GroupRequest]]) -> list[GroupRequest]:
        """Return what `request` makes with assignors. If one raises, the member waits, with heartbeats, for a poll."""
        try:
            return request()
        except BaseException as error:  # of the application
            logger.warning("an assignor failed: %s", names, exc_info=True)
            self._assignor_error = AssignorError(f"an assignor ({names}) failed: {error!r}")
            self._assignor_error.__cause__ = as_value(error)
            self._state, self._leading = State.FAILED, None
            if not isinstance(error, Exception):
                raise
            return []

    def _join(self) -> list[GroupRequest]:
        kept = tuple(sorted(self._subscriptions.partitions)) if self._is_cooperative else ()
        assignors, topics = list(self._assignors.values()), self._subscriptions.topics
        return [join_request(self._settings, self._member_id, topics, assignors, kept, self._last_assignment)]

    def _joined(self, response: JoinGroupResponse, now_ms: int) -> None:
        if self._state is not State.JOINING:
            return
        self._member_id, self._generation = response.member_id, response.generation_id
        self._identity = Identity(self._member_id, self._generation, self._settings.group_instance_id)
        self._protocol = response.protocol_name or ""
        self._state = State.SYNCING
        self._beaten_ms = now_ms
        self._leading = response if response.leader == response.member_id else None
        self._assigned_counts = None

    def _sync_as_leader(self) -> list[GroupRequest]:
        """Return SyncGroup; of a leader once the metadata for its assignment is there."""
        if self._leading is None:
            return [sync_request(self._settings, self.identity, {})]
        members = members_of(self._leading)
        assignments: dict[str, Sequence[TopicPartition]] = {}
        if not self._leading.skip_assignment:
            assignor = self._assignors.get(self._protocol)
            if assignor is None:
                self._end_with(InconsistentGroupProtocolError(f"the group chose the assignor '{self._protocol}'"))
                return []
            counts = self._partition_counts(self.topics_needed)
            if counts is None:
                return []
            self._assigned_counts = self.topics_needed, counts
            assignments = assignor.assign(members, counts)
        self._leading = None
        return [sync_request(self._settings, self.identity, assignments)]

    def _synced(self, response: SyncGroupResponse) -> None:
        if self._state is not State.SYNCING:
            return
        assigned = frozenset(decode_assignment(bytes(response.assignment)))
        if not all(self._subscriptions.includes(topic) for topic, _ in assigned):  # subscribed to when it joined
            self._state, self._must_join = State.STABLE, True
            return
        owned = frozenset(self._subscriptions.partitions)
        self._last_assignment = (sorted(assigned), self._generation)
        self._state = State.ASSIGNING
        self._change = Change(assigned, added=assigned - owned, revoked=owned - assigned, is_complete=True)

    def _join_again(self) -> None:
        """Repeat a join that was under way; a stable member notices by itself."""
        if self._state in _REBALANCING:
            self._state, self._leading = State.JOINING, None

    # Errors

    def _refused(self, code: int, response: Message, now_ms: int) -> None:
        if code == MemberIdRequiredError.code and isinstance(response, JoinGroupResponse):
            self._member_id = response.member_id
        elif code == RebalanceInProgressError.code:
            self._heard_ms = now_ms
            if self._state in _REBALANCING:
                self._join_again()
            else:
                self._must_join = True
        elif code in (UnknownMemberIdError.code, IllegalGenerationError.code):
            self._lose_membership(code)
        else:
            self._fail(code, now_ms)

    def _fail(self, code: int, now_ms: int) -> None:
        error = error_for_code(code, f"group '{self._group_id}': {error_name(code)}")
        if error.retriable:
            self._retry_at_ms = now_ms + self._settings.retry_backoff_ms
            self._join_again()
        else:
            self._end_with(error)

    def _end_with(self, error: KafkaLakeError) -> None:
        """Have the next poll raise an error, after which what has failed is tried again: it may be granted by then."""
        self._error, self._is_refused = as_value(error), True
        if self._state in _REBALANCING:
            self._state, self._leading = State.FAILED, None

    def _lose_membership(self, code: int) -> None:
        """Join as a new member. Partitions that are assigned still are lost, which the next join finds."""
        self._forget_generation(keep_id=code == IllegalGenerationError.code)
        self._leading = None
        if self._state in _REBALANCING and not self._subscriptions.partitions:
            self._state = State.JOINING
        else:
            self._state, self._change, self._must_join = State.UNJOINED, None, True

    def _forget_generation(self, *, keep_id: bool) -> None:
        self._generation = NO_GENERATION
        if not keep_id:
            self._member_id = ""

    # Heartbeats

    @property
    def _is_member(self) -> bool:
        return self._generation != NO_GENERATION and self._state is not State.JOINING and self._error is None

    def _beat_due_ms(self) -> int:
        return self._beaten_ms + self._settings.heartbeat_interval_ms

    def _leave_if_not_polled(self, now_ms: int) -> None:
        """Give the partitions up for an application that does not poll: others can work on them."""
        if not self._is_member or self._polled_ms is None:
            return
        if now_ms - self._polled_ms >= self._settings.max_poll_interval_ms:
            self._leaving = self._leave_request()
            self._lose_membership(UnknownMemberIdError.code)

    def _leave_request(self) -> GroupRequest | None:
        """Return LeaveGroup. A static member stays until its session is over."""
        if not self._member_id or self._settings.group_instance_id is not None:
            return None
        return leave_request(self._settings, self._member_id)
