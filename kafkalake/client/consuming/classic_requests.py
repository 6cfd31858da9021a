"""The requests of a member of a classic group as values, and the members that an answer names. Source: Kafka protocol guide."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kafkalake.client.consuming.assignors import Assignor, GroupMember
from kafkalake.client.consuming.membership import GroupRequest, Identity
from kafkalake.client.consuming.settings import ConsumerSettings
from kafkalake.client.requests import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from kafkalake.topic_partition import TopicPartition, by_topic
from kafkalake.wire.consumer_protocol import (
    Subscription,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafkalake.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

PROTOCOL_TYPE = "consumer"
_JOIN_EXTRA_MS = 5_000
"""JoinGroup is answered when all members have joined, at the latest after the rebalance timeout: how much longer a member waits."""


def _rebalance_timeout_ms(settings: ConsumerSettings) -> int:
    return max(settings.request_timeout_ms, settings.max_poll_interval_ms + _JOIN_EXTRA_MS)


def join_request(
    settings: ConsumerSettings,
    member_id: str,
    topics: Collection[str],
    assignors: Sequence[Assignor],
    kept: tuple[TopicPartition, ...],
    last_assignment: tuple[Sequence[TopicPartition], int],
) -> GroupRequest:
    """Return JoinGroup. kept: the partitions that the member has still. last_assignment: partitions and generation."""
    owned, generation = last_assignment
    protocols = [
        JoinGroupRequestProtocol(
            name=assignor.name,
            metadata=encode_subscription(
                Subscription(
                    tuple(sorted(topics)),
                    assignor.encode_user_data(owned, generation),
                    kept,
                    generation,
                    settings.client_rack or None,
                )
            ),
        )
        for assignor in assignors
    ]
    message = JoinGroupRequest(
        group_id=settings.group_id or "",
        session_timeout=settings.session_timeout_ms,
        rebalance_timeout=settings.max_poll_interval_ms,
        member_id=member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
    )
    return GroupRequest(JOIN_GROUP, message, _rebalance_timeout_ms(settings))


def sync_request(
    settings: ConsumerSettings, identity: Identity, assignments: Mapping[str, Sequence[TopicPartition]]
) -> GroupRequest:
    """Return SyncGroup, with the partitions of each member if this one leads the group."""
    message = SyncGroupRequest(
        group_id=settings.group_id or "",
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(by_topic(partitions)))
            for member_id, partitions in assignments.items()
        ],
    )
    return GroupRequest(SYNC_GROUP, message, _rebalance_timeout_ms(settings))


def heartbeat_request(settings: ConsumerSettings, identity: Identity) -> GroupRequest:
    """Return Heartbeat."""
    message = HeartbeatRequest(
        group_id=settings.group_id or "",
        generation_id=identity.generation,
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
    )
    return GroupRequest(HEARTBEAT, message)


def leave_request(settings: ConsumerSettings, member_id: str) -> GroupRequest:
    """Return LeaveGroup."""
    message = LeaveGroupRequest(group_id=settings.group_id or "", member_id=member_id)
    return GroupRequest(LEAVE_GROUP, message)


def members_of(joined: JoinGroupResponse) -> dict[str, GroupMember]:
    """Return the members of a group by id, as its leader is told of them."""
    return {
        member.member_id: GroupMember(decode_subscription(bytes(member.metadata)), member.group_instance_id)
        for member in joined.members
    }
