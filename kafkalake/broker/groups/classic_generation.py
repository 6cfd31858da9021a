"""State, members and generation of a classic group, with its pending requests and session timers.

`JoinRound` and `ClassicGroup` add the transitions. A member has one session timer, set again only if it has to fire earlier. A
heartbeat just moves the deadline, which the timer checks when it fires. None is required while a join or sync is pending.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from kafkalake.broker.coordination.decisions import CancelTimer, Decision, Reply, SetTimer
from kafkalake.broker.coordination.table import MetadataMemory
from kafkalake.broker.groups.classic_state import (
    NEXT,
    ClassicState,
    InitialWait,
    group_record,
    member_of,
    session_timer,
)
from kafkalake.broker.groups.config import GroupConfig
from kafkalake.broker.groups.offsets import ExpiryRule
from kafkalake.broker.groups.records import GroupRecord, GroupTombstone
from kafkalake.broker.groups.requests import (
    JoinResult,
    SyncResult,
)
from kafkalake.broker.groups.roster import Member, Roster
from kafkalake.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kafkalake.clock import Clock
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


class Generation:
    """A group's state, members and current generation. Replies and timers go to `decisions`.

    `state_since_ms` is wall clock time. `subscribed_topics` is None if the members' metadata cannot be read.
    """

    def __init__(
        self,
        group_id: str,
        config: GroupConfig,
        clock: Clock,
        new_uuid: Callable[[], str],
        memory: MetadataMemory | None = None,
    ) -> None:
        self.group_id = group_id
        self.state = ClassicState.EMPTY
        self.state_since_ms = clock.now_ms()
        self.generation_id = 0
        self.protocol_name: str | None = None
        self.roster = Roster(memory)
        self.subscribed_topics: frozenset[str] | None = None
        self.decisions: list[Decision] = []
        self._config = config
        self._clock = clock
        self._new_uuid = new_uuid
        self._pending: set[str] = set()
        self._awaited_syncs: set[str] = set()
        self._initial_wait: InitialWait | None = None
        self._awaits_first_join = False
        """Whether the time of a join round is up, which nobody has joined: it begins again with the first."""

    # Queries

    @property
    def is_vacant(self) -> bool:
        """Return whether the group is empty and no member id is pending."""
        return self.state is ClassicState.EMPTY and not self._pending

    @property
    def expiry(self) -> ExpiryRule:
        """The expiry rule (KIP-211). While the group has members, only offsets of unsubscribed topics expire."""
        if self.roster.protocol_type is None:
            return ExpiryRule(None, frozenset())  # never had a member: each offset ages from its own commit
        if self.state is ClassicState.EMPTY:
            return ExpiryRule(None if self.state_since_ms < 0 else self.state_since_ms, frozenset())
        return ExpiryRule(None, self.subscribed_topics if self.state is ClassicState.STABLE else None)

    def reads(self, topic: str) -> bool:
        """Return whether a member may subscribe to the topic: True for consumers whose subscription cannot be read."""
        if self.subscribed_topics is None:
            return self.roster.protocol_type == CONSUMER_PROTOCOL_TYPE and len(self.roster) > 0
        return topic in self.subscribed_topics

    def check_delete(self) -> None:
        """Raise `GroupIdNotFoundError` if dead, `NonEmptyGroupError` if the group has members."""
        if self.state is ClassicState.DEAD:
            raise GroupIdNotFoundError
        if self.state is not ClassicState.EMPTY:
            raise NonEmptyGroupError

    def check_offset_delete(self) -> None:
        """Raise unless offsets may be deleted (KIP-496): those of consumers at any time, others only while the group is empty."""
        if self.state is ClassicState.DEAD:
            raise GroupIdNotFoundError
        if self.state is not ClassicState.EMPTY and self.roster.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroupError

    def checked_member(self, member_id: str, group_instance_id: str | None, generation_id: int) -> Member:
        """Return the member of that id in this generation.

        Raise `CoordinatorNotAvailableError` (dead group), `UnknownMemberIdError`, `FencedInstanceIdError` or
        `IllegalGenerationError`.
        """
        if self.state is ClassicState.DEAD:
            raise CoordinatorNotAvailableError
        member = self.roster.checked(member_id, group_instance_id)
        if generation_id != self.generation_id:
            raise IllegalGenerationError
        return member

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, *, transactional: bool = False
    ) -> None:
        """Raise unless this member may commit offsets now, and renew its session.

        A commit without member and generation (an admin client, a consumer that assigns itself) needs an empty group.
        """
        if self.state is ClassicState.DEAD:
            raise CoordinatorNotAvailableError
        if generation_id < 0 and self.state is ClassicState.EMPTY:
            return
        if generation_id >= 0 or member_id or group_instance_id is not None:
            member = self.checked_member(member_id, group_instance_id, generation_id)
        elif transactional:
            return  # old transactional clients send neither
        else:
            raise UnknownMemberIdError
        if transactional:
            return
        if self.state is ClassicState.COMPLETING_REBALANCE:
            # The member has the generation but not yet its assignment, so this commit belongs to an older assignment.
            raise RebalanceInProgressError
        self._expect_heartbeat(member, member.session_timeout_ms)

    # Journal

    def record(self, assignments: Mapping[str, bytes]) -> GroupRecord:
        """Return the generation's journal record with these assignments."""
        return group_record(
            self.group_id, self.roster, self.generation_id, self.protocol_name, self.state_since_ms, assignments
        )

    def restore(self, record: GroupRecord) -> None:
        """Restore the group from `record` during loading."""
        assert not len(self.roster) and not self._pending
        self.generation_id, self.protocol_name = record.generation_id, record.protocol_name
        members = (member_of(one, record.protocol_name or "") for one in record.members)
        self.roster.restore(members, record.protocol_type, record.leader)
        self.state = ClassicState.STABLE if len(self.roster) else ClassicState.EMPTY
        self.state_since_ms = record.state_since_ms
        self._follow_subscriptions()

    def tombstones(self) -> Sequence[GroupTombstone]:
        """Return the records that delete the group."""
        return (GroupTombstone(self.group_id),)

    def revive(self) -> None:
        """Undo `die` after a failed deletion."""
        assert self.state is ClassicState.DEAD and not len(self.roster)
        self.state = ClassicState.EMPTY

    def release(self) -> None:
        """Count the memory of the members no more: the group has ended, or another one has its place."""
        self.roster.release()

    # For subclasses

    def _become(self, state: ClassicState) -> None:
        assert state in NEXT[self.state]
        self.state = state
        self.state_since_ms = self._clock.now_ms()

    def _follow_subscriptions(self) -> None:
        if self.roster.protocol_type != CONSUMER_PROTOCOL_TYPE:
            self.subscribed_topics = None
        else:
            name = self.protocol_name or ""
            self.subscribed_topics = subscribed_topics(member.metadata(name) for member in self.roster)

    def _generation(self, member_id: str, leader: str | None) -> JoinResult:
        return JoinResult(
            None, member_id, self.generation_id, self.roster.protocol_type, self.protocol_name, leader or ""
        )

    def _generation_for(self, member: Member, *, skip_assignment: bool = False) -> JoinResult:
        """Return this generation's join result for the member. The leader's contains all members."""
        result = self._generation(member.member_id, self.roster.leader)
        if member.member_id == self.roster.leader:
            members = self.roster.joined_members(self.protocol_name or "")
            result = replace(result, members=members, skip_assignment=skip_assignment)
        return result

    def _assignment_of(self, member: Member) -> SyncResult:
        return SyncResult(None, self.roster.protocol_type, self.protocol_name, member.assignment)

    def _expect_heartbeat(self, member: Member, within_ms: int) -> None:
        ends_at_ms = self._clock.monotonic_ms() + within_ms
        member.session_ends_at_ms = ends_at_ms
        if member.timer_due_at_ms is None or member.timer_due_at_ms > ends_at_ms:
            member.timer_due_at_ms = ends_at_ms
            self.decisions.append(SetTimer(session_timer(member.member_id), within_ms))

    def _cancel_session(self, member: Member) -> None:
        if member.timer_due_at_ms is not None:
            member.timer_due_at_ms = None
            self.decisions.append(CancelTimer(session_timer(member.member_id)))

    def _remove(self, member: Member) -> None:
        """Remove a member. Its pending requests fail with UNKNOWN_MEMBER_ID, so that it rejoins as a new member."""
        self._cancel_session(member)
        self._awaited_syncs.discard(member.member_id)
        self._answer_join(member, JoinResult(UnknownMemberIdError, ""))
        self._answer_sync(member, SyncResult(UnknownMemberIdError))
        self.roster.remove(member)

    def _answer_join(self, member: Member, result: JoinResult) -> None:
        if member.joining is not None:
            self._reply(member.joining, result)
            self.roster.set_joining(member, None)

    def _answer_sync(self, member: Member, result: SyncResult) -> bool:
        if member.syncing is None:
            return False
        self._reply(member.syncing, result)
        member.syncing = None
        return True

    def _reply(self, waiter: object, result: JoinResult | SyncResult) -> None:
        self.decisions.append(Reply(waiter, result))
