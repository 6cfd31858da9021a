"""Settings of single groups (resource type 32); the same from kafkalake and Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from contract.test_configs_contract import DELETE, SET, describe, eventually_setting, incremental
from contract.test_consumer_groups_contract import beat, create_assignable, enter_consumer
from contract.test_consumer_groups_contract import describe as described
from contract.test_groups_contract import group
from contract.wire_client import WireClient, code, create_topic
from waiting import wait_until

__all__ = ["group"]

GROUP = 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
OF_GROUP, DEFAULT = 8, 5
INVALID_CONFIG, INVALID_REQUEST = 40, 42


def test_a_group_has_the_brokers_settings_until_it_has_its_own(client: WireClient, group: str) -> None:
    assert incremental(client, GROUP, group, (SESSION, SET, "7000"), (HEARTBEAT, SET, "300")) == 0
    eventually_setting(client, GROUP, group, SESSION, ("7000", OF_GROUP))
    eventually_setting(client, GROUP, group, HEARTBEAT, ("300", OF_GROUP))
    found = describe(client, GROUP, group, SESSION).configs
    assert [(each.name, each.config_type, each.read_only) for each in found] == [(SESSION, 3, False)]
    assert incremental(client, GROUP, group, (SESSION, DELETE, None), (HEARTBEAT, DELETE, None)) == 0
    wait_until(lambda: {each.name: each.value for each in describe(client, GROUP, group).configs}[SESSION] == "6000")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("no.such.setting", SET, "1")], INVALID_CONFIG),
        ([(SESSION, SET, "soon")], INVALID_CONFIG),
        ([(SESSION, SET, "5999")], INVALID_CONFIG),
        ([(SESSION, SET, "60001")], INVALID_CONFIG),
        ([(HEARTBEAT, SET, "100")], INVALID_CONFIG),
        ([(HEARTBEAT, SET, "9000"), (SESSION, SET, "8000")], INVALID_CONFIG),
    ],
)
def test_changes_that_cannot_be(client: WireClient, group: str, changes: list[Any], expected: int) -> None:
    assert incremental(client, GROUP, group, *changes) == expected


def test_the_empty_name_is_no_group(client: WireClient) -> None:
    assert incremental(client, GROUP, "", (SESSION, SET, "7000")) == INVALID_REQUEST
    assert code(describe(client, GROUP, "").error_code) == INVALID_REQUEST


def test_a_change_counts_for_the_members_that_are_there(client: WireClient, group: str, topic: str) -> None:
    create_assignable(client, group, topic, 1)
    answer = enter_consumer(client, group, topic)
    assert interval_ms(answer) == 200
    assert incremental(client, GROUP, group, (HEARTBEAT, SET, "1234")) == 0
    wait_until(lambda: interval_ms(beat(client, group, "one", answer.member_epoch)) == 1234)


def interval_ms(answer: Any) -> int:
    return answer.heartbeat_interval


def test_settings_of_groups_survive_a_kill(kafkalake_broker: Any) -> None:
    broker = kafkalake_broker(settings={"group.consumer.min.session.timeout.ms": "500"})
    with WireClient(broker.bootstrap_servers) as client:
        assert incremental(client, GROUP, "g", (SESSION, SET, "1500")) == 0
        assert incremental(client, GROUP, "g", (SESSION, SET, "7500"), validate_only=True) == 0
    broker.kill()
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        eventually_setting(client, GROUP, "g", SESSION, ("1500", OF_GROUP))
        client.call("FindCoordinator", 4, key_type=0, coordinator_keys=["g"])
        create_topic(client, "clicks")
        wait_until(lambda: code(beat(client, "g", "x", -1).error_code) in (25, 69))
        enter_consumer(client, "g", "clicks")
        assert len(described(client, "g").members) == 1
        wait_until(lambda: not described(client, "g").members)
