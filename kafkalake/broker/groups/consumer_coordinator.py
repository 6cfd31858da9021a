"""The coordinator of consumer protocol groups (KIP-848): heartbeats, descriptions and topic changes.

`groups.coordinator` carries out the groups' decisions. A classic group becomes a consumer group when the first member of the
consumer protocol joins, and keeps its committed offsets. While it has classic members, that is an online migration
(`groups.upgrade`), which `group.consumer.migration.policy` has to allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.table import check_names
from kafkalake.broker.groups.classic import ClassicGroup
from kafkalake.broker.groups.classic_state import ClassicState
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
    """Requests to the coordinator's groups of the consumer protocol."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator
        self._table = coordinator.table

    def heartbeat(self, group_id: str, request: HeartbeatRequest, reply: Callable[[HeartbeatResult], None]) -> None:
        """Handle ConsumerGroupHeartbeat (join, stay, leave). Reply when the changes are durable."""
        try:
            if not group_id.strip():
                raise InvalidRequestError("GroupId can't be empty.")
            check_request(request)
            _check_size(request, self._coordinator.config.group_member_metadata_max_bytes)
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
        self._coordinator.effects.run(entry)

    def _entry(self, group_id: str, partition: int, *, joins: bool) -> GroupEntry:
        """Return the group, converted to this protocol if a member joins. Raise `GroupIdNotFoundError` if there is none."""
        if not joins:
            return self._existing(group_id)
        self._coordinator.check_room(group_id)
        entry = self._table.find_or_create(group_id, partition)
        if isinstance(entry.group, ClassicGroup):
            if entry.group.state is ClassicState.DEAD:
                raise CoordinatorNotAvailableError
            if entry.group.state is ClassicState.EMPTY:
                entry.group.die(CoordinatorNotAvailableError)
                self._coordinator.effects.run(entry)
                self._become_consumer_group(entry)
            else:
                self._upgrade(entry, entry.group)
        return entry

    def _become_consumer_group(self, entry: GroupEntry) -> ConsumerGroup:
        is_on_its_way = self._coordinator.unsettled[entry.partition] > 0
        return self._table.become_consumer_group(entry, is_on_its_way=is_on_its_way)

    def _upgrade(self, entry: GroupEntry, group: ClassicGroup) -> None:
        """Convert a classic group with its members to this protocol. Raise `GroupIdNotFoundError` if that is not allowed."""
        coordinator = self._coordinator
        records = upgraded(group, coordinator.config, coordinator.topics())
        if records is None:
            raise GroupIdNotFoundError(f"Group {group.group_id} is not a consumer group.")
        group.die(RebalanceInProgressError)
        coordinator.effects.run(entry)
        coordinator.effects.cancel_all(entry)
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
        """Restore the previous group if its first member was refused or could not be written."""
        group = entry.group
        if not isinstance(group, ConsumerGroup) or group.is_written or group.is_at_work or group.dead:
            return
        if self._table.find(group.group_id) is entry:
            self._coordinator.effects.cancel_all(entry)
            self._table.become_classic(entry)
            entry.group.restored()
            self._coordinator.effects.run(entry)

    def describe(self, group_id: str) -> ConsumerGroupDescription:
        """Handle ConsumerGroupDescribe for one group. Raise `GroupIdNotFoundError`."""
        self._table.check(group_id)
        group = self._existing(group_id).group
        assert isinstance(group, ConsumerGroup)
        if not group.exists:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        return group.describe()

    def topics_changed(self, names: Iterable[str]) -> None:
        """Note that topics were created, deleted or extended. Groups that may subscribe to them check at their next heartbeat."""
        changed = frozenset(names)
        for entry in self._table:
            group = entry.group
            if isinstance(group, ConsumerGroup) and group.may_read(changed):
                call_isolated(CallbackLoop.COORDINATED, group.topics_changed)


def _check_size(request: HeartbeatRequest, bytes_max: int) -> None:
    """Raise `InvalidRequestError` if a name does not fit the journal's formats, or the subscription exceeds `bytes_max`."""
    said = [request.regex, request.assignor, *(request.topics or ())]
    if sum(len(name or "") for name in said) > bytes_max:
        raise InvalidRequestError("The subscription is too long (group.member.metadata.max.bytes).")
    check_names(request.member_id, request.client_id, request.client_host, request.group_instance_id, request.rack_id)
