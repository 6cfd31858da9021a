"""Requests of every version that the client speaks are what kio reads; fields that a version lacks are refused, not lost."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from kio.serial import entity_reader
from wire.message_codec import as_message

from kafkalake.client import requests
from kafkalake.client.requests import ClientApi, MalformedResponseError, decode_response, encode_request
from kafkalake.errors import UnsupportedVersionError
from kafkalake.wire.messages.schemas import request_schema
from kafkalake.wire.messages.topics import DescribeConfigsRequest

SAMPLES: dict[str, dict[str, Any]] = {
    "Produce": {
        "transactional_id": None,
        "acks": -1,
        "timeout": 30_000,
        "topic_data": [{"name": "clicks", "partition_data": [{"index": 3, "records": b"abc"}]}],
    },
    "Fetch": {
        "replica_id": -1,
        "max_wait": 500,
        "min_bytes": 1,
        "session_epoch": -1,
        "topics": [
            {"topic": "clicks", "partitions": [{"partition": 1, "fetch_offset": 7, "partition_max_bytes": 100}]}
        ],
    },
    "Fetch-18": {
        "max_wait": 500,
        "min_bytes": 1,
        "replica_state": {"replica_id": 2, "replica_epoch": 9},
        "topics": [
            {
                "topic_id": UUID(int=5),
                "partitions": [
                    {
                        "partition": 1,
                        "current_leader_epoch": 3,
                        "fetch_offset": 7,
                        "last_fetched_epoch": 2,
                        "log_start_offset": 1,
                        "partition_max_bytes": 100,
                        "high_watermark": 6,
                    }
                ],
            }
        ],
        "forgotten_topics_data": (),
    },
    "FetchSegment": {
        "replica_id": 2,
        "replica_epoch": 9,
        "topic_id": UUID(int=5),
        "partition": 1,
        "current_leader_epoch": 3,
        "base_offset": 7,
        "generation": 1,
        "position": 100,
        "length": 1_000,
    },
    "ListOffsets": {
        "replica_id": -1,
        "topics": [{"name": "clicks", "partitions": [{"partition_index": 0, "timestamp": -2}]}],
    },
    "Metadata": {"topics": [{"name": "clicks"}], "allow_auto_topic_creation": False},
    "ApiVersions": {},
    "CreateTopics": {
        "topics": [
            {
                "name": "clicks",
                "num_partitions": 4,
                "replication_factor": 1,
                "assignments": (),
                "configs": [{"name": "retention.ms", "value": "1"}],
            }
        ],
        "timeout": 1_000,
    },
    "DeleteTopics": {"topic_names": ("clicks",), "timeout": 1_000},
    "DeleteTopics-6": {"topics": [{"name": None, "topic_id": UUID(int=5)}], "timeout": 1_000},
    "DeleteRecords": {
        "topics": [{"name": "clicks", "partitions": [{"partition_index": 0, "offset": 5}]}],
        "timeout": 1_000,
    },
    "InitProducerId": {"transactional_id": None, "transaction_timeout": 1_000, "producer_id": -1, "producer_epoch": -1},
    "DescribeConfigs": {
        "resources": [{"resource_type": 2, "resource_name": "clicks", "configuration_keys": None}],
    },
    "CreatePartitions": {"topics": [{"name": "clicks", "count": 9, "assignments": None}], "timeout": 1_000},
    "IncrementalAlterConfigs": {
        "resources": [
            {
                "resource_type": 2,
                "resource_name": "clicks",
                "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1"}],
            }
        ],
    },
    "AddPartitionsToTxn": {
        "v3_and_below_transactional_id": "job",
        "v3_and_below_producer_id": 7,
        "v3_and_below_producer_epoch": 1,
        "v3_and_below_topics": [{"name": "clicks", "partitions": [0, 3]}],
    },
    "AddPartitionsToTxn-5": {
        "transactions": [
            {
                "transactional_id": "job",
                "producer_id": 7,
                "producer_epoch": 1,
                "verify_only": True,
                "topics": [{"name": "clicks", "partitions": [0, 3]}],
            }
        ]
    },
    "EndTxn": {"transactional_id": "job", "producer_id": 7, "producer_epoch": 1, "committed": True},
    "DescribeCluster": {},
    "DescribeLogDirs": {"topics": [{"topic": "clicks", "partitions": (0, 1)}]},
    "DescribeQuorum": {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
    "DescribeTopicPartitions": {
        "topics": [{"name": "clicks"}],
        "response_partition_limit": 9,
        "cursor": {"topic_name": "clicks", "partition_index": 3},
    },
    "ConsumerGroupDescribe": {"group_ids": ["etl", "billing"]},
    "FindCoordinator": {"key": "etl", "key_type": 0},
    "OffsetCommit": {
        "group_id": "etl",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [
            {
                "name": "clicks",
                "partitions": [
                    {
                        "partition_index": 0,
                        "committed_offset": 7,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                ],
            }
        ],
    },
    "OffsetFetch": {"group_id": "etl", "topics": None},
    "OffsetDelete": {"group_id": "etl", "topics": [{"name": "clicks", "partitions": [{"partition_index": 0}]}]},
    "JoinGroup": {
        "group_id": "etl",
        "session_timeout": 45_000,
        "rebalance_timeout": 20_000,
        "member_id": "m",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"abc"}],
    },
    "Heartbeat": {"group_id": "etl", "generation_id": 3, "member_id": "m"},
    "LeaveGroup": {"group_id": "etl", "member_id": "m"},
    "SyncGroup": {
        "group_id": "etl",
        "generation_id": 3,
        "member_id": "m",
        "assignments": [{"member_id": "m", "assignment": b"abc"}],
    },
    "DescribeGroups": {"groups": ("etl",)},
    "ListGroups": {},
    "DeleteGroups": {"groups_names": ("etl",)},
    "AlterPartition": {
        "broker_id": 1,
        "broker_epoch": 7,
        "topics": [
            {
                "topic_id": UUID(int=5),
                "partitions": [
                    {
                        "partition_index": 0,
                        "leader_epoch": 3,
                        "new_isr_with_epochs": [{"broker_id": 1, "broker_epoch": 7}],
                        "partition_epoch": 9,
                    }
                ],
            }
        ],
    },
    "Envelope": {
        "request_data": b"abc",
        "request_principal": b"User:a",
        "client_host_address": b"1234",
        "listener": "OUTSIDE",
    },
    "BrokerRegistration": {
        "broker_id": 1,
        "cluster_id": "c",
        "incarnation_id": UUID(int=6),
        "listeners": [{"name": "PLAINTEXT", "host": "localhost", "port": 65_535, "security_protocol": 0}],
        "machine": "m",
        "boot_id": "b",
        "is_cut": True,
    },
    "BrokerHeartbeat": {
        "broker_id": 1,
        "broker_epoch": 7,
        "current_metadata_offset": 8,
        "want_fence": True,
        "offline_topics": [{"topic_id": UUID(int=5), "partitions": (0, 2)}],
    },
    "ControllerRegistration": {
        "controller_id": 1,
        "incarnation_id": UUID(int=6),
        "listeners": [{"name": "CONTROLLER", "host": "localhost", "port": 65_535, "security_protocol": 0}],
    },
    "UnregisterBroker": {"broker_id": 1},
    "AllocateProducerIds": {"broker_id": 1, "broker_epoch": 7},
    "UpdateImage": {"version": 9, "timeout": 100},
    "ControllerVote": {"controller_epoch": 3},
    "KnownTransactions": {"producer_ids": [1, 2**60]},
    "LowestOffsets": {"topics": ["clicks", "views"]},
    "DescribeDelayed": {},
    "DelayRecords": {"batches": [{"journal_partition": 3, "transactional_id": "t", "records": b"batch"}]},
    "DeliverRecords": {"batches": [{"topic_id": UUID(int=5), "partition_index": 3, "records": b"batch"}]},
    "ReportChanges": {
        "controller_epoch": 3,
        "step": 2,
        "kind": 1,
        "part": 4,
        "published": [7, -1, 9],
        "kept": [{"name": "clicks", "partitions": [0, 5]}],
    },
    "WriteTxnMarkers": {
        "markers": [
            {
                "producer_id": 7,
                "producer_epoch": 1,
                "transaction_result": False,
                "topics": [{"name": "clicks", "partition_indexes": (0,)}],
                "coordinator_epoch": 0,
            }
        ]
    },
    "DescribeProducers": {"topics": [{"name": "clicks", "partition_indexes": (0, 1)}]},
    "DescribeTransactions": {"transactional_ids": ("copier",)},
    "ListTransactions": {"state_filters": ("Ongoing",), "producer_id_filters": (7,), "duration_filter": -1},
    "OffsetForLeaderEpoch": {
        "topics": [{"topic": "clicks", "partitions": [{"partition": 1, "current_leader_epoch": 3, "leader_epoch": 2}]}],
    },
    "AddOffsetsToTxn": {"transactional_id": "copier", "producer_id": 7, "producer_epoch": 1, "group_id": "etl"},
    "TxnOffsetCommit": {
        "transactional_id": "copier",
        "group_id": "etl",
        "producer_id": 7,
        "producer_epoch": 1,
        "topics": [
            {"name": "clicks", "partitions": [{"partition_index": 1, "committed_offset": 9, "committed_metadata": ""}]}
        ],
        "generation_id": 4,
        "member_id": "m",
    },
    "ElectLeaders": {
        "topic_partitions": [{"topic": "clicks", "partitions": (0, 1)}],
        "timeout": 1_000,
        "election_type": 1,
    },
    "AlterPartitionReassignments": {
        "timeout": 1_000,
        "topics": [{"name": "clicks", "partitions": [{"partition_index": 0, "replicas": (1, 2)}]}],
    },
    "ListPartitionReassignments": {"timeout": 1_000, "topics": [{"name": "clicks", "partition_indexes": (0,)}]},
    "ConsumerGroupHeartbeat": {
        "group_id": "etl",
        "member_id": "m",
        "rebalance_timeout": 60_000,
        "subscribed_topic_names": ("clicks",),
        "topic_partitions": (),
    },
}
_BY_ID = {
    "max_wait": 500,
    "min_bytes": 1,
    "topics": [
        {"topic_id": UUID(int=5), "partitions": [{"partition": 1, "fetch_offset": 7, "partition_max_bytes": 100}]}
    ],
    "forgotten_topics_data": [{"topic_id": UUID(int=6), "partitions": [2]}],
}
SAMPLES |= {f"Fetch-{version}": _BY_ID for version in range(13, 18)}
APIS = [value for value in vars(requests).values() if isinstance(value, ClientApi)]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("api", "version"),
    [
        pytest.param(api, version, id=f"{api.name}-{version}")
        for api in APIS
        for version in range(api.lowest, api.highest + 1)
    ],
)
def test_kio_reads_what_was_encoded(api: ClientApi[Any, Any], version: int) -> None:
    sample = as_message(api.request, SAMPLES.get(f"{api.name}-{version}") or SAMPLES[api.name])
    frame = encode_request(api, version, 77, "tests", sample)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    schema = request_schema(api.key, version)
    header, size = entity_reader(schema.__header_schema__)(frame[4:], 0)
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (api.key, version, 77)
    body, used = entity_reader(schema)(frame[4:], size)
    assert 4 + size + used == len(frame)
    assert encode_request(api, version, 77, "tests", sample) == frame
    assert type(body).__name__ == f"{api.name}Request"


def test_a_field_that_says_something_is_not_left_out() -> None:
    api, values = requests.DESCRIBE_CONFIGS, DescribeConfigsRequest(include_documentation=True)
    encode_request(api, 3, 1, "tests", values)
    with pytest.raises(UnsupportedVersionError, match="include documentation"):
        encode_request(api, 2, 1, "tests", values)


def test_bytes_that_are_no_response_are_malformed() -> None:
    with pytest.raises(MalformedResponseError, match="instead of 5"):
        decode_response(requests.METADATA, 12, 5, b"\0\0\0\7" + bytes(40))
    for cut in range(4, 12):
        with pytest.raises(MalformedResponseError):
            decode_response(requests.METADATA, 12, 5, b"\0\0\0\5" + b"\xff" * cut)
