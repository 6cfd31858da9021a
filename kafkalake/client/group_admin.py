"""Administration of groups: list, describe, delete, and their committed offsets.

Requests for one group go to its coordinator. Broker errors are raised as the classes of `kafkalake.errors`.
Source: Kafka protocol guide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafkalake.client.cluster import BrokerNode, Cluster
from kafkalake.client.connection import BrokerConnection
from kafkalake.client.coordinators import GROUP, ask_coordinator, coordinator, raise_error
from kafkalake.client.requests import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
)
from kafkalake.errors import GroupIdNotFoundError, NonEmptyGroupError, UnsupportedVersionError
from kafkalake.topic_partition import TopicPartition, by_topic
from kafkalake.wire.consumer_protocol import decode_assignment
from kafkalake.wire.messages.groups import (
    Assignment,
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafkalake.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
)

_NO_GENERATION = -1


@dataclass(frozen=True)
class ListedGroup:
    """A group of the cluster. `group_type` is "" if the broker's version lacks it."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class GroupOffset:
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str


def list_groups(cluster: Cluster) -> list[ListedGroup]:
    """Return all groups of all brokers, by name."""

    def ask() -> list[ListedGroup]:
        found = []
        for node in cluster.brokers():
            answer = cluster.broker(node.broker_id).request(LIST_GROUPS, ListGroupsRequest())
            raise_error(answer.error_code, "the list of groups")
            found += [
                ListedGroup(
                    group.group_id,
                    group.protocol_type,
                    group.group_state,
                    group.group_type,
                )
                for group in answer.groups
            ]
        return sorted(found, key=lambda group: group.group_id)

    return cluster.retrying(ask)


def describe_group(cluster: Cluster, group_id: str) -> Group:
    """Return a group's state and members, whatever its protocol. Raise `GroupIdNotFoundError` if it does not exist."""

    def ask() -> Group:
        node, connection = coordinator(cluster, GROUP, group_id)
        found = _describe_consumer_group(node, connection, group_id)
        if found is not None:
            return found
        answer = connection.request(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=(group_id,)))
        (group,) = answer.groups
        raise_error(group.error_code, f"group '{group_id}'")
        if group.group_state == "Dead":
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
        return Group(group_id, group.group_state, group.protocol_type, group.protocol_data, members, node)

    return cluster.retrying(ask)


def _describe_consumer_group(node: BrokerNode, connection: BrokerConnection, group_id: str) -> Group | None:
    """Return a group of the consumer protocol, None if it is classic, does not exist, or the broker is too old."""
    try:
        answer = connection.request(CONSUMER_GROUP_DESCRIBE, ConsumerGroupDescribeRequest(group_ids=(group_id,)))
        (group,) = answer.groups
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
        node,
        "consumer",
        group.group_epoch,
        group.assignment_epoch,
    )


def _partitions_of(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted((topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions)
    )


def delete_group(cluster: Cluster, group_id: str) -> None:
    """Delete a group without members, with its offsets. Raise `NonEmptyGroupError` or `GroupIdNotFoundError`."""
    try:
        ask_coordinator(
            cluster,
            GROUP,
            group_id,
            DELETE_GROUPS,
            DeleteGroupsRequest(groups_names=(group_id,)),
            lambda answer: raise_error(answer.results[0].error_code, f"group '{group_id}'"),
        )
    except NonEmptyGroupError:
        raise NonEmptyGroupError(f"group '{group_id}' still has members") from None
    except GroupIdNotFoundError:
        raise GroupIdNotFoundError(f"group '{group_id}' does not exist") from None


def committed_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, GroupOffset]:
    """Return all committed offsets of a group, none if the group does not exist."""
    answer = ask_coordinator(cluster, GROUP, group_id, OFFSET_FETCH, OffsetFetchRequest(group_id=group_id, topics=None))
    found = {}
    for topic in answer.topics:
        for each in topic.partitions:
            raise_error(each.error_code, f"partition {topic.name}-{each.partition_index}")
            if each.committed_offset >= 0:
                epoch = each.committed_leader_epoch
                found[str(topic.name), each.partition_index] = GroupOffset(
                    each.committed_offset, epoch, each.metadata or ""
                )
    return found


def commit_offsets(
    cluster: Cluster,
    group_id: str,
    offsets: Mapping[TopicPartition, int],
    *,
    generation: int = _NO_GENERATION,
    member_id: str = "",
) -> None:
    """Commit offsets as a member of a generation, or for a group without members.

    Raise `UnknownMemberIdError` if the group has other members, `IllegalGenerationError` if the generation is over.
    """
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offsets[topic, index],
                    committed_leader_epoch=-1,
                    committed_metadata="",
                )
                for index in indices
            ],
        )
        for topic, indices in by_topic(offsets).items()
    ]
    values = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=topics,
    )

    def check(answer: OffsetCommitResponse) -> None:
        """Raise a member's error, which every partition of the response repeats."""
        raise_error(answer.topics[0].partitions[0].error_code, f"group '{group_id}'")

    if topics:
        _check_partitions(ask_coordinator(cluster, GROUP, group_id, OFFSET_COMMIT, values, check))


def delete_offsets(cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]) -> None:
    """Delete committed offsets. Raise `GroupSubscribedToTopicError` for topics the group is subscribed to."""
    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indices]
        )
        for topic, indices in by_topic(partitions).items()
    ]
    values = OffsetDeleteRequest(group_id=group_id, topics=topics)
    _check_partitions(ask_coordinator(cluster, GROUP, group_id, OFFSET_DELETE, values))


def _check_partitions(answer: OffsetCommitResponse | OffsetDeleteResponse) -> None:
    for topic in answer.topics:
        for each in topic.partitions:
            raise_error(each.error_code, f"partition {topic.name}-{each.partition_index}")
