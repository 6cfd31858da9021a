"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs; the same from kafkalake and Apache Kafka."""

from __future__ import annotations

import time
from typing import Any

import pytest
from contract.wire_client import WireClient, batch, code, create_topic, produce
from kafka_reference import ApacheKafka, BrokerProcess, Kafkalake

TOPIC, BROKER, CLIENT_METRICS = 2, 4, 16
INVALID_CONFIG = 40
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


def describe(client: WireClient, kind: int, name: str, *keys: str, version: int = 4, **more: bool) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    return client.call("DescribeConfigs", version, resources=[resource], **more).results[0]


def settings(client: WireClient, kind: int, name: str) -> dict[str, tuple[str | None, int]]:
    """Setting -> (value, source)."""
    return {each.name: (each.value, each.config_source) for each in describe(client, kind, name).configs}


def eventually_setting(client: WireClient, kind: int, name: str, key: str, wanted: tuple[str | None, int]) -> None:
    deadline = time.monotonic() + 20
    while settings(client, kind, name).get(key) != wanted:
        assert time.monotonic() < deadline, settings(client, kind, name).get(key)
        time.sleep(0.01)


def incremental(client: WireClient, kind: int, name: str, *changes: tuple[str, int, str | None], **more: Any) -> int:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = client.call("IncrementalAlterConfigs", 1, resources=[resource], **{"validate_only": False, **more})
    return code(answer.responses[0].error_code)


@pytest.mark.parametrize("operation", (APPEND, SUBTRACT))
@pytest.mark.parametrize("validate_only", (False, True))
def test_the_lists_of_a_subscription_to_metrics_are_only_set(
    client: WireClient, topic: str, operation: int, validate_only: bool
) -> None:
    assert incremental(client, CLIENT_METRICS, topic, ("metrics", SET, "org.a"), ("match", SET, "client_id=a")) == 0
    for name, value in (("metrics", "org.a"), ("match", "client_id=a"), ("no.such.setting", "1")):
        refused = incremental(client, CLIENT_METRICS, topic, (name, operation, value), validate_only=validate_only)
        assert refused == INVALID_CONFIG
    assert incremental(client, CLIENT_METRICS, "", ("metrics", operation, "org.b")) == INVALID_CONFIG


@pytest.mark.parametrize("version", (1, 2, 3, 4))
def test_every_version_describes_a_topic(client: WireClient, topic: str, version: int) -> None:
    create_topic(client, topic, 1, retention_ms="5000")
    found = describe(client, TOPIC, topic, version=version)
    by_name = {each.name: each for each in found.configs}
    assert code(found.error_code) == 0
    assert by_name["retention.ms"].value == "5000"
    assert by_name["segment.bytes"].value == "1073741824"
    assert not by_name["retention.ms"].is_sensitive
    assert not by_name["retention.ms"].read_only
    if version >= 3:
        assert (by_name["retention.ms"].config_type, by_name["cleanup.policy"].config_type) == (5, 7)


def test_synonyms_say_where_a_value_comes_from(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 1, max_message_bytes="77")
    found = describe(client, TOPIC, topic, "max.message.bytes", include_synonyms=True)
    synonyms = [(each.name, each.value, each.source) for each in found.configs[0].synonyms]
    assert synonyms == [("max.message.bytes", "77", 1), ("message.max.bytes", "1048588", 5)]


def test_documentation_where_it_is_asked_for(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    assert describe(client, TOPIC, topic, "retention.ms", include_documentation=True).configs[0].documentation
    assert not describe(client, TOPIC, topic, "retention.ms").configs[0].documentation


def test_only_the_keys_asked_for(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    found = describe(client, TOPIC, topic, "retention.ms", "no.such.setting")
    assert [each.name for each in found.configs] == ["retention.ms"]


def test_resources_that_are_not_there(client: WireClient, topic: str) -> None:
    assert code(describe(client, TOPIC, topic).error_code) == 3
    assert code(describe(client, BROKER, "99").error_code) == 42
    assert code(describe(client, BROKER, "abc").error_code) == 42
    assert code(describe(client, TOPIC, "a b").error_code) == 17


def test_the_broker(client: WireClient) -> None:
    found = {each.name: each for each in describe(client, BROKER, "0").configs}
    assert found["num.partitions"].value == "1"
    assert found["num.partitions"].read_only
    assert found["message.max.bytes"].value == "1048588"
    assert not found["message.max.bytes"].read_only


def test_the_brokers_identity(any_broker: BrokerProcess, client: WireClient) -> None:
    found = {each.name: each for each in describe(client, BROKER, "0", include_synonyms=True).configs}
    for name, value in {
        "broker.id": "0",
        "node.id": "0",
        "listeners": f"PLAINTEXT://{any_broker.bootstrap_servers}",
    }.items():
        assert found[name].value.split(",")[0] == value
        assert found[name].config_source == 4
        assert (found[name].synonyms[0].name, found[name].synonyms[0].source) == (name, 4)
    assert found["log.dirs"].value.startswith("/")
    for name in ("broker.id", "node.id", "log.dirs"):
        assert found[name].read_only
        assert incremental(client, BROKER, "0", (name, SET, "1")) == 42


def test_settings_of_kafkas_own_parts_are_taken(client: WireClient) -> None:
    for name in ("num.io.threads", "background.threads"):
        before = settings(client, BROKER, "0")[name]
        assert incremental(client, BROKER, "", (name, SET, "9")) == 0
        eventually_setting(client, BROKER, "0", name, ("9", 3))
        assert incremental(client, BROKER, "", (name, DELETE, None)) == 0
        eventually_setting(client, BROKER, "0", name, before)


def test_a_coarser_setting_is_a_synonym_behind_the_finer_one(client: WireClient, topic: str) -> None:
    create_topic(client, topic)

    def synonyms() -> list[tuple[str, str, int]]:
        found = describe(client, TOPIC, topic, "retention.ms", include_synonyms=True).configs[0].synonyms
        return [(each.name, each.value, each.source) for each in found]

    assert synonyms() == []
    assert incremental(client, BROKER, "0", ("log.retention.ms", SET, "604800001")) == 0
    eventually_setting(client, TOPIC, topic, "retention.ms", ("604800001", 2))
    found = synonyms()
    assert incremental(client, BROKER, "0", ("log.retention.ms", DELETE, None)) == 0
    eventually_setting(client, TOPIC, topic, "retention.ms", ("604800000", 5))
    assert found == [("log.retention.ms", "604800001", 2), ("log.retention.hours", "168", 5)]


class TestIncremental:
    def test_set_and_delete(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        assert incremental(client, TOPIC, topic, ("retention.ms", SET, "123")) == 0
        eventually_setting(client, TOPIC, topic, "retention.ms", ("123", 1))
        assert incremental(client, TOPIC, topic, ("segment.ms", SET, "456")) == 0
        eventually_setting(client, TOPIC, topic, "segment.ms", ("456", 1))
        assert settings(client, TOPIC, topic)["retention.ms"] == ("123", 1)
        assert incremental(client, TOPIC, topic, ("retention.ms", DELETE, None)) == 0
        eventually_setting(client, TOPIC, topic, "retention.ms", ("604800000", 5))

    def test_append_and_subtract(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        assert incremental(client, TOPIC, topic, ("cleanup.policy", APPEND, "compact")) == 0
        eventually_setting(client, TOPIC, topic, "cleanup.policy", ("delete,compact", 1))
        assert incremental(client, TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete")) == 0
        eventually_setting(client, TOPIC, topic, "cleanup.policy", ("compact", 1))

    def test_members_that_a_list_has_twice(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        assert incremental(client, TOPIC, topic, ("cleanup.policy", SET, "compact,compact,delete")) == 0
        assert incremental(client, TOPIC, topic, ("cleanup.policy", SUBTRACT, "compact")) == 0
        eventually_setting(client, TOPIC, topic, "cleanup.policy", ("compact,delete", 1))
        assert incremental(client, TOPIC, topic, ("cleanup.policy", SUBTRACT, "compact,compact")) == 0
        eventually_setting(client, TOPIC, topic, "cleanup.policy", ("delete", 1))
        assert incremental(client, TOPIC, topic, ("cleanup.policy", APPEND, "compact,delete,compact")) == 0
        eventually_setting(client, TOPIC, topic, "cleanup.policy", ("delete,compact", 1))

    def test_a_cleanup_policy_may_be_empty(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic, 1, cleanup_policy="")
        assert settings(client, TOPIC, topic)["cleanup.policy"] == ("", 1)
        assert incremental(client, TOPIC, topic, ("cleanup.policy", APPEND, "delete")) == 0
        eventually_setting(client, TOPIC, topic, "cleanup.policy", ("delete", 1))
        assert incremental(client, TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete")) == 0
        eventually_setting(client, TOPIC, topic, "cleanup.policy", ("", 1))
        assert incremental(client, TOPIC, topic, ("cleanup.policy", SET, " compact , delete ")) == 0
        eventually_setting(client, TOPIC, topic, "cleanup.policy", ("compact,delete", 1))
        assert incremental(client, TOPIC, topic, ("cleanup.policy", SET, "")) == 0
        eventually_setting(client, TOPIC, topic, "cleanup.policy", ("", 1))
        for text in ("delete,", ",", "none"):
            assert incremental(client, TOPIC, topic, ("cleanup.policy", SET, text)) == 40
        assert code(produce(client, topic, batch([(None, b"x")])).error_code) == 0

    def test_segments_have_a_smallest_size(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        assert incremental(client, TOPIC, topic, ("segment.bytes", SET, "1048575")) == 40
        assert incremental(client, BROKER, "0", ("log.segment.bytes", SET, "1048575")) == 42
        assert "internal.segment.bytes" not in settings(client, TOPIC, topic)
        assert incremental(client, TOPIC, topic, ("internal.segment.bytes", SET, "1000")) == 0
        eventually_setting(client, TOPIC, topic, "internal.segment.bytes", ("1000", 1))
        assert settings(client, TOPIC, topic)["segment.bytes"] == ("1073741824", 5)
        assert incremental(client, TOPIC, topic, ("segment.bytes", SET, "1048576")) == 0
        eventually_setting(client, TOPIC, topic, "segment.bytes", ("1048576", 1))

    def test_deleting_what_is_not_set_changes_nothing(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        assert incremental(client, TOPIC, topic, ("retention.ms", DELETE, None)) == 0
        assert incremental(client, TOPIC, topic, ("no.such.setting", DELETE, None)) == 0
        assert incremental(client, BROKER, "0", ("no.such.setting", DELETE, None)) == 0

    def test_validate_only_changes_nothing(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        assert incremental(client, TOPIC, topic, ("retention.ms", SET, "123"), validate_only=True) == 0
        assert settings(client, TOPIC, topic)["retention.ms"] == ("604800000", 5)

    @pytest.mark.parametrize(
        ("changes", "error"),
        [
            ([("retention.ms", SET, "abc")], 40),
            ([("no.such.setting", SET, "1")], 40),
            ([("retention.ms", APPEND, "1")], 40),
            ([("no.such.setting", APPEND, "1")], 40),
            ([("retention.ms", SET, None)], 42),
            ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], 42),
        ],
    )
    def test_changes_that_cannot_be(
        self, client: WireClient, topic: str, changes: list[tuple[str, int, str | None]], error: int
    ) -> None:
        create_topic(client, topic)
        assert incremental(client, TOPIC, topic, *changes) == error
        assert settings(client, TOPIC, topic)["retention.ms"] == ("604800000", 5)

    def test_resources_that_are_not_there(self, client: WireClient, topic: str) -> None:
        assert incremental(client, TOPIC, topic, ("retention.ms", SET, "1")) == 3
        assert incremental(client, TOPIC, "", ("retention.ms", SET, "1")) == 42
        assert incremental(client, 77, topic, ("retention.ms", SET, "1")) == 42

    def test_a_broker_setting_changes_while_it_runs(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        assert incremental(client, BROKER, "0", ("log.segment.delete.delay.ms", SET, "61000")) == 0
        eventually_setting(client, BROKER, "0", "log.segment.delete.delay.ms", ("61000", 2))
        eventually_setting(client, TOPIC, topic, "file.delete.delay.ms", ("61000", 2))
        assert incremental(client, BROKER, "0", ("log.segment.delete.delay.ms", DELETE, None)) == 0
        eventually_setting(client, BROKER, "0", "log.segment.delete.delay.ms", ("60000", 5))
        assert incremental(client, BROKER, "0", ("num.partitions", SET, "9")) == 42
        assert incremental(client, BROKER, "0", ("message.max.bytes", SET, "abc")) == 42


def test_a_setting_cannot_be_null(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": [{"name": "retention.ms", "value": None}]}
    answer = client.call("AlterConfigs", 2, resources=[resource], validate_only=False).responses[0]
    assert (code(answer.error_code), answer.error_message) == (42, "Null value not supported for : retention.ms")


NOT_ALIKE = {
    "listeners": "Apache Kafka adds listeners while it runs",
    "listener.security.protocol.map": "the same",
    "min.insync.replicas": "Apache Kafka sets it for the cluster when it formats its first directory",
}


def test_what_both_brokers_know_is_described_alike(kafka_reference: ApacheKafka, _shared_kafkalake: Kafkalake) -> None:
    """Types, sources and what is read-only; values and sources where both have their defaults."""
    found: list[dict[tuple[int, str], Any]] = []
    for broker in (kafka_reference, _shared_kafkalake):
        with WireClient(broker.bootstrap_servers) as client:
            create_topic(client, "described-alike")
            kinds = {BROKER: "0", TOPIC: "described-alike"}
            found.append(
                {(kind, each.name): each for kind in kinds for each in describe(client, kind, kinds[kind]).configs}
            )
    kafka, ours = found
    given = {name for broker in found for (_, name), each in broker.items() if each.config_source == 4}
    differing = {}
    for kind, name in kafka.keys() & ours.keys():
        compared = ["config_type", "is_sensitive"]
        if name not in NOT_ALIKE:
            compared.append("read_only")
            if name not in given:
                compared.append("config_source")
        differences = {
            field: (getattr(kafka[kind, name], field), getattr(ours[kind, name], field))
            for field in compared
            if getattr(kafka[kind, name], field) != getattr(ours[kind, name], field)
        }
        if differences:
            differing[kind, name] = differences
    assert differing == {}
    assert len(kafka.keys() & ours.keys()) > 150
    assert {name for kind, name in kafka.keys() - ours.keys() if kind == TOPIC} == set()


def test_a_setting_is_replaced_once(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    configs = [{"name": "retention.ms", "value": value} for value in ("1000", "2000")]
    resource = {"resource_type": TOPIC, "resource_name": topic, "configs": configs}
    answer = client.call("AlterConfigs", 2, resources=[resource], validate_only=False).responses[0]
    assert (code(answer.error_code), answer.error_message) == (42, "Error due to duplicate config keys")
    assert settings(client, TOPIC, topic)["retention.ms"] == ("604800000", 5)


@pytest.mark.parametrize("version", (0, 1, 2))
def test_alter_configs_replaces_all_settings(client: WireClient, topic: str, version: int) -> None:
    create_topic(client, topic, 1, retention_ms="5000", segment_ms="6000")
    resource = {
        "resource_type": TOPIC,
        "resource_name": topic,
        "configs": [{"name": "retention.ms", "value": "7000"}],
    }
    answer = client.call("AlterConfigs", version, resources=[resource], validate_only=False)
    assert code(answer.responses[0].error_code) == 0
    eventually_setting(client, TOPIC, topic, "retention.ms", ("7000", 1))
    eventually_setting(client, TOPIC, topic, "segment.ms", ("604800000", 5))
