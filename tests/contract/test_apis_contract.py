"""The APIs of both brokers, and the answers to those that are refused where SASL and share groups are not enabled."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from contract.wire_client import WireClient, code
from kafka_reference import ApacheKafka, BrokerProcess, Kafkalake

NOT_COORDINATOR, ILLEGAL_SASL_STATE, UNSUPPORTED_VERSION = 16, 34, 35
NOWHERE = UUID(int=7)


def api_versions(broker: BrokerProcess) -> Any:
    with WireClient(broker.bootstrap_servers) as client:
        return client.call("ApiVersions", 4, client_software_name="test", client_software_version="1")


def test_the_apis_are_those_of_apache_kafka(_shared_kafkalake: Kafkalake, kafka_reference: ApacheKafka) -> None:
    """Clients such as franz-go's tell by them which release a broker is."""
    expected, found = (
        {each.api_key: (each.min_version, each.max_version) for each in api_versions(broker).api_keys}
        for broker in (kafka_reference, _shared_kafkalake)
    )
    assert found == expected


def test_the_features_are_those_of_apache_kafka(_shared_kafkalake: Kafkalake, kafka_reference: ApacheKafka) -> None:
    """But share.version, which can be raised there to enable share groups."""
    expected, found = (api_versions(broker) for broker in (kafka_reference, _shared_kafkalake))
    supported, own = (
        {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
        for answer in (expected, found)
    )
    assert supported == own | {"share.version": (0, 1)}
    levels, own_levels = (
        {each.name: each.max_version_level for each in answer.finalized_features} for answer in (expected, found)
    )
    assert levels == own_levels


@pytest.mark.parametrize("version", [0, 1])
def test_a_handshake_without_sasl_is_refused(client: WireClient, version: int) -> None:
    answer = client.call("SaslHandshake", version, mechanism="PLAIN")
    assert (code(answer.error_code), list(answer.mechanisms)) == (ILLEGAL_SASL_STATE, [])
    assert client.call("ApiVersions", 0).api_keys


@pytest.mark.parametrize("version", [0, 1, 2])
def test_authentication_without_sasl_is_refused(client: WireClient, version: int) -> None:
    answer = client.call("SaslAuthenticate", version, auth_bytes=b"\0user\0secret")
    assert code(answer.error_code) == ILLEGAL_SASL_STATE
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert bytes(answer.auth_bytes) == b""
    assert client.call("ApiVersions", 0).api_keys


REFUSED_WHOLE: dict[str, tuple[int, dict[str, Any]]] = {
    "ShareGroupHeartbeat": (1, {"group_id": "g", "member_id": "m"}),
    "ShareFetch": (1, {"group_id": "g", "member_id": "m"}),
    "ShareAcknowledge": (1, {"group_id": "g", "member_id": "m"}),
    "AlterShareGroupOffsets": (0, {"group_id": "g"}),
    "DeleteShareGroupOffsets": (0, {"group_id": "g"}),
}


@pytest.mark.parametrize("api", REFUSED_WHOLE)
def test_share_groups_are_refused(client: WireClient, api: str) -> None:
    version, values = REFUSED_WHOLE[api]
    answer = client.call(api, version, **values)
    text = "The version of API is not supported." if api.endswith("Offsets") else None
    assert (code(answer.error_code), answer.error_message) == (UNSUPPORTED_VERSION, text)


def test_descriptions_of_share_groups_are_refused_one_by_one(client: WireClient) -> None:
    described = client.call("ShareGroupDescribe", 1, group_ids=["a", "b", "a"], include_authorized_operations=True)
    offsets = client.call("DescribeShareGroupOffsets", 0, groups=[{"group_id": "a", "topics": None}, {"group_id": "b"}])
    refused = [("a", UNSUPPORTED_VERSION, None), ("b", UNSUPPORTED_VERSION, None)]
    assert [(each.group_id, code(each.error_code), each.error_message) for each in offsets.groups] == refused
    refused.append(refused[0])
    assert [(each.group_id, code(each.error_code), each.error_message) for each in described.groups] == refused


@pytest.mark.parametrize(
    ("verb", "api"), [(each.lower(), f"{each}ShareGroupState") for each in ("Initialize", "Read", "Write", "Delete")]
)
def test_no_broker_keeps_the_state_of_share_groups(client: WireClient, verb: str, api: str) -> None:
    check_refused_state(client, api, f"{verb} share group state")


def test_no_broker_summarizes_the_state_of_share_groups(client: WireClient) -> None:
    check_refused_state(client, "ReadShareGroupStateSummary", "read share group state summary")


def check_refused_state(client: WireClient, api: str, verb: str) -> None:
    topics = [{"topic_id": NOWHERE, "partitions": [{"partition": 0}, {"partition": 3}]}]
    answer = client.call(api, 0, group_id="g", topics=topics)
    text = f"Unable to {verb}: This is not the correct coordinator."
    assert [
        (topic.topic_id, each.partition, code(each.error_code), each.error_message)
        for topic in answer.results
        for each in topic.partitions
    ] == [(NOWHERE, 0, NOT_COORDINATOR, text), (NOWHERE, 3, NOT_COORDINATOR, text)]
    assert list(client.call(api, 0, group_id="", topics=topics).results) == []
