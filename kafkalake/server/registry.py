"""The APIs of this broker: key, name, versions, handler. ApiVersions advertises this list.

An API is listed once it works in all listed versions. One line each. The handler's docstring describes versions and behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from kafkalake.server.authorizer import Operation, Resource
from kafkalake.server.context import AdvertisedApis, ListedApis
from kafkalake.server.coordinated import of_coordinator
from kafkalake.server.forwarding import of_controller
from kafkalake.server.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    add_raft_voter,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    api_versions,
    append_staged,
    broker_heartbeat,
    broker_registration,
    consumer_group_describe,
    consumer_group_heartbeat,
    controller_registration,
    controller_vote,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delay_records,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    deliver_records,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delayed,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    envelope,
    expire_delegation_token,
    fetch,
    fetch_segment,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    known_transactions,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    lowest_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    read_share_group_state,
    read_share_group_state_summary,
    remove_raft_voter,
    renew_delegation_token,
    report_changes,
    sasl_authenticate,
    sasl_handshake,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    update_image,
    write_share_group_state,
    write_txn_markers,
)
from kafkalake.server.request import Answer, Request
from kafkalake.wire.messages import (
    cluster,
    controller,
    delayed,
    groups,
    membership,
    offsets,
    own_schemas,  # noqa: F401 (no request waits for its import)
    records,
    replication,
    reports,
    security,
    share_groups,
    topics,
    transactions,
)
from kafkalake.wire.messages.message import Message, Response
from kafkalake.wire.messages.own_keys import (
    CONTROLLER_VOTE_KEY,
    DELAY_RECORDS_KEY,
    DELIVER_RECORDS_KEY,
    DESCRIBE_DELAYED_KEY,
    FETCH_SEGMENT_KEY,
    KNOWN_TRANSACTIONS_KEY,
    LOWEST_OFFSETS_KEY,
    OWN_FROM,
    REPORT_CHANGES_KEY,
    UPDATE_IMAGE_KEY,
)
from kafkalake.wire.produce_request import API_KEY as PRODUCE_KEY
from kafkalake.wire.produce_request import ProduceBody
from kafkalake.wire.staged_append import API_KEY as APPEND_STAGED_KEY

Body = TypeVar("Body")
Asked = TypeVar("Asked", bound=Message)

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, IDEMPOTENT_WRITE = Operation.ALTER, Operation.DESCRIBE, Operation.IDEMPOTENT_WRITE
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
CLUSTER_ACTION = Operation.CLUSTER_ACTION


class Api(NamedTuple):
    """One API. `advertised_lowest` differs from `lowest` for Produce alone.

    operations: what a request does with each kind of resource, for which its principal must be authorized (`Request.allows`).
    is_controllers: the controller answers it, or a part of it. Another broker forwards it (`forwarding`).
    """

    key: int
    name: str
    lowest: int
    highest: int
    request: type[Any]
    handle: Callable[[Request[Any]], Answer]
    advertised_lowest: int
    operations: Mapping[Resource, Operation]
    is_controllers: bool


def _api(
    key: int,
    lowest: int,
    highest: int,
    request: type[Body],
    handle: Callable[[Request[Body]], Answer],
    name: str | None = None,
    advertised_lowest: int | None = None,
    is_controllers: bool = False,
    **operations: Operation,
) -> Api:
    """`operations`: by the name of their resource, in lower case."""
    return Api(
        key,
        name or request.__name__.removesuffix("Request"),
        lowest,
        highest,
        request,
        handle,
        lowest if advertised_lowest is None else advertised_lowest,
        {Resource[resource.upper()]: operation for resource, operation in operations.items()},
        is_controllers,
    )


def _controllers(
    key: int,
    lowest: int,
    highest: int,
    request: type[Asked],
    handle: Callable[[Request[Asked]], Answer],
    refusal: Callable[[Asked, int, str], Response],
    **operations: Operation,
) -> Api:
    """Return the row of an API that the controller answers. `refusal`: see `forwarding`."""
    return _api(key, lowest, highest, request, of_controller(handle, refusal), None, None, True, **operations)


def _coordinators(
    key: int,
    lowest: int,
    highest: int,
    request: type[Asked],
    handle: Callable[[Request[Asked]], Answer],
    **operations: Operation,
) -> Api:
    """Return the row of an API that a coordinator answers from what it knows, see `coordinated`."""
    return _api(key, lowest, highest, request, of_coordinator(handle), None, None, False, **operations)


OFFSET_COMMIT_KEY = 8
API_VERSIONS_KEY = 18
TXN_OFFSET_COMMIT_KEY = 28

# fmt: off
_ALL = (
    # Apache Kafka 4 advertises Produce from 0 on too: librdkafka compresses only where it sees that version.
    _api(PRODUCE_KEY, 3, 13, ProduceBody, produce.handle, "Produce", 0, topic=WRITE, transactional_id=WRITE),
    _api(1, 4, 18, records.FetchRequest, fetch.handle, topic=READ, cluster=CLUSTER_ACTION),
    _api(2, 1, 10, records.ListOffsetsRequest, list_offsets.handle, topic=DESCRIBE),
    _api(3, 0, 13, cluster.MetadataRequest, metadata.handle, topic=DESCRIBE),
    _coordinators(OFFSET_COMMIT_KEY, 2, 9, offsets.OffsetCommitRequest, offset_commit.handle, group=READ, topic=READ),
    _coordinators(9, 1, 9, offsets.OffsetFetchRequest, offset_fetch.handle, group=DESCRIBE, topic=DESCRIBE),
    _api(10, 0, 6, groups.FindCoordinatorRequest, find_coordinator.handle, group=DESCRIBE, transactional_id=DESCRIBE),
    _api(11, 0, 9, groups.JoinGroupRequest, join_group.handle, group=READ),
    _coordinators(12, 0, 4, groups.HeartbeatRequest, heartbeat.handle, group=READ),
    _coordinators(13, 0, 5, groups.LeaveGroupRequest, leave_group.handle, group=READ),
    _api(14, 0, 5, groups.SyncGroupRequest, sync_group.handle, group=READ),
    _coordinators(15, 0, 6, groups.DescribeGroupsRequest, describe_groups.handle, group=DESCRIBE),
    _api(16, 0, 5, groups.ListGroupsRequest, list_groups.handle, group=DESCRIBE),
    _api(17, 0, 1, security.SaslHandshakeRequest, sasl_handshake.handle),
    _api(API_VERSIONS_KEY, 0, 4, cluster.ApiVersionsRequest, api_versions.handle),
    _controllers(19, 2, 7, topics.CreateTopicsRequest, create_topics.handle, create_topics.refusal, cluster=CREATE, topic=CREATE),
    _controllers(20, 1, 6, topics.DeleteTopicsRequest, delete_topics.handle, delete_topics.refusal, topic=DELETE),
    _api(21, 0, 2, records.DeleteRecordsRequest, delete_records.handle, topic=DELETE),
    _coordinators(22, 0, 5, transactions.InitProducerIdRequest, init_producer_id.handle,
                  transactional_id=WRITE, cluster=IDEMPOTENT_WRITE),
    _api(23, 2, 4, records.OffsetForLeaderEpochRequest, offset_for_leader_epoch.handle, topic=DESCRIBE),
    _coordinators(24, 0, 5, transactions.AddPartitionsToTxnRequest, add_partitions_to_txn.handle,
                  transactional_id=WRITE, topic=WRITE),
    _coordinators(25, 0, 4, transactions.AddOffsetsToTxnRequest, add_offsets_to_txn.handle, transactional_id=WRITE, group=READ),
    _coordinators(26, 0, 5, transactions.EndTxnRequest, end_txn.handle, transactional_id=WRITE),
    _api(27, 1, 1, transactions.WriteTxnMarkersRequest, write_txn_markers.handle, cluster=ALTER),
    _coordinators(TXN_OFFSET_COMMIT_KEY, 0, 5, offsets.TxnOffsetCommitRequest, txn_offset_commit.handle,
                  transactional_id=WRITE, group=READ, topic=READ),
    _api(29, 1, 3, security.DescribeAclsRequest, describe_acls.handle, cluster=DESCRIBE),
    _api(30, 1, 3, security.CreateAclsRequest, create_acls.handle, cluster=ALTER),
    _api(31, 1, 3, security.DeleteAclsRequest, delete_acls.handle, cluster=ALTER),
    _api(32, 1, 4, topics.DescribeConfigsRequest, describe_configs.handle,
         topic=DESCRIBE_CONFIGS, cluster=DESCRIBE_CONFIGS, group=DESCRIBE_CONFIGS),
    _api(33, 0, 2, topics.AlterConfigsRequest, alter_configs.handle, is_controllers=True,
         topic=ALTER_CONFIGS, cluster=ALTER_CONFIGS, group=ALTER_CONFIGS),
    _api(34, 1, 2, controller.AlterReplicaLogDirsRequest, alter_replica_log_dirs.handle, cluster=ALTER),
    _api(35, 1, 4, cluster.DescribeLogDirsRequest, describe_log_dirs.handle, cluster=DESCRIBE),
    _api(36, 0, 2, security.SaslAuthenticateRequest, sasl_authenticate.handle),
    _controllers(37, 0, 3, topics.CreatePartitionsRequest, create_partitions.handle, create_partitions.refusal, topic=ALTER),
    _api(38, 1, 3, security.CreateDelegationTokenRequest, create_delegation_token.handle),
    _api(39, 1, 2, security.RenewDelegationTokenRequest, renew_delegation_token.handle),
    _api(40, 1, 2, security.ExpireDelegationTokenRequest, expire_delegation_token.handle),
    _api(41, 1, 3, security.DescribeDelegationTokenRequest, describe_delegation_token.handle),
    _coordinators(42, 0, 2, groups.DeleteGroupsRequest, delete_groups.handle, group=DELETE),
    _controllers(43, 0, 2, controller.ElectLeadersRequest, elect_leaders.handle, elect_leaders.refusal, cluster=ALTER),
    _api(44, 0, 1, topics.IncrementalAlterConfigsRequest, incremental_alter_configs.handle, is_controllers=True,
         topic=ALTER_CONFIGS, cluster=ALTER_CONFIGS, group=ALTER_CONFIGS),
    _controllers(45, 0, 1, controller.AlterPartitionReassignmentsRequest, alter_partition_reassignments.handle,
                 alter_partition_reassignments.refusal, cluster=ALTER),
    _controllers(46, 0, 0, controller.ListPartitionReassignmentsRequest, list_partition_reassignments.handle,
                 list_partition_reassignments.refusal, cluster=DESCRIBE),
    _coordinators(47, 0, 0, offsets.OffsetDeleteRequest, offset_delete.handle, group=DELETE, topic=READ),
    _api(48, 0, 1, controller.DescribeClientQuotasRequest, describe_client_quotas.handle, cluster=DESCRIBE_CONFIGS),
    _controllers(49, 0, 1, controller.AlterClientQuotasRequest, alter_client_quotas.handle, alter_client_quotas.refusal,
                 cluster=ALTER_CONFIGS),
    _api(50, 0, 0, security.DescribeUserScramCredentialsRequest, describe_user_scram_credentials.handle, cluster=DESCRIBE),
    _controllers(51, 0, 0, security.AlterUserScramCredentialsRequest, alter_user_scram_credentials.handle,
                 alter_user_scram_credentials.refusal, cluster=ALTER),
    _controllers(55, 0, 2, controller.DescribeQuorumRequest, describe_quorum.handle, describe_quorum.refusal, cluster=DESCRIBE),
    _controllers(57, 0, 2, controller.UpdateFeaturesRequest, update_features.handle, update_features.refusal, cluster=ALTER),
    _api(60, 0, 2, cluster.DescribeClusterRequest, describe_cluster.handle),
    _api(61, 0, 0, transactions.DescribeProducersRequest, describe_producers.handle, topic=READ),
    _controllers(64, 0, 0, controller.UnregisterBrokerRequest, unregister_broker.handle, unregister_broker.refusal, cluster=ALTER),
    _coordinators(65, 0, 0, transactions.DescribeTransactionsRequest, describe_transactions.handle,
                  transactional_id=DESCRIBE, topic=DESCRIBE),
    _api(66, 0, 2, transactions.ListTransactionsRequest, list_transactions.handle, transactional_id=DESCRIBE),
    _coordinators(68, 0, 1, groups.ConsumerGroupHeartbeatRequest, consumer_group_heartbeat.handle, group=READ, topic=DESCRIBE),
    _coordinators(69, 0, 1, groups.ConsumerGroupDescribeRequest, consumer_group_describe.handle, group=DESCRIBE, topic=DESCRIBE),
    _api(74, 0, 1, controller.ListConfigResourcesRequest, list_config_resources.handle, cluster=DESCRIBE_CONFIGS),
    _api(75, 0, 0, cluster.DescribeTopicPartitionsRequest, describe_topic_partitions.handle, topic=DESCRIBE),
    _api(76, 1, 1, share_groups.ShareGroupHeartbeatRequest, share_group_heartbeat.handle),
    _api(77, 1, 1, share_groups.ShareGroupDescribeRequest, share_group_describe.handle),
    _api(78, 1, 1, share_groups.ShareFetchRequest, share_fetch.handle),
    _api(79, 1, 1, share_groups.ShareAcknowledgeRequest, share_acknowledge.handle),
    _controllers(80, 0, 0, controller.AddRaftVoterRequest, add_raft_voter.handle, add_raft_voter.refusal, cluster=ALTER),
    _controllers(81, 0, 0, controller.RemoveRaftVoterRequest, remove_raft_voter.handle, remove_raft_voter.refusal,
                 cluster=ALTER),
    _api(83, 0, 0, share_groups.InitializeShareGroupStateRequest, initialize_share_group_state.handle, cluster=CLUSTER_ACTION),
    _api(84, 0, 0, share_groups.ReadShareGroupStateRequest, read_share_group_state.handle, cluster=CLUSTER_ACTION),
    _api(85, 0, 0, share_groups.WriteShareGroupStateRequest, write_share_group_state.handle, cluster=CLUSTER_ACTION),
    _api(86, 0, 0, share_groups.DeleteShareGroupStateRequest, delete_share_group_state.handle, cluster=CLUSTER_ACTION),
    _api(87, 0, 0, share_groups.ReadShareGroupStateSummaryRequest, read_share_group_state_summary.handle,
         cluster=CLUSTER_ACTION),
    _api(90, 0, 0, share_groups.DescribeShareGroupOffsetsRequest, describe_share_group_offsets.handle),
    _api(91, 0, 0, share_groups.AlterShareGroupOffsetsRequest, alter_share_group_offsets.handle),
    _api(92, 0, 0, share_groups.DeleteShareGroupOffsetsRequest, delete_share_group_offsets.handle),
)
_BETWEEN_BROKERS = (
    _api(56, 2, 3, membership.AlterPartitionRequest, alter_partition.handle, cluster=CLUSTER_ACTION),
    _api(58, 0, 0, membership.EnvelopeRequest, envelope.handle, cluster=CLUSTER_ACTION),
    _api(62, 0, 4, membership.BrokerRegistrationRequest, broker_registration.handle, cluster=CLUSTER_ACTION),
    _api(63, 0, 1, membership.BrokerHeartbeatRequest, broker_heartbeat.handle, cluster=CLUSTER_ACTION),
    _api(67, 0, 0, membership.AllocateProducerIdsRequest, allocate_producer_ids.handle, cluster=CLUSTER_ACTION),
    _api(70, 0, 0, membership.ControllerRegistrationRequest, controller_registration.handle, cluster=CLUSTER_ACTION),
    _api(FETCH_SEGMENT_KEY, 0, 0, replication.FetchSegmentRequest, fetch_segment.handle, cluster=CLUSTER_ACTION),
    _api(REPORT_CHANGES_KEY, 0, 0, reports.ReportChangesRequest, report_changes.handle, cluster=CLUSTER_ACTION),
    _api(UPDATE_IMAGE_KEY, 0, 0, membership.UpdateImageRequest, update_image.handle, cluster=CLUSTER_ACTION),
    _api(CONTROLLER_VOTE_KEY, 0, 0, membership.ControllerVoteRequest, controller_vote.handle, cluster=CLUSTER_ACTION),
    _coordinators(KNOWN_TRANSACTIONS_KEY, 0, 0, transactions.KnownTransactionsRequest, known_transactions.handle,
                  cluster=CLUSTER_ACTION),
    _coordinators(LOWEST_OFFSETS_KEY, 0, 0, offsets.LowestOffsetsRequest, lowest_offsets.handle, cluster=CLUSTER_ACTION),
    _api(DELAY_RECORDS_KEY, 0, 0, delayed.DelayRecordsRequest, delay_records.handle, cluster=CLUSTER_ACTION),
    _api(DELIVER_RECORDS_KEY, 0, 0, delayed.DeliverRecordsRequest, deliver_records.handle, cluster=CLUSTER_ACTION),
    _api(DESCRIBE_DELAYED_KEY, 0, 0, delayed.DescribeDelayedRequest, describe_delayed.handle, cluster=DESCRIBE),
)
# fmt: on
"""Kafka's, but for the last nine. Other clients have no use for them, so ApiVersions lists them to kafkalake's software only."""

_OWN = (
    _api(
        APPEND_STAGED_KEY,
        0,
        0,
        bytes,
        append_staged.handle,
        "AppendStaged",
        topic=WRITE,
        transactional_id=WRITE,
        cluster=DESCRIBE,
    ),
)
"""Not part of Kafka's protocol, so ApiVersions does not list it."""

APIS: dict[int, Api] = {api.key: api for api in _ALL + _BETWEEN_BROKERS + _OWN}
"""The APIs by key."""

# fmt: off
OF_CONTROLLERS = frozenset((
    API_VERSIONS_KEY, 19, 20, *range(29, 34), 37, *range(38, 42), *range(43, 47), 49, 50, 51, *range(55, 59), 60, 62, 63, 64, 67,
    70, 80, 81, UPDATE_IMAGE_KEY, CONTROLLER_VOTE_KEY,
))
# fmt: on
"""The APIs at a listener of controllers: those of Kafka's, without its protocol of Raft, and kafkalake's own."""

APPENDS = frozenset((PRODUCE_KEY, OFFSET_COMMIT_KEY, TXN_OFFSET_COMMIT_KEY))
"""APIs whose requests of one turn of the event loop are one append of the log."""


def advertised() -> AdvertisedApis:
    """Return the APIs as ApiVersions lists them."""
    forwarded = {api.key: api for api in _ALL if api.is_controllers}
    known = _ALL + _BETWEEN_BROKERS
    controllers = [api for api in known if api.key in OF_CONTROLLERS]
    kafkas = [api for api in controllers if api.key < OWN_FROM]
    brokers = ListedApis(clients=_listed(_ALL), nodes=_listed(known))
    return AdvertisedApis(brokers, ListedApis(clients=_listed(kafkas), nodes=_listed(controllers)), forwarded)


def _listed(apis: Iterable[Api]) -> list[cluster.ApiVersion]:
    return [
        cluster.ApiVersion(api_key=api.key, min_version=api.advertised_lowest, max_version=api.highest) for api in apis
    ]
