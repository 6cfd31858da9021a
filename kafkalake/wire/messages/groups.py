"""Messages of groups and of the coordinators."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kafkalake.buffers import Buffer
from kafkalake.wire.messages.message import Message, Response


class FindCoordinatorRequest(Message):
    key: str = ""
    key_type: int = 0
    coordinator_keys: Sequence[str] = ()


class Coordinator(Message):
    key: str = ""
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_code: int = 0
    error_message: str | None = None


class FindCoordinatorResponse(Response):
    error_code: int = 0
    node_id: int = 0
    host: str = ""
    port: int = 0
    error_message: str | None = None
    coordinators: Sequence[Coordinator] = ()


class JoinGroupRequestProtocol(Message):
    name: str = ""
    metadata: Buffer = b""


class JoinGroupRequest(Message):
    group_id: str = ""
    session_timeout: int = 0
    member_id: str = ""
    protocol_type: str = ""
    protocols: Sequence[JoinGroupRequestProtocol] = ()
    rebalance_timeout: int = -1
    group_instance_id: str | None = None
    reason: str | None = None


class JoinGroupResponseMember(Message):
    member_id: str = ""
    metadata: Buffer = b""
    group_instance_id: str | None = None


class JoinGroupResponse(Response):
    error_code: int = 0
    generation_id: int = -1
    protocol_name: str | None = None
    leader: str = ""
    member_id: str = ""
    members: Sequence[JoinGroupResponseMember] = ()
    protocol_type: str | None = None
    skip_assignment: bool = False


class HeartbeatRequest(Message):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None


class HeartbeatResponse(Response):
    error_code: int = 0


class MemberIdentity(Message):
    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveGroupRequest(Message):
    group_id: str = ""
    member_id: str = ""
    members: Sequence[MemberIdentity] = ()


class MemberResponse(Message):
    member_id: str = ""
    group_instance_id: str | None = None
    error_code: int = 0


class LeaveGroupResponse(Response):
    error_code: int = 0
    members: Sequence[MemberResponse] = ()


class SyncGroupRequestAssignment(Message):
    member_id: str = ""
    assignment: Buffer = b""


class SyncGroupRequest(Message):
    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    assignments: Sequence[SyncGroupRequestAssignment] = ()
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


class SyncGroupResponse(Response):
    error_code: int = 0
    assignment: Buffer = b""
    protocol_type: str | None = None
    protocol_name: str | None = None


class DescribeGroupsRequest(Message):
    groups: Sequence[str] = ()
    include_authorized_operations: bool = False


class DescribedGroupMember(Message):
    member_id: str = ""
    client_id: str = ""
    client_host: str = ""
    member_metadata: Buffer = b""
    member_assignment: Buffer = b""
    group_instance_id: str | None = None


class DescribedGroup(Message):
    error_code: int = 0
    group_id: str = ""
    group_state: str = ""
    protocol_type: str = ""
    protocol_data: str = ""
    members: Sequence[DescribedGroupMember] = ()
    authorized_operations: int = -(2**31)
    error_message: str | None = None


class DescribeGroupsResponse(Response):
    groups: Sequence[DescribedGroup] = ()


class ListGroupsRequest(Message):
    states_filter: Sequence[str] = ()
    types_filter: Sequence[str] = ()


class ListedGroup(Message):
    group_id: str = ""
    protocol_type: str = ""
    group_state: str = ""
    group_type: str = ""


class ListGroupsResponse(Response):
    error_code: int = 0
    groups: Sequence[ListedGroup] = ()


class DeleteGroupsRequest(Message):
    groups_names: Sequence[str] = ()


class DeletableGroupResult(Message):
    group_id: str = ""
    error_code: int = 0


class DeleteGroupsResponse(Response):
    results: Sequence[DeletableGroupResult] = ()


class TopicPartitions(Message):
    topic_id: UUID | None = None
    topic_name: str = ""
    partitions: Sequence[int] = ()


class ConsumerGroupHeartbeatRequest(Message):
    group_id: str = ""
    member_id: str = ""
    member_epoch: int = 0
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout: int = -1
    subscribed_topic_names: Sequence[str] | None = None
    server_assignor: str | None = None
    topic_partitions: Sequence[TopicPartitions] | None = ()
    subscribed_topic_regex: str | None = None


class Assignment(Message):
    topic_partitions: Sequence[TopicPartitions] = ()


class ConsumerGroupHeartbeatResponse(Response):
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval: int = 0
    assignment: Assignment | None = None


class ConsumerGroupDescribeRequest(Message):
    group_ids: Sequence[str] = ()
    include_authorized_operations: bool = False


class Member(Message):
    member_id: str = ""
    instance_id: str | None = None
    rack_id: str | None = None
    member_epoch: int = 0
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: Sequence[str] = ()
    subscribed_topic_regex: str | None = None
    assignment: Assignment = Assignment()
    target_assignment: Assignment = Assignment()
    member_type: int = -1


class ConsumerGroupDescribeDescribedGroup(Message):
    error_code: int = 0
    error_message: str | None = None
    group_id: str = ""
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: Sequence[Member] = ()
    authorized_operations: int = -(2**31)


class ConsumerGroupDescribeResponse(Response):
    groups: Sequence[ConsumerGroupDescribeDescribedGroup] = ()
