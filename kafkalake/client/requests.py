"""The APIs that the client uses, and their requests and responses.

A `ClientApi` holds the versions this client can use, not all that exist. A request's fields missing from a version are dropped
if they hold no information (None, 0, -1, empty, the default), and refused otherwise. Source: Kafka protocol guide, "Messages".
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar, cast

from kafkalake.buffers import Buffer
from kafkalake.errors import InvalidRequestError
from kafkalake.wire import follower_fetch
from kafkalake.wire.messages import (
    cluster,
    codec,
    controller,
    delayed,
    groups,
    membership,
    offsets,
    records,
    replication,
    reports,
    topics,
    transactions,
)
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.own_keys import (
    CONTROLLER_VOTE_KEY,
    DELAY_RECORDS_KEY,
    DELIVER_RECORDS_KEY,
    DESCRIBE_DELAYED_KEY,
    FETCH_SEGMENT_KEY,
    KNOWN_TRANSACTIONS_KEY,
    LOWEST_OFFSETS_KEY,
    REPORT_CHANGES_KEY,
    UPDATE_IMAGE_KEY,
)

GROUP, TRANSACTION = 0, 1
"""Types of keys that have a coordinator, for FindCoordinator."""

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


class ClientApi(NamedTuple, Generic[Q, A]):
    """One Kafka API: key, messages, lowest and highest version that this client supports."""

    key: int
    request: type[Q]
    response: type[A]
    lowest: int
    highest: int

    @property
    def name(self) -> str:
        """Kafka's name of the API."""
        return self.request.__name__.removesuffix("Request")


PRODUCE = ClientApi(0, records.ProduceRequest, records.ProduceResponse, 7, 12)
# From version 12 on the first batch to a partition adds it to the transaction (KIP-890).
PRODUCE_BEFORE_TRANSACTIONS_2 = ClientApi(0, records.ProduceRequest, records.ProduceResponse, 7, 11)
# Between brokers: of a transaction whose partitions were added before.
PRODUCE_TO_LEADER = ClientApi(0, records.ProduceRequest, records.ProduceResponse, 11, 11)
# Later versions use topic ids.
FETCH = ClientApi(1, records.FetchRequest, records.FetchResponse, 4, 12)
FETCH_BY_ID = ClientApi(1, records.FetchRequest, records.FetchResponse, 13, 17)
# Between brokers: by topic ids, with the follower's watermark and kafkalake's own fields.
FETCH_AS_FOLLOWER = ClientApi(1, records.FetchRequest, records.FetchResponse, 18, 18)
FETCH_SEGMENT = ClientApi(FETCH_SEGMENT_KEY, replication.FetchSegmentRequest, replication.FetchSegmentResponse, 0, 0)
DELAY_RECORDS = ClientApi(DELAY_RECORDS_KEY, delayed.DelayRecordsRequest, delayed.DelayRecordsResponse, 0, 0)
DELIVER_RECORDS = ClientApi(DELIVER_RECORDS_KEY, delayed.DeliverRecordsRequest, delayed.DeliverRecordsResponse, 0, 0)
DESCRIBE_DELAYED = ClientApi(
    DESCRIBE_DELAYED_KEY, delayed.DescribeDelayedRequest, delayed.DescribeDelayedResponse, 0, 0
)
LOWEST_OFFSETS = ClientApi(LOWEST_OFFSETS_KEY, offsets.LowestOffsetsRequest, offsets.LowestOffsetsResponse, 0, 0)
LIST_OFFSETS = ClientApi(2, records.ListOffsetsRequest, records.ListOffsetsResponse, 2, 8)
METADATA = ClientApi(3, cluster.MetadataRequest, cluster.MetadataResponse, 5, 12)
OFFSET_COMMIT = ClientApi(8, offsets.OffsetCommitRequest, offsets.OffsetCommitResponse, 6, 9)
# Later versions name several groups.
OFFSET_FETCH = ClientApi(9, offsets.OffsetFetchRequest, offsets.OffsetFetchResponse, 5, 7)
# Later versions name several groups.
FIND_COORDINATOR = ClientApi(10, groups.FindCoordinatorRequest, groups.FindCoordinatorResponse, 1, 3)
JOIN_GROUP = ClientApi(11, groups.JoinGroupRequest, groups.JoinGroupResponse, 2, 9)
HEARTBEAT = ClientApi(12, groups.HeartbeatRequest, groups.HeartbeatResponse, 0, 3)
# Later versions name several members.
LEAVE_GROUP = ClientApi(13, groups.LeaveGroupRequest, groups.LeaveGroupResponse, 0, 2)
SYNC_GROUP = ClientApi(14, groups.SyncGroupRequest, groups.SyncGroupResponse, 0, 3)
DESCRIBE_GROUPS = ClientApi(15, groups.DescribeGroupsRequest, groups.DescribeGroupsResponse, 4, 6)
LIST_GROUPS = ClientApi(16, groups.ListGroupsRequest, groups.ListGroupsResponse, 2, 5)
API_VERSIONS = ClientApi(18, cluster.ApiVersionsRequest, cluster.ApiVersionsResponse, 0, 3)
CREATE_TOPICS = ClientApi(19, topics.CreateTopicsRequest, topics.CreateTopicsResponse, 4, 7)
DELETE_TOPICS = ClientApi(20, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse, 1, 5)
DELETE_TOPICS_BY_ID = ClientApi(20, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse, 6, 6)
DELETE_RECORDS = ClientApi(21, records.DeleteRecordsRequest, records.DeleteRecordsResponse, 0, 2)
OFFSET_FOR_LEADER_EPOCH = ClientApi(23, records.OffsetForLeaderEpochRequest, records.OffsetForLeaderEpochResponse, 3, 4)
INIT_PRODUCER_ID = ClientApi(22, transactions.InitProducerIdRequest, transactions.InitProducerIdResponse, 0, 4)
# Later versions are for brokers.
ADD_PARTITIONS_TO_TXN = ClientApi(
    24, transactions.AddPartitionsToTxnRequest, transactions.AddPartitionsToTxnResponse, 0, 3
)
# The same between brokers, for several transactions.
ADMIT_TO_TXN = ClientApi(24, transactions.AddPartitionsToTxnRequest, transactions.AddPartitionsToTxnResponse, 5, 5)
ADD_OFFSETS_TO_TXN = ClientApi(25, transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse, 0, 3)
TXN_OFFSET_COMMIT = ClientApi(28, offsets.TxnOffsetCommitRequest, offsets.TxnOffsetCommitResponse, 3, 4)
# The same with transactions of version 2, where it adds the group's offsets to the transaction.
TXN_OFFSET_COMMIT_AND_ADD = ClientApi(28, offsets.TxnOffsetCommitRequest, offsets.TxnOffsetCommitResponse, 5, 5)
END_TXN_AND_RAISE_EPOCH = ClientApi(26, transactions.EndTxnRequest, transactions.EndTxnResponse, 5, 5)
# Later versions bump the epoch, useless for a producer with one transaction.
END_TXN = ClientApi(26, transactions.EndTxnRequest, transactions.EndTxnResponse, 0, 3)
KNOWN_TRANSACTIONS = ClientApi(
    KNOWN_TRANSACTIONS_KEY, transactions.KnownTransactionsRequest, transactions.KnownTransactionsResponse, 0, 0
)
WRITE_TXN_MARKERS = ClientApi(27, transactions.WriteTxnMarkersRequest, transactions.WriteTxnMarkersResponse, 1, 1)
DESCRIBE_LOG_DIRS = ClientApi(35, cluster.DescribeLogDirsRequest, cluster.DescribeLogDirsResponse, 1, 4)
DESCRIBE_QUORUM = ClientApi(55, controller.DescribeQuorumRequest, controller.DescribeQuorumResponse, 0, 2)
DESCRIBE_CONFIGS = ClientApi(32, topics.DescribeConfigsRequest, topics.DescribeConfigsResponse, 1, 4)
CREATE_PARTITIONS = ClientApi(37, topics.CreatePartitionsRequest, topics.CreatePartitionsResponse, 0, 3)
ELECT_LEADERS = ClientApi(43, controller.ElectLeadersRequest, controller.ElectLeadersResponse, 1, 2)
DELETE_GROUPS = ClientApi(42, groups.DeleteGroupsRequest, groups.DeleteGroupsResponse, 1, 2)
INCREMENTAL_ALTER_CONFIGS = ClientApi(
    44, topics.IncrementalAlterConfigsRequest, topics.IncrementalAlterConfigsResponse, 0, 1
)
ALTER_PARTITION_REASSIGNMENTS = ClientApi(
    45, controller.AlterPartitionReassignmentsRequest, controller.AlterPartitionReassignmentsResponse, 0, 1
)
LIST_PARTITION_REASSIGNMENTS = ClientApi(
    46, controller.ListPartitionReassignmentsRequest, controller.ListPartitionReassignmentsResponse, 0, 0
)
# Version 3 has the epochs of the brokers in an ISR.
ALTER_PARTITION = ClientApi(56, membership.AlterPartitionRequest, membership.AlterPartitionResponse, 3, 3)
OFFSET_DELETE = ClientApi(47, offsets.OffsetDeleteRequest, offsets.OffsetDeleteResponse, 0, 0)
DESCRIBE_CLUSTER = ClientApi(60, cluster.DescribeClusterRequest, cluster.DescribeClusterResponse, 0, 2)
DESCRIBE_TOPIC_PARTITIONS = ClientApi(
    75, cluster.DescribeTopicPartitionsRequest, cluster.DescribeTopicPartitionsResponse, 0, 0
)
CONSUMER_GROUP_HEARTBEAT = ClientApi(
    68, groups.ConsumerGroupHeartbeatRequest, groups.ConsumerGroupHeartbeatResponse, 0, 1
)
CONSUMER_GROUP_DESCRIBE = ClientApi(69, groups.ConsumerGroupDescribeRequest, groups.ConsumerGroupDescribeResponse, 0, 1)
DESCRIBE_PRODUCERS = ClientApi(61, transactions.DescribeProducersRequest, transactions.DescribeProducersResponse, 0, 0)
DESCRIBE_TRANSACTIONS = ClientApi(
    65, transactions.DescribeTransactionsRequest, transactions.DescribeTransactionsResponse, 0, 0
)
ENVELOPE = ClientApi(58, membership.EnvelopeRequest, membership.EnvelopeResponse, 0, 0)
# Version 4 has kafkalake's own fields.
BROKER_REGISTRATION = ClientApi(62, membership.BrokerRegistrationRequest, membership.BrokerRegistrationResponse, 4, 4)
CONTROLLER_REGISTRATION = ClientApi(
    70, membership.ControllerRegistrationRequest, membership.ControllerRegistrationResponse, 0, 0
)
BROKER_HEARTBEAT = ClientApi(63, membership.BrokerHeartbeatRequest, membership.BrokerHeartbeatResponse, 1, 1)
UNREGISTER_BROKER = ClientApi(64, controller.UnregisterBrokerRequest, controller.UnregisterBrokerResponse, 0, 0)
ALLOCATE_PRODUCER_IDS = ClientApi(
    67, membership.AllocateProducerIdsRequest, membership.AllocateProducerIdsResponse, 0, 0
)
UPDATE_IMAGE = ClientApi(UPDATE_IMAGE_KEY, membership.UpdateImageRequest, membership.UpdateImageResponse, 0, 0)
CONTROLLER_VOTE = ClientApi(
    CONTROLLER_VOTE_KEY, membership.ControllerVoteRequest, membership.ControllerVoteResponse, 0, 0
)
REPORT_CHANGES = ClientApi(REPORT_CHANGES_KEY, reports.ReportChangesRequest, reports.ReportChangesResponse, 0, 0)
LIST_TRANSACTIONS = ClientApi(66, transactions.ListTransactionsRequest, transactions.ListTransactionsResponse, 0, 1)


class MalformedResponseError(Exception):
    """Bytes that are not the expected response: the peer does not speak Kafka's protocol."""


def encode_request(api: ClientApi[Q, A], version: int, correlation_id: int, client_id: str, message: Q) -> bytes:
    """Encode a request with its size prefix. Raise `UnsupportedVersionError` for a field that `version` cannot carry."""
    if isinstance(message, records.FetchRequest) and version == follower_fetch.VERSION:
        frame = follower_fetch.encode_fetch(correlation_id, client_id, message)
        if frame is not None:
            return frame
    return codec.encode_request(api.key, version, correlation_id, client_id, message)


def decode_response(api: ClientApi[Q, A], version: int, correlation_id: int, data: Buffer) -> A:
    """Decode the response in `data`, a frame without its size. Raise `MalformedResponseError` if malformed."""
    try:
        if api.response is records.FetchResponse and version == follower_fetch.VERSION:
            fetched = follower_fetch.decode_fetched(correlation_id, data)
            if fetched is not None:
                return cast(A, fetched)
        return codec.decode_response(api.response, api.key, version, correlation_id, data)
    except InvalidRequestError as error:
        raise MalformedResponseError(f"no {api.name} response (version {version}): {error}") from error


def error_name(code: int) -> str:
    """Return Kafka's name of an error code in words, the number for one that is unknown here."""
    from kio.schema.errors import ErrorCode  # not before `wire.messages` imports kio

    return ErrorCode(code).name.replace("_", " ") if code in ErrorCode._value2member_map_ else str(code)
