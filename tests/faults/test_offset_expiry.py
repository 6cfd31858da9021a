"""Committed offsets expire once their group is empty for `offsets.retention.minutes`: in the broker and in Delta (KIP-211)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from clocked_broker import BrokerWithClock
from contract.wire_client import code
from kafka_clients import create_topic
from kafka_reference import Kafkalake
from test_group_offsets_durable import coordinator, rows
from waiting import wait_until

pytestmark = pytest.mark.process

HOUR_MS = 3_600_000
RETENTION_MINUTES = 60
CHECK_INTERVAL_MS = 50


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerWithClock]:
    settings = {
        "offsets.retention.minutes": str(RETENTION_MINUTES),
        "offsets.retention.check.interval.ms": str(CHECK_INTERVAL_MS),
        "metadata.publish.interval.ms": "50",
    }
    broker = BrokerWithClock(tmp_path / "lake", directory=tmp_path / "broker", settings=settings)
    broker.move_clock(0)
    broker.start()
    yield broker
    broker.close()


def offsets(broker: Kafkalake, group: str, topic: str) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group})
    asked = [confluent_kafka.TopicPartition(topic, index) for index in range(2)]
    found = [each.offset for each in consumer.committed(asked, timeout=30)]
    consumer.close()
    return found


def test_offsets_go_an_hour_after_the_last_member_and_stay_gone(broker: BrokerWithClock, topic: str) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic, partitions=2)
    member = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "etl", "enable.auto.commit": False, "session.timeout.ms": 45_000}
    )
    member.subscribe([topic])
    wait_until(lambda: member.poll(0.1) or len(member.assignment()) == 2, lambda: member.assignment())
    committed = [confluent_kafka.TopicPartition(topic, index, 5 + index) for index in range(2)]
    member.commit(offsets=committed, asynchronous=False)

    broker.move_clock(2 * HOUR_MS)
    deadline = time.monotonic() + 20 * CHECK_INTERVAL_MS / 1000
    while time.monotonic() < deadline:
        member.poll(0.05)
        assert offsets(broker, "etl", topic) == [5, 6], "a group that reads keeps its offsets"

    member.close()
    broker.move_clock(2 * HOUR_MS + HOUR_MS // 2)
    assert offsets(broker, "etl", topic) == [5, 6], "empty for half an hour"
    broker.move_clock(4 * HOUR_MS)
    wait_until(lambda: offsets(broker, "etl", topic) == [-1001, -1001], lambda: offsets(broker, "etl", topic))
    wait_until(lambda: [row["offset"] for row in rows(broker.lake)].count(None) == 2, lambda: rows(broker.lake))
    with coordinator(broker, "other") as client:
        assert "etl" not in {each.group_id for each in client.call("ListGroups", 4, states_filter=[]).groups}
    broker.kill()
    broker.start()
    assert offsets(broker, "etl", topic) == [-1001, -1001]


def test_offsets_of_a_consumer_without_a_group_go_by_their_commit(broker: BrokerWithClock, topic: str) -> None:
    servers = broker.bootstrap_servers
    create_topic(servers, topic, partitions=2)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "simple"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 1)], asynchronous=False)
    broker.move_clock(HOUR_MS // 2)
    consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 1, 2)], asynchronous=False)
    consumer.close()
    broker.move_clock(HOUR_MS + HOUR_MS // 4)
    wait_until(lambda: offsets(broker, "simple", topic) == [-1001, 2], lambda: offsets(broker, "simple", topic))
    broker.stop()
    broker.start()
    assert offsets(broker, "simple", topic) == [-1001, 2]
    with coordinator(broker, "simple") as client:
        assert [code(each.error_code) for each in client.call("DescribeGroups", 5, groups=["simple"]).groups] == [0]
