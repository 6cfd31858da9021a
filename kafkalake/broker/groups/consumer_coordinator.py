"""The coordinator of groups of the consumer protocol (KIP-848): heartbeats, what is shown of groups, and news of topics.

Beside `groups.coordinator`, which carries out what groups decide. A group moves from the classic protocol to this one with the
first member of this one that joins it, and its committed offsets stay. While it has members of the classic protocol, that is a
live change (`groups.upgrade`), which `group.consumer.migration.policy` has to allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafkalake.broker.callbacks import Place, call_isolated
from kafkalake.broker.coordination.shards import NAME_BYTES_MAX
from kafkalake.broker.groups.classic import ClassicGroup
from kafkalake.broker.groups.classic_state import State
from kafkalake.broker.groups.consumer import ConsumerGroup
from kafkalake.broker.groups.consumer_checks import check_request
from kafkalake.broker.groups.consumer_requests import (
    JOIN_EPOCH,
    ConsumerGroupDescription,
    HeartbeatRequest,
    HeartbeatResult,
)
from kafkalake.broker.groups.coordinator import GroupCoordinator
from kafkalake.broker.groups.table import GroupEntry
from kafkalake.broker.groups.upgrade import upgraded
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    InvalidRequestError,
    KafkaError,
    RebalanceInProgressError,
)


class ConsumerGroups:
    """Groups of the consumer protocol among the coordinator's."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator
        self._table = coordinator.table

    def heartbeat(self, group_id: str, request: HeartbeatRequest, reply: Callable[[HeartbeatResult], None]) -> None:
        """ConsumerGroupHeartbeat: join, stay, leave. Answered when what it changes is durable."""
        try:
            if not group_id.strip():
                raise InvalidRequestError("GroupId can't be empty.")
            check_request(request)
            _check_names(request, self._coordinator.config.group_member_metadata_max_bytes)
            partition = self._table.check(group_id)
            entry = self._entry(group_id, partition, joins=request.member_epoch == JOIN_EPOCH)
        except KafkaError as error:
            reply(HeartbeatResult(type(error), message=str(error)))
            return
        assert isinstance(entry.group, ConsumerGroup)

        def answered(result: HeartbeatResult) -> None:
            reply(result)
            if result.error is not None:
                self._take_back(entry)

        entry.group.heartbeat(request, answered)
        self._coordinator.carry_out(entry)

    def _entry(self, group_id: str, partition: int, *, joins: bool) -> GroupEntry:
        """The group, which the first member makes one of this protocol. Raises `GroupIdNotFoundError`."""
        if not joins:
            return self._existing(group_id)
        self._coordinator.check_room(group_id)
        entry = self._table.find_or_create(group_id, partition)
        if isinstance(entry.group, ClassicGroup):
            if entry.group.state is State.DEAD:
                raise CoordinatorNotAvailableError
            if entry.group.state is State.EMPTY:
                entry.group.die(CoordinatorNotAvailableError)
                self._coordinator.carry_out(entry)
                self._become_consumer_group(entry)
            else:
                self._upgrade(entry, entry.group)
        return entry

    def _become_consumer_group(self, entry: GroupEntry) -> ConsumerGroup:
        is_on_its_way = self._coordinator.unsettled[entry.partition] > 0
        return self._table.become_consumer_group(entry, is_on_its_way=is_on_its_way)

    def _upgrade(self, entry: GroupEntry, group: ClassicGroup) -> None:
        """Let a classic group be one of this protocol with the members it has. Raise `GroupIdNotFoundError` where it may not."""
        coordinator = self._coordinator
        records = upgraded(group, coordinator.config, coordinator.topics())
        if records is None:
            raise GroupIdNotFoundError(f"Group {group.group_id} is not a consumer group.")
        group.die(RebalanceInProgressError)
        coordinator.carry_out(entry)
        coordinator.take_seat(entry)
        consumers = self._become_consumer_group(entry)
        consumers.begin_as(records)
        consumers.restored()

    def _existing(self, group_id: str) -> GroupEntry:
        entry = self._table.find(group_id)
        if entry is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        if not isinstance(entry.group, ConsumerGroup):
            raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
        return entry

    def _take_back(self, entry: GroupEntry) -> None:
        """The group's first member was refused, or could not be written: it is what it was before."""
        group = entry.group
        if not isinstance(group, ConsumerGroup) or group.is_written or group.is_at_work or group.dead:
            return
        if self._table.find(group.group_id) is entry:
            self._coordinator.take_seat(entry)
            self._table.become_classic(entry)
            entry.group.restored()
            self._coordinator.carry_out(entry)

    def describe(self, group_id: str) -> ConsumerGroupDescription:
        """ConsumerGroupDescribe, one group. Raises `GroupIdNotFoundError`."""
        self._table.check(group_id)
        group = self._existing(group_id).group
        assert isinstance(group, ConsumerGroup)
        if not group.exists:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return group.describe()

    def topics_changed(self, names: Iterable[str]) -> None:
        """Topics came, went or have more partitions: groups that may read them look at their next heartbeat."""
        changed = frozenset(names)
        for entry in self._table:
            group = entry.group
            if isinstance(group, ConsumerGroup) and group.may_read(changed):
                call_isolated(Place.COORDINATED, group.topics_changed)


def _check_names(request: HeartbeatRequest, bytes_max: int) -> None:
    """Names that go into the journal fit its formats, and all together the limit of a member."""
    said = [request.regex, request.assignor, *(request.topics or ())]
    if sum(len(name or "") for name in said) > bytes_max:
        raise InvalidRequestError("The subscription is too long (group.member.metadata.max.bytes).")
    names = [request.member_id, request.client_id, request.client_host, request.group_instance_id, request.rack_id]
    if any(len((name or "").encode()) > NAME_BYTES_MAX for name in names):
        raise InvalidRequestError("A name is too long.")
