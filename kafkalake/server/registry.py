"""The APIs of this broker: key, name, versions, handler. ApiVersions advertises this list.

An API is listed once it works in all listed versions. One line each. The handler's docstring describes versions and behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from kafkalake.server.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    append_staged,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from kafkalake.server.request import Answer, Request
from kafkalake.wire.messages import cluster, groups, offsets, records, topics, transactions
from kafkalake.wire.produce_request import API_KEY as PRODUCE_KEY
from kafkalake.wire.produce_request import ProduceBody
from kafkalake.wire.staged_append import API_KEY as APPEND_STAGED_KEY

Body = TypeVar("Body")


class Api(NamedTuple):
    """One API. `advertised_lowest` differs from `lowest` for Produce alone."""

    key: int
    name: str
    lowest: int
    highest: int
    request: type[Any]
    handle: Callable[[Request[Any]], Answer]
    advertised_lowest: int


def _api(
    key: int,
    name: str,
    lowest: int,
    highest: int,
    request: type[Body],
    handle: Callable[[Request[Body]], Answer],
    advertised_lowest: int = -1,
) -> Api:
    return Api(key, name, lowest, highest, request, handle, lowest if advertised_lowest < 0 else advertised_lowest)


OFFSET_COMMIT_KEY = 8
API_VERSIONS_KEY = 18
TXN_OFFSET_COMMIT_KEY = 28

_ALL = (
    # Apache Kafka 4 advertises Produce from 0 on too: librdkafka compresses only where it sees that version.
    _api(PRODUCE_KEY, "Produce", 3, 13, ProduceBody, produce.handle, advertised_lowest=0),
    _api(1, "Fetch", 4, 18, records.FetchRequest, fetch.handle),
    _api(2, "ListOffsets", 1, 10, records.ListOffsetsRequest, list_offsets.handle),
    _api(3, "Metadata", 0, 13, cluster.MetadataRequest, metadata.handle),
    _api(OFFSET_COMMIT_KEY, "OffsetCommit", 2, 9, offsets.OffsetCommitRequest, offset_commit.handle),
    _api(9, "OffsetFetch", 1, 9, offsets.OffsetFetchRequest, offset_fetch.handle),
    _api(10, "FindCoordinator", 0, 6, groups.FindCoordinatorRequest, find_coordinator.handle),
    _api(11, "JoinGroup", 0, 9, groups.JoinGroupRequest, join_group.handle),
    _api(12, "Heartbeat", 0, 4, groups.HeartbeatRequest, heartbeat.handle),
    _api(13, "LeaveGroup", 0, 5, groups.LeaveGroupRequest, leave_group.handle),
    _api(14, "SyncGroup", 0, 5, groups.SyncGroupRequest, sync_group.handle),
    _api(15, "DescribeGroups", 0, 6, groups.DescribeGroupsRequest, describe_groups.handle),
    _api(16, "ListGroups", 0, 5, groups.ListGroupsRequest, list_groups.handle),
    _api(API_VERSIONS_KEY, "ApiVersions", 0, 4, cluster.ApiVersionsRequest, api_versions.handle),
    _api(19, "CreateTopics", 2, 7, topics.CreateTopicsRequest, create_topics.handle),
    _api(20, "DeleteTopics", 1, 6, topics.DeleteTopicsRequest, delete_topics.handle),
    _api(21, "DeleteRecords", 0, 2, records.DeleteRecordsRequest, delete_records.handle),
    _api(22, "InitProducerId", 0, 5, transactions.InitProducerIdRequest, init_producer_id.handle),
    _api(23, "OffsetForLeaderEpoch", 2, 4, records.OffsetForLeaderEpochRequest, offset_for_leader_epoch.handle),
    _api(24, "AddPartitionsToTxn", 0, 5, transactions.AddPartitionsToTxnRequest, add_partitions_to_txn.handle),
    _api(25, "AddOffsetsToTxn", 0, 4, transactions.AddOffsetsToTxnRequest, add_offsets_to_txn.handle),
    _api(26, "EndTxn", 0, 5, transactions.EndTxnRequest, end_txn.handle),
    _api(27, "WriteTxnMarkers", 1, 1, transactions.WriteTxnMarkersRequest, write_txn_markers.handle),
    _api(TXN_OFFSET_COMMIT_KEY, "TxnOffsetCommit", 0, 5, offsets.TxnOffsetCommitRequest, txn_offset_commit.handle),
    _api(32, "DescribeConfigs", 1, 4, topics.DescribeConfigsRequest, describe_configs.handle),
    _api(33, "AlterConfigs", 0, 2, topics.AlterConfigsRequest, alter_configs.handle),
    _api(35, "DescribeLogDirs", 1, 4, cluster.DescribeLogDirsRequest, describe_log_dirs.handle),
    _api(37, "CreatePartitions", 0, 3, topics.CreatePartitionsRequest, create_partitions.handle),
    _api(42, "DeleteGroups", 0, 2, groups.DeleteGroupsRequest, delete_groups.handle),
    _api(44, "IncrementalAlterConfigs", 0, 1, topics.IncrementalAlterConfigsRequest, incremental_alter_configs.handle),
    _api(47, "OffsetDelete", 0, 0, offsets.OffsetDeleteRequest, offset_delete.handle),
    _api(60, "DescribeCluster", 0, 2, cluster.DescribeClusterRequest, describe_cluster.handle),
    _api(61, "DescribeProducers", 0, 0, transactions.DescribeProducersRequest, describe_producers.handle),
    _api(65, "DescribeTransactions", 0, 0, transactions.DescribeTransactionsRequest, describe_transactions.handle),
    _api(66, "ListTransactions", 0, 2, transactions.ListTransactionsRequest, list_transactions.handle),
    _api(68, "ConsumerGroupHeartbeat", 0, 1, groups.ConsumerGroupHeartbeatRequest, consumer_group_heartbeat.handle),
    _api(69, "ConsumerGroupDescribe", 0, 1, groups.ConsumerGroupDescribeRequest, consumer_group_describe.handle),
    _api(75, "DescribeTopicPartitions", 0, 0, cluster.DescribeTopicPartitionsRequest, describe_topic_partitions.handle),
)

_OWN = (_api(APPEND_STAGED_KEY, "AppendStaged", 0, 0, bytes, append_staged.handle),)
"""Not part of Kafka's protocol, so ApiVersions does not list it."""

APIS: dict[int, Api] = {api.key: api for api in _ALL + _OWN}
"""The APIs by key."""

APPENDS = frozenset((PRODUCE_KEY, OFFSET_COMMIT_KEY, TXN_OFFSET_COMMIT_KEY))
"""APIs whose requests of one turn of the event loop are one append of the log."""


def advertised() -> list[cluster.ApiVersion]:
    """Return the APIs as listed in the ApiVersions response."""
    return [
        cluster.ApiVersion(api_key=api.key, min_version=api.advertised_lowest, max_version=api.highest) for api in _ALL
    ]
