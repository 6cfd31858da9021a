"""Groups: list, describe, delete, of both protocols.

Requests for one group go to its coordinator. Broker errors are raised as the classes of `kafkalake.errors`.
Source: Kafka protocol guide.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafkalake.client.administration.answers import find_result, raise_error
from kafkalake.client.administration.brokers import ask_all_brokers
from kafkalake.client.administration.call import AdminCall
from kafkalake.client.cluster import BrokerNode
from kafkalake.client.network.script import Script
from kafkalake.client.requests import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
)
from kafkalake.errors import GroupIdNotFoundError, NonEmptyGroupError, UnsupportedVersionError
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.consumer_protocol import decode_assignment
from kafkalake.wire.messages.groups import (
    Assignment,
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
)


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group of the cluster. `group_type` is "" if the broker's version lacks it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group. `partitions` is its assignment, if the group's protocol type is "consumer".

    In groups of the consumer protocol (KIP-848) also its `epoch` and `target`, its target assignment.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    epoch: int | None = None
    target: tuple[TopicPartition, ...] | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """A group as described by its coordinator. The epochs are those of a group of the consumer protocol (KIP-848)."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: BrokerNode
    group_type: str = "classic"
    epoch: int | None = None
    assignment_epoch: int | None = None


def list_groups(call: AdminCall) -> Script[list[ListedGroup]]:
    """Return all groups of all brokers, by name, each once: one whose coordinator moves meanwhile may be named by two brokers."""
    answers = yield from ask_all_brokers(
        call, LIST_GROUPS, ListGroupsRequest(), lambda answer: raise_error(answer.error_code, "the list of groups")
    )
    found = {
        group.group_id: ListedGroup(group.group_id, group.protocol_type, group.group_state, group.group_type)
        for answer in answers.values()
        for group in answer.groups
    }
    return [found[group_id] for group_id in sorted(found)]


def describe_group(call: AdminCall, group_id: str) -> Script[Group]:
    """Return a group's state and members, whatever its protocol. Raise `GroupIdNotFoundError` if it does not exist."""

    def attempt() -> Script[Group]:
        broker_id = yield from call.coordinator(GROUP, group_id)
        found = yield from _describe_consumer_group(call, broker_id, group_id)
        return found if found is not None else (yield from _describe_classic_group(call, broker_id, group_id))

    return (yield from call.retrying(attempt))


def _describe_classic_group(call: AdminCall, broker_id: int, group_id: str) -> Script[Group]:
    answer = yield from call.request(broker_id, DESCRIBE_GROUPS, DescribeGroupsRequest(groups=(group_id,)))
    group = find_result(answer.groups, lambda each: each.group_id == group_id, f"group '{group_id}'")
    if group.error_code != GroupIdNotFoundError.code:
        raise_error(group.error_code, f"group '{group_id}'")
    if group.error_code or group.group_state == "Dead":
        raise GroupIdNotFoundError(f"group '{group_id}' does not exist")
    members = tuple(
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            decode_assignment(bytes(member.member_assignment)) if group.protocol_type == "consumer" else (),
        )
        for member in group.members
    )
    return Group(group_id, group.group_state, group.protocol_type, group.protocol_data, members, call.broker(broker_id))


def _describe_consumer_group(call: AdminCall, broker_id: int, group_id: str) -> Script[Group | None]:
    """Return a group of the consumer protocol, None if it is classic, does not exist, or the broker is too old."""
    message = ConsumerGroupDescribeRequest(group_ids=(group_id,))
    try:
        answer = yield from call.request(broker_id, CONSUMER_GROUP_DESCRIBE, message)
        group = find_result(answer.groups, lambda each: each.group_id == group_id, f"group '{group_id}'")
        raise_error(group.error_code, f"group '{group_id}'")
    except (GroupIdNotFoundError, UnsupportedVersionError):
        return None
    members = tuple(
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _partitions_of(member.assignment),
            member.member_epoch,
            _partitions_of(member.target_assignment),
        )
        for member in group.members
    )
    return Group(
        group_id,
        group.group_state,
        "consumer",
        group.assignor_name,
        members,
        call.broker(broker_id),
        "consumer",
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions_of(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted((topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions)
    )


def delete_group(call: AdminCall, group_id: str) -> Script[None]:
    """Delete a group without members, with its offsets. Raise `NonEmptyGroupError` or `GroupIdNotFoundError`."""

    def check(answer: DeleteGroupsResponse) -> None:
        result = find_result(answer.results, lambda each: each.group_id == group_id, f"group '{group_id}'")
        raise_error(result.error_code, f"group '{group_id}'")

    message = DeleteGroupsRequest(groups_names=(group_id,))
    try:
        yield from call.ask_coordinator(GROUP, group_id, DELETE_GROUPS, message, check)
    except NonEmptyGroupError:
        raise NonEmptyGroupError(f"group '{group_id}' still has members") from None
    except GroupIdNotFoundError:
        raise GroupIdNotFoundError(f"group '{group_id}' does not exist") from None


def remove_member(call: AdminCall, group_id: str, member_id: str) -> Script[None]:
    """Remove a member from a group of the classic protocol. It joins again if it is still there.

    Raise `UnknownMemberIdError` or `GroupIdNotFoundError`.
    """
    message = LeaveGroupRequest(group_id=group_id, member_id=member_id)
    yield from call.ask_coordinator(GROUP, group_id, LEAVE_GROUP, message)
