"""Read-only requests, sessions and timers of a group of the consumer protocol.

`groups.consumer` changes the group. A member has one session timer, set again only after it has fired. A heartbeat just moves the
deadline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kafkalake.broker.coordination.decisions import CancelTimer, Decision, Reply, SetTimer
from kafkalake.broker.coordination.table import MetadataMemory
from kafkalake.broker.groups.assignors import NOTHING
from kafkalake.broker.groups.config import GroupConfig
from kafkalake.broker.groups.consumer_records import ConsumerRecord, Current, Subscription
from kafkalake.broker.groups.consumer_requests import (
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    HeartbeatRequest,
    HeartbeatResult,
)
from kafkalake.broker.groups.consumer_state import DEAD, ConsumerState
from kafkalake.broker.groups.consumer_targets import names_read, preferred_assignor
from kafkalake.broker.groups.consumer_topics import TopicsNow
from kafkalake.broker.groups.offsets import ExpiryRule
from kafkalake.clock import Clock
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    KafkaError,
    NonEmptyGroupError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from kafkalake.made_array import made_from
from kafkalake.run_blocking import TURN_NS, Steps

STEPS_TIMER = ("steps", "")
"""Name of the timer after which the change that is being made goes on."""


def session_timer(member_id: str) -> tuple[str, str]:
    return ("session", member_id)


def revocation_timer(member_id: str) -> tuple[str, str]:
    return ("revocation", member_id)


def join_timer(member_id: str) -> tuple[str, str]:
    """Return the name of the timer that limits a classic member's rejoin after it was asked to."""
    return ("join", member_id)


def sync_timer(member_id: str) -> tuple[str, str]:
    """Return the name of the timer that limits the SyncGroup request after that join."""
    return ("sync", member_id)


def refusal(error: Exception) -> HeartbeatResult:
    """Return the answer to a heartbeat that failed with `error`."""
    return (
        HeartbeatResult(type(error), message=str(error))
        if isinstance(error, KafkaError)
        else HeartbeatResult(KafkaError)
    )


@dataclass(frozen=True, slots=True, eq=False)
class PendingWrite:
    """Ticket: records that are being written, and what follows when they are durable. `joined`: the classic member that joined.

    `timer`: the one that has removed a member, and does so again if the records cannot be written.
    """

    records: tuple[ConsumerRecord, ...]
    waiter: object
    result: HeartbeatResult
    heard_from: str | None = None
    joined: str | None = None
    timer: Hashable = None


@dataclass(frozen=True, slots=True, eq=False)
class Making:
    """A change whose records are found in `steps`. `waiter` and `timer` as in `PendingWrite`."""

    steps: Steps[PendingWrite]
    waiter: object
    timer: Hashable = None

    def go_on(self, clock: Clock) -> PendingWrite | None:
        """Take steps for `TURN_NS`. Return the change once it is made. Raise the `KafkaError` with which it is refused."""
        end_ns = clock.monotonic_ns() + TURN_NS
        try:
            while True:
                next(self.steps)
                if clock.monotonic_ns() >= end_ns:
                    return None
        except StopIteration as stop:
            change: PendingWrite = stop.value
            return change


@dataclass(frozen=True, slots=True, eq=False)
class Downgrade:
    """Decision: write `records`, the end of the group and the beginning of a classic one in its place, as one unit."""

    records: tuple[object, ...]
    ticket: PendingWrite


class GroupTiming(Protocol):
    """Settings that a group may override."""

    def session_timeout_ms(self, group_id: str) -> int: ...

    def heartbeat_interval_ms(self, group_id: str) -> int: ...


@dataclass(slots=True)
class Session:
    """Times of the monotonic clock. `timer_due_at_ms` is None if no timer is set."""

    ends_at_ms: int
    timer_due_at_ms: int | None = None


class MemberSessions:
    """State, sessions and pending requests. Replies and timers go to `decisions`."""

    def __init__(
        self,
        group_id: str,
        config: GroupConfig,
        clock: Clock,
        topics: TopicsNow,
        *,
        replaces_classic: bool = False,
        timing: GroupTiming | None = None,
        memory: MetadataMemory | None = None,
    ) -> None:
        self.group_id = group_id
        self.state = ConsumerState(group_id, memory)
        self.decisions: list[Decision | Downgrade] = []
        self._topics_read: frozenset[str] | None = frozenset()
        self.dead = False
        self._config = config
        self._timing = timing or config
        self._clock = clock
        self._topics = topics
        self._replaces_classic = replaces_classic
        self._prelude: tuple[ConsumerRecord, ...] = ()
        self._joins_awaited: set[str] = set()
        self._making: Making | None = None
        self._change: PendingWrite | None = None
        self._line: deque[tuple[HeartbeatRequest, object]] = deque()
        self._metadata_is_stale = False
        self._sessions: dict[str, Session] = {}

    # Queries

    @property
    def exists(self) -> bool:
        """Return whether the group has ever been written."""
        return self.state.epoch > 0

    @property
    def is_written(self) -> bool:
        """Return whether the journal has this group."""
        return self.exists and not self._prelude

    @property
    def is_at_work(self) -> bool:
        """Return whether a change is being made or written, or heartbeats are queued."""
        return self._is_changing or bool(self._line)

    @property
    def _is_changing(self) -> bool:
        return self._making is not None or self._change is not None

    @property
    def is_vacant(self) -> bool:
        """Return whether the group has no members and none are joining."""
        return not len(self.state) and not self.is_at_work

    @property
    def state_name(self) -> str:
        return DEAD if self.dead else self.state.state

    @property
    def expiry(self) -> ExpiryRule:
        """The expiry rule: each offset ages from its own commit, but not while its topic is subscribed."""
        return ExpiryRule(None, self.subscribed_topics)

    @property
    def subscribed_topics(self) -> frozenset[str]:
        """The topic names of all members' subscriptions. They are looked for when somebody asks.

        A topic is created and a broker takes over for thousands of groups at once, whose regular expressions all would have to
        be matched.
        """
        if self._topics_read is None:
            self._topics_read = names_read(self.state.subscriptions.values(), self._topics())
        return self._topics_read

    def reads(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic."""
        return topic in self.subscribed_topics

    def may_read(self, topics: frozenset[str]) -> bool:
        """Return whether members subscribe to one of the topics, or have regular expressions that may match it."""
        has_regex = any(one.regex for one in self.state.subscriptions.values())
        return has_regex or not self.subscribed_topics.isdisjoint(topics)

    def check_delete(self) -> None:
        """Raise `GroupIdNotFoundError` if dead, `NonEmptyGroupError` if the group has members."""
        if self.dead:
            raise GroupIdNotFoundError
        if not self.is_vacant:
            raise NonEmptyGroupError

    def check_offset_delete(self) -> None:
        """Raise `GroupIdNotFoundError` if dead. Offsets of unsubscribed topics may be deleted at any time (KIP-496)."""
        if self.dead:
            raise GroupIdNotFoundError

    def check_commit(
        self, member_id: str, group_instance_id: str | None, member_epoch: int, *, transactional: bool = False
    ) -> None:
        """Raise unless this member may commit offsets now.

        A commit without member and epoch (an admin client) needs an empty group, or a transaction of an old client. Raise
        `UnknownMemberIdError`, `StaleMemberEpochError` (in a transaction `IllegalGenerationError`: producers have no member
        epochs) or `CoordinatorNotAvailableError`.
        """
        if self.dead:
            raise CoordinatorNotAvailableError
        if member_epoch < 0 and not len(self.state):
            return
        if transactional and member_epoch == -1 and not member_id and group_instance_id is None:
            return
        try:
            self._check_member(member_id, member_epoch)
        except StaleMemberEpochError:
            raise (IllegalGenerationError if transactional else StaleMemberEpochError) from None

    def check_not_member(self, member_id: str) -> None:
        """Raise `UnsupportedVersionError` if a client without member epochs uses a consumer protocol member's id."""
        subscription = self.state.subscriptions.get(member_id)
        if subscription is not None and subscription.classic is None:
            raise UnsupportedVersionError

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Raise as `check_commit` unless this member may fetch offsets (KIP-848: OffsetFetch from version 9 on)."""
        if self.dead:
            raise CoordinatorNotAvailableError
        if member_id is not None or member_epoch >= 0:
            self._check_member(member_id, member_epoch)

    def _check_member(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None or member_id not in self.state.subscriptions:
            raise UnknownMemberIdError
        if self.state.current(member_id).epoch != member_epoch:
            is_classic = self.state.subscriptions[member_id].classic is not None
            raise IllegalGenerationError if is_classic else StaleMemberEpochError

    def tombstones(self) -> Sequence[ConsumerRecord]:
        """Return the records that end an empty group, for its deletion or a classic group in its place."""
        assert self.is_vacant
        return tuple(self.state.tombstones())

    def release(self) -> None:
        """Count the memory of the members no more: the group has ended, or another one has its place."""
        self.state.release()

    def describe(self) -> ConsumerGroupDescription:
        """Return the group as ConsumerGroupDescribe shows it, and as it is now: its members are taken now, and described later."""
        state = self.state
        assignor = preferred_assignor(state.subscriptions, self._config.group_consumer_assignors[0])
        currents, targets = state.currents.copy(), state.targets.copy()

        def member(found: tuple[str, Subscription]) -> ConsumerMemberDescription:
            member_id, one = found
            current = currents.get(member_id) or Current()
            return ConsumerMemberDescription(
                member_id,
                one.group_instance_id,
                one.rack_id,
                current.epoch,
                one.client_id,
                one.client_host,
                one.topics,
                one.regex,
                current.assigned,
                targets.get(member_id, NOTHING),
                one.classic is not None,
            )

        members = made_from(list(state.subscriptions.items()), member)
        return ConsumerGroupDescription(
            self.group_id, self.state_name, state.epoch, state.target_epoch, assignor, members
        )

    # Timers and answers

    def _expect_heartbeat(self, member_id: str) -> None:
        ends_at_ms = self._clock.monotonic_ms() + self._session_timeout_ms(member_id)
        session = self._sessions.setdefault(member_id, Session(ends_at_ms))
        session.ends_at_ms = ends_at_ms
        if session.timer_due_at_ms is None:
            self._watch(member_id, session)

    def _session_timeout_ms(self, member_id: str) -> int:
        subscription = self.state.subscriptions.get(member_id)
        if subscription is not None and subscription.classic is not None:
            return subscription.classic.session_timeout_ms
        return self._timing.session_timeout_ms(self.group_id)

    def _watch(self, member_id: str, session: Session) -> None:
        """Set a member's only session timer. A heartbeat merely moves the deadline."""
        session.timer_due_at_ms = session.ends_at_ms
        delay_ms = max(session.ends_at_ms - self._clock.monotonic_ms(), 0)
        self.decisions.append(SetTimer(session_timer(member_id), delay_ms))

    def _expect_revocation(self, member_id: str) -> None:
        delay_ms = max(self.state.subscriptions[member_id].rebalance_timeout_ms, 0)
        self.decisions.append(SetTimer(revocation_timer(member_id), delay_ms))

    def _cancel_timers(self, member_id: str) -> None:
        self._sessions.pop(member_id, None)
        self._joins_awaited.discard(member_id)
        timers = (session_timer, revocation_timer, join_timer, sync_timer)
        self.decisions += [CancelTimer(timer(member_id)) for timer in timers]

    def _reply(self, waiter: object, result: HeartbeatResult) -> None:
        if waiter is not None:
            self.decisions.append(Reply(waiter, result))
