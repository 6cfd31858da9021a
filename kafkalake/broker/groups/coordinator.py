"""The group coordinator: routes each request to its group and carries out the group's decisions.

The rules are in the automata and in `groups.table`, the encoding in `groups.records`. `coordination.journaled_coordinator` loads
the groups from the journal and writes their records, `coordination.automata` carries out all other decisions.

Needs no event loop: a request that may wait takes `reply`, a function called exactly once, at once or later, on the same thread.
All other requests return or raise. `groups.offset_requests` handles committed offsets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, TypeVar

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.automata import EffectRunner
from kafkalake.broker.coordination.decisions import Append, ErrorClass
from kafkalake.broker.coordination.fields import JournalFormatError
from kafkalake.broker.coordination.journal import Journal, ProducerIdAndEpoch, Timers
from kafkalake.broker.coordination.journaled_coordinator import JournaledCoordinator, OnWritten
from kafkalake.broker.coordination.table import MetadataMemory, check_names
from kafkalake.broker.groups.classic import ClassicGroup
from kafkalake.broker.groups.classic_description import describe, summary
from kafkalake.broker.groups.config import GroupConfig
from kafkalake.broker.groups.consumer import ConsumerGroup
from kafkalake.broker.groups.consumer_checks import leaver
from kafkalake.broker.groups.consumer_requests import LEAVE_EPOCH, HeartbeatRequest, HeartbeatResult
from kafkalake.broker.groups.consumer_sessions import Downgrade, GroupTiming, PendingWrite
from kafkalake.broker.groups.consumer_topics import TopicsNow
from kafkalake.broker.groups.journal_format import GROUP_FORMAT, Record
from kafkalake.broker.groups.records import OffsetRecord
from kafkalake.broker.groups.requests import (
    GroupDescription,
    GroupSummary,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from kafkalake.broker.groups.roster import metadata_bytes
from kafkalake.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from kafkalake.broker.groups.table import Group, GroupEntry, GroupTable
from kafkalake.clock import Clock
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    KafkaError,
    MemberIdRequiredError,
    NotCoordinatorError,
    UnknownMemberIdError,
)

T = TypeVar("T")


class GroupCoordinator:
    """Coordinates the groups of the journal partitions that were loaded.

    `new_uuid` returns fresh text for member ids, `topics` the topics that groups of the consumer protocol can read now.
    """

    def __init__(
        self,
        config: GroupConfig,
        clock: Clock,
        timers: Timers,
        journal: Journal,
        new_uuid: Callable[[], str],
        topics: TopicsNow = dict,
        timing: GroupTiming | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.timers = timers
        self.unsettled: Counter[int] = Counter()
        """Journal partition -> number of batches with group records that are being written to it."""
        self._on_settled: dict[int, list[Callable[[None], None]]] = defaultdict(list)
        self.topics = topics
        self._new_uuid = new_uuid
        memory = MetadataMemory()
        self.table = GroupTable(
            lambda: journal.partitions,
            lambda group_id: ClassicGroup(group_id, config, clock, new_uuid, memory),
            lambda group_id, replaces: ConsumerGroup(
                group_id, config, clock, topics, replaces_classic=replaces, timing=timing, memory=memory
            ),
            memory,
        )
        self.effects: EffectRunner[GroupEntry] = EffectRunner(timers, self._decided)
        self.journaled = JournaledCoordinator(self.table, GROUP_FORMAT, journal, clock, self.effects)
        self._lingering: list[Callable[[], None]] = []

    # The classic protocol

    def join_group(self, group_id: str, request: JoinRequest, reply: Callable[[JoinResult], None]) -> None:
        """Handle JoinGroup. The first member without an id creates the group."""
        try:
            partition = self.table.check(group_id)
            check_names(request.member_id, request.client_id, request.client_host, request.protocol_type)
            check_names(request.group_instance_id, *(protocol.name for protocol in request.protocols))
            config = self.config
            if (
                not config.group_min_session_timeout_ms
                <= request.session_timeout_ms
                <= config.group_max_session_timeout_ms
            ):
                raise InvalidSessionTimeoutError
            entry = self.table.find(group_id)
            if request.member_id and entry is None:
                raise UnknownMemberIdError
            self.check_room(group_id)
            if entry is not None and isinstance(entry.group, ConsumerGroup):
                if entry.group.dead:
                    raise CoordinatorNotAvailableError
                if not entry.group.is_vacant:
                    self._join_consumer_group(entry, entry.group, request, reply)
                    return
                if request.member_id:
                    raise UnknownMemberIdError
        except KafkaError as error:
            reply(JoinResult(type(error), request.member_id))
            return
        if entry is not None and isinstance(entry.group, ConsumerGroup):
            self._end_consumer_group(entry, entry.group, lambda: self.join_group(group_id, request, reply), reply)
            return
        entry = self.table.find_or_create(group_id, partition)
        assert isinstance(entry.group, ClassicGroup)
        entry.group.join(request, reply)
        self.effects.run(entry)
        if not entry.written and entry.group.is_vacant and not len(entry.offsets) and not entry.offsets.has_pending:
            self.table.forget(entry)  # refused before the group began

    def check_room(self, group_id: str) -> None:
        """Raise `CoordinatorNotAvailableError` if a new group would exceed the limits of groups or memory."""
        if self.table.find(group_id) is not None:
            return
        if len(self.table) >= self.config.group_coordinator_groups_max:
            raise CoordinatorNotAvailableError("too many groups (group.coordinator.groups.max)")
        if self.table.memory.bytes + len(group_id) > self.config.group_coordinator_metadata_max_bytes:
            raise CoordinatorNotAvailableError("names of groups are too long (group.coordinator.metadata.max.bytes)")

    def _join_consumer_group(
        self, entry: GroupEntry, group: ConsumerGroup, request: JoinRequest, reply: Callable[[JoinResult], None]
    ) -> None:
        """Join a classic member to a consumer group (KIP-848). Raise `InconsistentGroupProtocolError`, `InvalidRequestError`."""
        if metadata_bytes(request.protocols) > self.config.group_member_metadata_max_bytes:
            raise InvalidRequestError
        member_id = request.member_id or f"{request.group_instance_id or request.client_id}-{self._new_uuid()}"
        try:
            join = group.classic_join(request, member_id)
        except JournalFormatError as error:
            raise InconsistentGroupProtocolError from error
        if not request.member_id and request.group_instance_id is None and request.member_id_required:
            reply(JoinResult(MemberIdRequiredError, member_id))
            return

        def joined(result: HeartbeatResult) -> None:
            if result.error is not None:
                reply(JoinResult(result.error, request.member_id))
                return
            name = request.protocols[0].name
            reply(JoinResult(None, member_id, result.member_epoch, CONSUMER_PROTOCOL_TYPE, name))

        group.heartbeat(join, joined)
        self.effects.run(entry)

    def _end_consumer_group(
        self, entry: GroupEntry, group: ConsumerGroup, then: Callable[[], None], reply: Callable[[JoinResult], None]
    ) -> None:
        """Write the tombstones of an empty group. Its offsets stay."""
        group.die(CoordinatorNotAvailableError)
        self.effects.run(entry)

        def written(error: ErrorClass | None) -> None:
            if error is None:
                then()
            else:
                group.revive()
                reply(JoinResult(error, ""))

        self.write(entry.partition, group.tombstones(), written)

    def sync_group(self, group_id: str, request: SyncRequest, reply: Callable[[SyncResult], None]) -> None:
        """Handle SyncGroup."""
        try:
            entry, group = self._group_of_member(group_id)
            if isinstance(group, ConsumerGroup):
                reply(self._answered(entry, lambda: group.classic_sync(request)))
                return
        except KafkaError as error:
            reply(SyncResult(type(error)))
            return
        group.sync(request, reply)
        self.effects.run(entry)

    def heartbeat(
        self, group_id: str, member_id: str, generation_id: int, group_instance_id: str | None = None
    ) -> None:
        """Handle Heartbeat. Raise what the member must do, for example `RebalanceInProgressError`."""
        entry, group = self._group_of_member(group_id)
        beat = group.classic_heartbeat if isinstance(group, ConsumerGroup) else group.heartbeat
        self._answered(entry, lambda: beat(member_id, generation_id, group_instance_id))

    def leave_group(
        self, group_id: str, leaving: Sequence[LeavingMember], reply: Callable[[list[LeaveResult]], None]
    ) -> None:
        """Handle LeaveGroup. Reply with results in the order of `leaving`. Raise errors of the group as a whole."""
        self.table.check(group_id)
        entry = self.table.find(group_id)
        if entry is None or not leaving:
            reply([LeaveResult(*one, UnknownMemberIdError) for one in leaving])
        elif isinstance(entry.group, ConsumerGroup):
            self._leave_consumer_group(entry, entry.group, leaving, reply)
        else:
            found = entry.group.leave(leaving)
            self.effects.run(entry)
            reply(found)

    def _leave_consumer_group(
        self,
        entry: GroupEntry,
        group: ConsumerGroup,
        leaving: Sequence[LeavingMember],
        reply: Callable[[list[LeaveResult]], None],
    ) -> None:
        """Remove members of the consumer protocol for an administrator. Members themselves leave by heartbeat.

        One that is named more than once leaves once, with the same result each time, as in Kafka.
        """
        found = [leaver(group.state, one) for one in leaving]
        going = {each: one.group_instance_id for each, one in zip(found, leaving, strict=True) if isinstance(each, str)}
        errors: dict[str, ErrorClass | None] = {}

        def left(member_id: str, error: ErrorClass | None) -> None:
            errors[member_id] = error
            if len(errors) == len(going):
                answer()

        def answer() -> None:
            said = (errors[each] if isinstance(each, str) else each for each in found)
            reply([LeaveResult(*one, error) for one, error in zip(leaving, said, strict=True)])

        for member_id, instance_id in going.items():
            request = HeartbeatRequest(member_id, LEAVE_EPOCH, group_instance_id=instance_id)
            group.heartbeat(request, lambda result, member_id=member_id: left(member_id, result.error))
            self.effects.run(entry)
        if not going:
            answer()

    def _answered(self, entry: GroupEntry, ask: Callable[[], T]) -> T:
        """Return or raise the result of `ask` after carrying out the group's decisions."""
        try:
            return ask()
        finally:
            self.effects.run(entry)

    def _group_of_member(self, group_id: str) -> tuple[GroupEntry, Group]:
        self.table.check(group_id)
        entry = self.table.find(group_id)
        if entry is None:
            raise UnknownMemberIdError
        return entry, entry.group

    # Describing groups

    def describe_group(self, group_id: str) -> GroupDescription:
        """Handle DescribeGroups for one group. Raise `GroupIdNotFoundError` (old versions show such a group as Dead)."""
        self.table.check(group_id, may_be_empty=True)
        entry = self.table.find(group_id)
        if entry is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        if isinstance(entry.group, ConsumerGroup):
            raise GroupIdNotFoundError(f"Group {group_id} is not a classic group.")
        return describe(entry.group)

    def list_groups(
        self, states: Collection[str] = (), group_types: Collection[str] = ()
    ) -> Generator[None, None, list[GroupSummary]]:
        """Return the groups in any of `states` and of any of `group_types`, ignoring case. Empty means all.

        It yields after each group: there may be a million.
        """
        wanted_states = {state.lower() for state in states}
        wanted_types = {group_type.lower() for group_type in group_types}
        found = []
        for entry in self.table:
            one = summary(entry.group)
            if (not wanted_states or one.state.lower() in wanted_states) and (
                not wanted_types or one.group_type in wanted_types
            ):
                found.append(one)
            yield
        return found

    # Carrying out

    def _downgrade(self, entry: GroupEntry, group: ConsumerGroup, decision: Downgrade) -> None:
        """Turn the group into a classic one because only classic members are left, and rebalance it."""
        group_id = group.group_id

        def written(error: ErrorClass | None) -> None:
            if error is not None:
                group.appended(decision.ticket, error)
                self.effects.run(entry)
                return
            self.effects.cancel_all(entry)
            self.effects.run_these(entry, group.downgraded())
            classic = self.table.find(group_id)
            if classic is not None and isinstance(classic.group, ClassicGroup):
                self.table.become_classic(classic)
                assert isinstance(classic.group, ClassicGroup)
                classic.group.restored()
                classic.group.rebalance()
                self.effects.run(classic)

        records: tuple[Any, ...] = decision.records
        self.write(entry.partition, records, written)

    def _decided(self, entry: GroupEntry, decision: Append | Downgrade) -> None:
        if isinstance(decision, Downgrade):
            assert isinstance(entry.group, ConsumerGroup)
            self._downgrade(entry, entry.group, decision)
        else:
            self._append(entry, decision)

    def _append(self, entry: GroupEntry, decision: Append) -> None:
        group = entry.group

        def written(error: ErrorClass | None) -> None:
            group.appended(decision.ticket, error)
            self.effects.run(entry)

        records: tuple[Any, ...] = decision.records
        # Only heartbeat responses may linger. Removals are written at once.
        is_heartbeat = isinstance(decision.ticket, PendingWrite) and decision.ticket.waiter is not None
        self.write(entry.partition, records, written, may_wait=is_heartbeat)

    def write(
        self,
        partition: int,
        records: Sequence[Record],
        written: OnWritten,
        producer: ProducerIdAndEpoch | None = None,
        *,
        may_wait: bool = False,
    ) -> None:
        """Append `records` as one batch. Once it is durable, apply it, then call `written`.

        may_wait: the batch may wait for others, for `group.coordinator.append.linger.ms`.
        """
        if isinstance(records[-1], OffsetRecord):
            self.journaled.write(partition, records, written, producer)
            return
        self.unsettled[partition] += 1

        def settled(error: ErrorClass | None) -> None:
            self.unsettled[partition] -= 1
            try:
                written(error)
            finally:
                if not self.unsettled[partition]:
                    for action in self._on_settled.pop(partition, ()):
                        action(None)

        if may_wait and self.config.group_coordinator_append_linger_ms:
            shard = self.table.shard(partition)

            def append() -> None:
                if self.table.shard(partition) is shard:
                    self.journaled.write(partition, records, settled)
                else:
                    settled(NotCoordinatorError)  # unloaded meanwhile: the records are of a state that is no more

            self._linger(append)
        else:
            self.flush()  # group records stay in order
            self.journaled.write(partition, records, settled)

    def when_settled(self, partition: int, action: Callable[[None], None]) -> None:
        """Call `action` once, when the last of the batches with group records is written to the partition, or has failed."""
        self._on_settled[partition].append(action)

    def _linger(self, append: Callable[[], None]) -> None:
        """Delay a batch to gather others, in order, until `group.coordinator.append.linger.ms` after the first one."""
        self._lingering.append(append)
        if len(self._lingering) == 1:
            self.timers.schedule(self.config.group_coordinator_append_linger_ms, self.flush)

    def flush(self) -> None:
        """Pass lingering batches to the journal."""
        lingering, self._lingering = self._lingering, []
        for append in lingering:
            call_isolated(CallbackLoop.COORDINATED, append)
