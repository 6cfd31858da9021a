"""Kafka's own Java clients in groups, alone and among others, with the assignors that each of them has."""

from __future__ import annotations

from typing import Any

import confluent_kafka
from benchmarks import kafka_tools
from confluent_kafka.admin import AdminClient
from group_processes import PARTITIONS, SMALL_JVM, TIMEOUT_S, Speaker, Start, wait_until_shared
from kafka_clients import create_topic
from waiting import wait_until


def verifiable_producer(servers: str, topic: str, records: int) -> list[str]:
    """Run Kafka's VerifiableProducer; the values that it says were acknowledged (acks=all)."""
    arguments = ["--bootstrap-server", servers, "--topic", topic, "--max-messages", str(records)]
    arguments += ["--repeating-keys", "100"]  # so that they are spread over all partitions
    producer = Speaker(kafka_tools.tool_command("org.apache.kafka.tools.VerifiableProducer", arguments, *SMALL_JVM))
    assert producer.finish() == 0
    return [event["value"] for event in producer.events if event["name"] == "producer_send_success"]


def assignor(servers: str, group: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    described = admin.describe_consumer_groups([group], request_timeout=TIMEOUT_S)
    return str(described[group].result(TIMEOUT_S).partition_assignor)


def test_java_members_share_keep_their_places_as_static_members_and_read_all(
    any_broker: Any, member: Start, group: str, topic: str
) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, PARTITIONS)
    # A session that outlives the start of two JVMs on a busy machine.
    options = {"assignors": ["cooperative-sticky"], "session_timeout_ms": 40_000}
    first = member("java", servers, group, topic, instance="one", **options)
    wait_until_shared([first])
    second = member("java", servers, group, topic, instance="two", **options)
    wait_until_shared([first, second])
    before, changes = second.assigned, len(first.events)
    second.kill()
    written = verifiable_producer(servers, topic, 600)
    again = member("java", servers, group, topic, instance="two", **options)
    wait_until(
        lambda: len(first.values) + len(again.values) >= len(written), lambda: [first.events[-3:], again.events[-3:]]
    )
    assert sorted(first.values + again.values, key=int) == sorted(written, key=int)
    assert len(written) == 600
    assert len(again.values) > 50
    assert again.assigned == before
    # The last step of a cooperative rebalance may be told late, and takes nothing and gives nothing.
    later = [event for event in first.events[changes:] if event["name"].startswith("partitions_")]
    assert not [event for event in later if event["partitions"]]
    assert assignor(servers, group) == "cooperative-sticky"


def test_members_of_different_clients_agree_on_an_assignor_that_all_of_them_have(
    any_broker: Any, member: Start, group: str, topic: str
) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, PARTITIONS)
    members = [
        member("java", servers, group, topic, assignors=["range", "sticky", "roundrobin"]),
        member("confluent-kafka", servers, group, topic, assignors=["range", "roundrobin"]),
        member("kafka-python", servers, group, topic, assignors=["roundrobin", "range"]),
        member("aiokafka", servers, group, topic, assignors=["roundrobin"]),
    ]
    wait_until_shared(members)
    wait_until(lambda: assignor(servers, group) == "roundrobin", lambda: assignor(servers, group))
    members.pop().leave()
    wait_until_shared(members)
    # Two of three prefer it.
    wait_until(lambda: assignor(servers, group) == "range", lambda: assignor(servers, group))


def test_a_member_with_no_assignor_in_common_is_refused(any_broker: Any, member: Start, group: str, topic: str) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, PARTITIONS)
    first = member("kafka-python", servers, group, topic, assignors=["roundrobin"])
    wait_until_shared([first])
    stranger = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": group, "partition.assignment.strategy": "range"}
    )
    errors: list[Any] = []
    stranger.subscribe([topic])
    wait_until(lambda: errors.append(stranger.poll(0.2)) or any(errors), lambda: "no error")
    stranger.close()
    (message,) = filter(None, errors)
    assert message.error().name() == "INCONSISTENT_GROUP_PROTOCOL"
    wait_until_shared([first])
