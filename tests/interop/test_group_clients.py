"""Groups of real clients, each member in a process of its own: they come, go, die, and the broker dies under them."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import confluent_kafka
import pytest
from benchmarks import kafka_tools
from group_processes import PARTITIONS, TIMEOUT_S, Start, wait_until_shared
from kafka_clients import create_topic
from kafka_reference import Kafkalake
from waiting import wait_until

CLIENTS = ["confluent-kafka", "kafka-python", "aiokafka"]


def write(servers: str, topic: str, values: range) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all"})
    for value in values:
        producer.produce(topic, str(value), partition=value % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def test_members_share_the_partitions_as_they_come_leave_and_die(
    any_broker: Any, member: Start, group: str, topic: str
) -> None:
    """Of each client a group, all at once: they mostly wait for the session of the member that died."""

    def check(client: str) -> None:
        check_group(any_broker.bootstrap_servers, member, f"{group}-{client}", f"{topic}-{client}", client)

    with ThreadPoolExecutor() as at_once:
        assert list(at_once.map(check, CLIENTS)) == [None] * len(CLIENTS)


def check_group(servers: str, member: Start, group: str, topic: str, client: str) -> None:
    create_topic(servers, topic, PARTITIONS)
    first = member(client, servers, group, topic)
    wait_until_shared([first])
    second = member(client, servers, group, topic)
    third = member(client, servers, group, topic)
    wait_until_shared([first, second, third])
    second.leave()
    wait_until_shared([first, third])
    third.kill()
    wait_until_shared([first])
    write(servers, topic, range(30))
    wait_until(lambda: len(first.values) >= 30, lambda: first.events[-5:])
    assert sorted(map(int, first.values)) == list(range(30))


def test_a_cooperative_group_moves_only_what_has_to_move(
    any_broker: Any, member: Start, group: str, topic: str
) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, PARTITIONS)
    first = member("confluent-kafka", servers, group, topic, assignors=["cooperative-sticky"])
    wait_until_shared([first])
    second = member("confluent-kafka", servers, group, topic, assignors=["cooperative-sticky"])
    wait_until_shared([first, second])
    shares = [event["assigned"] for event in first.events if "assigned" in event]
    assert all(len(share) >= 3 for share in shares if share), shares
    second.kill()
    wait_until_shared([first])


def test_a_topic_that_gains_partitions_is_shared_anew(any_broker: Any, member: Start, group: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, 2)
    members = [member("confluent-kafka", servers, group, topic) for _ in range(2)]
    wait_until_shared(members, 2)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, PARTITIONS)])[topic].result(TIMEOUT_S)
    wait_until_shared(members)


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    any_broker: Any, member: Start, group: str, topic: str
) -> None:
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, PARTITIONS)
    first = member("confluent-kafka", servers, group, topic, instance="one")
    second = member("confluent-kafka", servers, group, topic, instance="two")
    wait_until_shared([first, second])
    before, changes = second.assigned, len(first.events)
    second.kill()
    again = member("confluent-kafka", servers, group, topic, instance="two")
    wait_until(lambda: again.assigned == before, lambda: again.events)
    assert first.events[changes:] == []


@pytest.mark.parametrize("client", CLIENTS)
def test_members_go_on_where_they_were_when_the_broker_was_killed(
    kafkalake_broker: Any, member: Start, group: str, topic: str, client: str
) -> None:
    broker: Kafkalake = kafkalake_broker()
    servers = broker.bootstrap_servers
    create_topic(servers, topic, PARTITIONS)
    write(servers, topic, range(60))
    members = [member(client, servers, group, topic) for _ in range(2)]
    wait_until(lambda: sum(len(each.values) for each in members) >= 60, lambda: [each.events[-5:] for each in members])
    broker.kill()
    broker.start()
    write(servers, topic, range(60, 120))
    wait_until(lambda: sum(len(each.values) for each in members) >= 120, lambda: [each.events[-5:] for each in members])
    read = Counter(int(value) for each in members for value in each.values)
    assert read.keys() == set(range(120))
    twice = {value for value, times in read.items() if times > 1}
    assert not twice & set(range(54)), "what was committed is not read again"


def test_javas_consumer_performance_reads_all_in_a_group(kafkalake_broker: Any, topic: str) -> None:
    broker: Kafkalake = kafkalake_broker()
    create_topic(broker.bootstrap_servers, topic, PARTITIONS)
    kafka_tools.produce(broker.bootstrap_servers, topic, records=100_000)
    assert kafka_tools.consume(broker.bootstrap_servers, topic, records=100_000).records >= 100_000
