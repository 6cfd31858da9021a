"""The join round of a classic group: members join until all are there, or until the time is up. Then a generation begins.

`groups.classic` has the diagram of the states.
"""

from __future__ import annotations

from kafkalake.broker.coordination.decisions import Append, CancelTimer, ErrorClass, SetTimer
from kafkalake.broker.groups.classic_generation import Generation
from kafkalake.broker.groups.classic_state import (
    JOIN_TIMER,
    SYNC_TIMER,
    ClassicState,
    InitialWait,
    StaticMemberWritten,
    session_timer,
)
from kafkalake.broker.groups.requests import JoinRequest, JoinResult, SyncResult
from kafkalake.broker.groups.roster import Member, kept_bytes, metadata_bytes
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    KafkaError,
    MemberIdRequiredError,
    RebalanceInProgressError,
)

PENDING_MAX = 10_000
"""Maximum number of member ids per group that were handed out (KIP-394) and not yet used in a join."""


class JoinRound(Generation):
    """Joins of new, known and static members, and the round in which all of them take part."""

    # Joining

    def join(self, request: JoinRequest, waiter: object) -> None:
        """Join or rejoin a member. An error is returned at once, success when the join round ends."""
        try:
            self._admit(request)
            if request.member_id:
                self._rejoin(request, waiter)
            else:
                self._join_new(request, waiter)
        except GroupMaxSizeReachedError as error:
            self._reply(waiter, JoinResult(type(error), ""))
        except KafkaError as error:
            self._reply(waiter, JoinResult(type(error), request.member_id))

    def _admit(self, request: JoinRequest) -> None:
        if self.state is ClassicState.DEAD:
            raise CoordinatorNotAvailableError
        member = self.roster.get(request.member_id)
        if not self._has_room(member):
            self._no_longer_pending(request.member_id)
            if member is not None:
                self._remove(member)
            raise GroupMaxSizeReachedError
        self._check_size(request, member)
        if not self.roster.supports(request.protocol_type, request.protocols):
            raise InconsistentGroupProtocolError

    def _check_size(self, request: JoinRequest, member: Member | None) -> None:
        """Enforce the metadata limits per member, per group and for all groups: unproven members already occupy memory."""
        size = metadata_bytes(request.protocols)
        if size > self._config.group_member_metadata_max_bytes:
            raise InvalidRequestError
        grows = kept_bytes(request.client_id, request.group_instance_id, request.protocols)
        if member is not None:
            grows -= kept_bytes(member.client_id, member.group_instance_id, member.protocols)
        if grows <= 0:
            return
        if self.roster.bytes + grows > self._config.group_metadata_max_bytes or len(self._pending) >= PENDING_MAX:
            raise GroupMaxSizeReachedError
        self._check_memory(grows)

    def _check_memory(self, grows: int) -> None:
        """Raise `CoordinatorNotAvailableError` if `grows` more bytes exceed the limit of all groups together."""
        if self.roster.memory.bytes + grows > self._config.group_coordinator_metadata_max_bytes:
            raise CoordinatorNotAvailableError

    def _has_room(self, member: Member | None) -> bool:
        """Return whether there is room: during a rebalance for the first to rejoin, later up to the size of the generation."""
        if self.state is ClassicState.PREPARING_REBALANCE:
            return (
                member is not None and member.joining is not None
            ) or self.roster.joining < self._config.group_max_size
        return self.state is ClassicState.EMPTY or member is not None or len(self.roster) < self._config.group_max_size

    def _join_new(self, request: JoinRequest, waiter: object) -> None:
        member_id = f"{request.group_instance_id or request.client_id}-{self._new_uuid()}"
        if request.group_instance_id is not None:
            old_member_id = self.roster.static_member_id(request.group_instance_id)
            if old_member_id is None:
                self._add(member_id, request, waiter)
            else:
                self._replace_static(old_member_id, member_id, request, waiter)
        elif request.member_id_required:
            self._pending.add(member_id)
            self.roster.count(kept_bytes(member_id, None))
            self.decisions.append(SetTimer(session_timer(member_id), request.session_timeout_ms))
            self._reply(waiter, JoinResult(MemberIdRequiredError, member_id))
        else:
            self._add(member_id, request, waiter)

    def _no_longer_pending(self, member_id: str) -> None:
        if member_id in self._pending:
            self._pending.remove(member_id)
            self.roster.count(-kept_bytes(member_id, None))

    def _rejoin(self, request: JoinRequest, waiter: object) -> None:
        if request.member_id in self._pending:
            if request.group_instance_id is not None:
                # Static members are never asked to rejoin with an id.
                raise InvalidRequestError
            self._add(request.member_id, request, waiter)
            return
        member = self.roster.checked(request.member_id, request.group_instance_id)
        unchanged = member.protocols == request.protocols
        if (self.state is ClassicState.COMPLETING_REBALANCE and unchanged) or (
            self.state is ClassicState.STABLE and unchanged and member.member_id != self.roster.leader
        ):
            # A lost response or a retry: nothing changed. A leader that rejoins asks for a new assignment.
            self._reply(waiter, self._generation_for(member))
            return
        self._update(member, request, waiter)
        self._rebalance_or_complete_join()

    def _add(self, member_id: str, request: JoinRequest, waiter: object) -> None:
        if self._initial_wait is not None and self.state is ClassicState.PREPARING_REBALANCE:
            self._initial_wait.extended_by_newcomer = True
        self._no_longer_pending(member_id)
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
            is_new=True,
            joining=waiter,
        )
        self.roster.add(member, request.protocol_type)
        # A new member may not have its id yet, so it cannot send heartbeats or rejoin under it: its join is limited in time.
        self._expect_heartbeat(member, self._config.group_new_member_join_timeout_ms)
        self._rebalance_or_complete_join()

    def _update(self, member: Member, request: JoinRequest, waiter: object) -> None:
        self.roster.set_protocols(member, request.protocols)
        member.session_timeout_ms = request.session_timeout_ms
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        if member.joining is not None:
            # The client abandoned that request: it has sent this one.
            self._reply(member.joining, JoinResult(RebalanceInProgressError, member.member_id))
        self.roster.set_joining(member, waiter)

    def _replace_static(self, old_member_id: str, member_id: str, request: JoinRequest, waiter: object) -> None:
        """Replace a static member that returned without its member id. Users of the old id are fenced."""
        member = self.roster.checked(old_member_id, request.group_instance_id)
        self._answer_join(member, JoinResult(FencedInstanceIdError, old_member_id))
        self._answer_sync(member, SyncResult(FencedInstanceIdError))
        ticket = StaticMemberWritten(
            member,
            waiter,
            request.can_skip_assignment,
            old_member_id,
            self.roster.leader,
            member.protocols,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
        )
        self._rename(member, member_id)
        self._update(member, request, waiter)
        if self.state is ClassicState.STABLE and self.roster.select_protocol() == self.protocol_name:
            assignments = {other.member_id: other.assignment for other in self.roster}
            self.decisions.append(Append((self.record(assignments),), ticket))
        elif self.state is ClassicState.PREPARING_REBALANCE:
            self._maybe_complete_join()
        else:
            # In CompletingRebalance the leader may be assigning to the old id.
            self._prepare_rebalance()

    def _rename(self, member: Member, member_id: str) -> None:
        self._cancel_session(member)
        self._awaited_syncs.discard(member.member_id)
        self.roster.rename(member, member_id)
        self._expect_heartbeat(member, member.session_timeout_ms)

    def _static_member_written(self, ticket: StaticMemberWritten, error: ErrorClass | None) -> None:
        member = ticket.member
        if self.state is not ClassicState.STABLE or member.joining is not ticket.waiter:
            # Either a rebalance began, whose next generation contains this change, or the member is gone.
            return
        self.roster.set_joining(member, None)
        if error is None:
            self._expect_heartbeat(member, member.session_timeout_ms)  # it may have ended during the write
            is_leader = member.member_id == self.roster.leader
            if ticket.can_skip_assignment:
                result = self._generation_for(member, skip_assignment=is_leader)
            else:
                # An old client that sees itself as leader would assign again: return its old id as the leader's.
                result = self._generation(member.member_id, ticket.old_leader)
            self._reply(ticket.waiter, result)
            return
        self._rename(member, ticket.old_member_id)
        self.roster.set_protocols(member, ticket.old_protocols)
        member.session_timeout_ms = ticket.old_session_timeout_ms
        member.rebalance_timeout_ms = ticket.old_rebalance_timeout_ms
        self._reply(ticket.waiter, JoinResult(error, ""))

    # The join round

    def _rebalance_or_complete_join(self) -> None:
        if self.state is ClassicState.PREPARING_REBALANCE:
            self._maybe_complete_join()
        else:
            self._prepare_rebalance()

    def rebalance(self) -> None:
        """Begin a rebalance if the group is stable."""
        if self.state is ClassicState.STABLE:
            self._prepare_rebalance()

    def _prepare_rebalance(self) -> None:
        """Begin a join round. Members learn of it from their next heartbeat."""
        if self.state is ClassicState.COMPLETING_REBALANCE:
            self._withdraw_assignments(RebalanceInProgressError)
        self._awaited_syncs.clear()
        self.decisions.append(CancelTimer(SYNC_TIMER))
        was_empty = self.state is ClassicState.EMPTY
        self._become(ClassicState.PREPARING_REBALANCE)
        if was_empty:
            # Members of an application usually start together: wait for the others before the first generation.
            delay_ms = self._config.group_initial_rebalance_delay_ms
            self._initial_wait = InitialWait(delay_ms, max(self.roster.rebalance_timeout_ms - delay_ms, 0))
            self.decisions.append(SetTimer(JOIN_TIMER, delay_ms))
        elif self._all_joined():
            self._complete_join()
        else:
            self.decisions.append(SetTimer(JOIN_TIMER, self.roster.rebalance_timeout_ms))

    def _all_joined(self) -> bool:
        return self.roster.joining == len(self.roster) and not self._pending

    def _maybe_complete_join(self) -> None:
        if self._initial_wait is None and self._all_joined():
            self._complete_join()
        elif self._awaits_first_join and self.roster.joining:
            self._awaits_first_join = False
            self.decisions.append(SetTimer(JOIN_TIMER, self.roster.rebalance_timeout_ms))

    def _join_time_is_up(self) -> None:
        if self.state is not ClassicState.PREPARING_REBALANCE:
            return
        wait = self._initial_wait
        if wait is not None and wait.extended_by_newcomer and wait.remaining_ms:
            delay_ms = min(self._config.group_initial_rebalance_delay_ms, wait.remaining_ms)
            self._initial_wait = InitialWait(delay_ms, max(wait.remaining_ms - wait.delay_ms, 0))
            self.decisions.append(SetTimer(JOIN_TIMER, delay_ms))
        else:
            self._complete_join()

    def _complete_join(self) -> None:
        """End the join round and remove members that did not rejoin (static members stay until their session expires).

        A round that only static members could have joined goes on without a limit until the first of them joins, or their
        sessions expire. Apache Kafka begins the time again and again: at each millisecond if it is 0, as clients may say.
        """
        self._initial_wait = None
        self._awaits_first_join = False
        self.decisions.append(CancelTimer(JOIN_TIMER))
        for member in [m for m in self.roster if m.joining is None and m.group_instance_id is None]:
            self._remove(member)
        if len(self.roster) and not self.roster.elect_joined_leader():
            self._awaits_first_join = True
            return
        self.generation_id += 1
        self._awaited_syncs.clear()
        if not len(self.roster):
            self.protocol_name = None
            self._become(ClassicState.EMPTY)
            self._follow_subscriptions()
            self.decisions.append(Append((self.record({}),)))
            return
        self.protocol_name = self.roster.select_protocol()
        self._become(ClassicState.COMPLETING_REBALANCE)
        self._follow_subscriptions()
        for member in self.roster:
            self._answer_join(member, self._generation_for(member))
            self._expect_heartbeat(member, member.session_timeout_ms)
            member.is_new = False
            self._awaited_syncs.add(member.member_id)
        self.decisions.append(SetTimer(SYNC_TIMER, self.roster.rebalance_timeout_ms))

    def _withdraw_assignments(self, error: ErrorClass) -> None:
        for member in self.roster:
            self.roster.set_assignment(member, b"")
            if self._answer_sync(member, SyncResult(error)):
                self._expect_heartbeat(member, member.session_timeout_ms)
