"""A group of the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup): events in, decisions out.

    Empty ──join──> PreparingRebalance ──all joined, or timeout─────> CompletingRebalance ──leader's assignment durable──> Stable
      ^                │      ^                                            │  │                                          │
      └──nobody left───┘      └────a member joins, leaves, expires, changes┴──┴──────────────────────────────────────────┘
    Dead: deleted, or the broker stops. No request is accepted any more.

Every generation begins with a join round. Its first member (or the next, if that one does not rejoin) is the leader: it receives
the metadata of all members and assigns the partitions. The broker passes assignments on as opaque bytes. A generation is written
to the journal when its assignment arrives and answered when it is durable.

Source: Kafka protocol guide, "Group membership API"; KIP-62 (rebalance timeout), KIP-134 (initial delay), KIP-345 (static
members), KIP-389 (group size), KIP-394 (member id first), KIP-559 (protocol checks in sync), KIP-814 (skip assignment).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kafkalake.broker.coordination.decisions import Append, CancelTimer, ErrorClass
from kafkalake.broker.groups.classic_join_round import JoinRound
from kafkalake.broker.groups.classic_state import (
    JOIN_TIMER,
    SYNC_TIMER,
    AssignmentWritten,
    ClassicState,
    StaticMemberWritten,
    session_timer,
)
from kafkalake.broker.groups.requests import JoinResult, LeaveResult, LeavingMember, SyncRequest, SyncResult
from kafkalake.broker.groups.roster import Member
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    InconsistentGroupProtocolError,
    KafkaError,
    RebalanceInProgressError,
)


class ClassicGroup(JoinRound):
    """One group. Each event adds its decisions to `decisions`, for the coordinator to take and carry out in order.

    `new_uuid` returns fresh text for a member id. Synchronous methods raise a `KafkaError`. `join` and `sync` reply through their
    waiter.
    """

    # Handing out assignments

    def sync(self, request: SyncRequest, waiter: object) -> None:
        """Reply with the member's assignment once all are durable. The leader's request carries the assignments."""
        try:
            member = self._checked_sync(request)
            self._check_assignments(member, request)
        except KafkaError as error:
            self._reply(waiter, SyncResult(type(error)))
            return
        self._awaited_syncs.discard(member.member_id)
        if self.state is ClassicState.STABLE:
            self._reply(waiter, self._assignment_of(member))
            return
        self._answer_sync(member, SyncResult(RebalanceInProgressError))  # an earlier request that the client abandoned
        member.syncing = waiter
        if member.member_id == self.roster.leader:
            assignments = {other.member_id: request.assignments.get(other.member_id, b"") for other in self.roster}
            ticket = AssignmentWritten(self.generation_id, assignments)
            self.decisions.append(Append((self.record(assignments),), ticket))

    def _check_assignments(self, member: Member, request: SyncRequest) -> None:
        """Refuse a leader's assignments beyond the memory limit of all groups."""
        if self.state is ClassicState.COMPLETING_REBALANCE and member.member_id == self.roster.leader:
            self._check_memory(sum(len(request.assignments.get(other.member_id, b"")) for other in self.roster))

    def _checked_sync(self, request: SyncRequest) -> Member:
        member = self.checked_member(request.member_id, request.group_instance_id, request.generation_id)
        for said, ours in (
            (request.protocol_type, self.roster.protocol_type),
            (request.protocol_name, self.protocol_name),
        ):
            if said is not None and ours is not None and said != ours:
                raise InconsistentGroupProtocolError
        if self.state is ClassicState.PREPARING_REBALANCE:
            raise RebalanceInProgressError
        return member

    def _assignment_written(self, ticket: AssignmentWritten, error: ErrorClass | None) -> None:
        if self.state is not ClassicState.COMPLETING_REBALANCE or ticket.generation_id != self.generation_id:
            return
        if error is not None:
            self._withdraw_assignments(error)
            self._prepare_rebalance()
            return
        self._become(ClassicState.STABLE)
        for member in self.roster:
            self.roster.set_assignment(member, ticket.assignments.get(member.member_id, b""))
            if self._answer_sync(member, self._assignment_of(member)):
                self._expect_heartbeat(member, member.session_timeout_ms)

    def _sync_time_is_up(self) -> None:
        """Remove members that joined the generation but never asked for their assignment."""
        if self.state not in (ClassicState.COMPLETING_REBALANCE, ClassicState.STABLE) or not self._awaited_syncs:
            return
        for member_id in sorted(self._awaited_syncs):
            member = self.roster.get(member_id)
            if member is not None:
                self._remove(member)
        self._prepare_rebalance()

    # Staying and leaving

    def heartbeat(self, member_id: str, generation_id: int, group_instance_id: str | None = None) -> None:
        """Record a heartbeat. Raise what the member must do: `RebalanceInProgressError` means rejoin."""
        member = self.checked_member(member_id, group_instance_id, generation_id)
        self._expect_heartbeat(member, member.session_timeout_ms)
        if self.state is ClassicState.PREPARING_REBALANCE:
            raise RebalanceInProgressError

    def leave(self, leaving: Sequence[LeavingMember]) -> list[LeaveResult]:
        """Remove leaving members, also by instance id alone. Raise `CoordinatorNotAvailableError` if the group is dead."""
        if self.state is ClassicState.DEAD:
            raise CoordinatorNotAvailableError
        results = [LeaveResult(*one, self._leave_one(one)) for one in leaving]
        if any(result.error is None for result in results):
            self._member_went()
        return results

    def _leave_one(self, leaving: LeavingMember) -> ErrorClass | None:
        member_id, group_instance_id = leaving
        if member_id in self._pending:
            self._no_longer_pending(member_id)
            self.decisions.append(CancelTimer(session_timer(member_id)))
            return None
        if not member_id and group_instance_id is not None:
            member_id = self.roster.static_member_id(group_instance_id) or ""
        try:
            self._remove(self.roster.checked(member_id, group_instance_id))
        except KafkaError as error:
            return type(error)
        return None

    def _session_time_is_up(self, member_id: str) -> None:
        if member_id in self._pending:
            self._no_longer_pending(member_id)
            if self.state is ClassicState.PREPARING_REBALANCE:
                self._maybe_complete_join()
            return
        member = self.roster.get(member_id)
        if member is None:
            return
        member.timer_due_at_ms = None
        if not member.is_new and (member.joining is not None or member.syncing is not None):
            return  # its request is pending, the response restarts its session
        remaining_ms = member.session_ends_at_ms - self._clock.monotonic_ms()
        if remaining_ms > 0:
            self._expect_heartbeat(member, remaining_ms)
        else:
            self._remove(member)
            self._member_went()

    def _member_went(self) -> None:
        if self.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            self._prepare_rebalance()
        elif self.state is ClassicState.PREPARING_REBALANCE:
            self._maybe_complete_join()

    # Callbacks from the coordinator

    def timer_fired(self, name: Hashable) -> None:
        """Handle the expiry of the timer `name`."""
        if name == JOIN_TIMER:
            self._join_time_is_up()
        elif name == SYNC_TIMER:
            self._sync_time_is_up()
        else:
            assert isinstance(name, tuple)
            self._session_time_is_up(name[1])

    def appended(self, ticket: object, error: ErrorClass | None) -> None:
        """Continue after an `Append` is durable, or has failed with `error` (returned to clients)."""
        if isinstance(ticket, AssignmentWritten):
            self._assignment_written(ticket, error)
        elif isinstance(ticket, StaticMemberWritten):
            self._static_member_written(ticket, error)

    def restored(self) -> None:
        """Give each member a whole session timeout after the journal has been read."""
        for member in self.roster:
            self._expect_heartbeat(member, member.session_timeout_ms)
        if len(self.roster) > self._config.group_max_size:
            self._prepare_rebalance()

    def die(self, error: ErrorClass) -> None:
        """End the group (deleted, or no longer coordinated by this broker). Pending requests fail with `error`."""
        self.state = ClassicState.DEAD
        for member in self.roster:
            self._cancel_session(member)
            self._answer_join(member, JoinResult(error, member.member_id))
            self._answer_sync(member, SyncResult(error))
        for member_id in sorted(self._pending):
            self.decisions.append(CancelTimer(session_timer(member_id)))
        self._pending.clear()
        self.release()
        self.decisions += [CancelTimer(JOIN_TIMER), CancelTimer(SYNC_TIMER)]
