"""The brokers that other tests rely on: they start, die and come back as their interface says."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_reference import ApacheKafka, BrokerFailed, BrokerProcess, Kafkalake, create_topic

pytestmark = pytest.mark.process


def write(broker: BrokerProcess, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    errors: list[object] = []
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(20) == 0
    assert errors == [None] * len(values)


def read(broker: BrokerProcess, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "not-joined"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        return [message.value() for message in consumer.consume(count, timeout=20)]
    finally:
        consumer.close()


@pytest.mark.long("apache-kafka")
def test_acknowledged_records_survive_a_kill_and_a_stop(any_broker: BrokerProcess, topic: str) -> None:
    create_topic(any_broker, topic)
    write(any_broker, topic, [b"before the kill"])
    any_broker.kill()
    any_broker.start()
    write(any_broker, topic, [b"after the kill"])
    any_broker.restart()
    assert read(any_broker, topic, 2) == [b"before the kill", b"after the kill"]


@pytest.mark.long
def test_kill_leaves_no_process(any_broker: BrokerProcess) -> None:
    pid = any_broker.pid
    any_broker.kill()
    assert not any_broker.is_running()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(BrokerFailed, match="does not run"):
        _ = any_broker.pid
    any_broker.start()  # others share it


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    kafka = ApacheKafka(tmp_path, settings={"num.partitions": "many"})
    with pytest.raises(BrokerFailed, match=r"num\.partitions"):
        kafka.start()
    assert not kafka.is_running()


def test_an_endless_start_is_ended_after_its_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Kafkalake(directory=tmp_path, start_timeout_s=0.2)
    monkeypatch.setattr(broker, "_command", lambda: [sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(BrokerFailed, match="printed no `listening on`"):
        broker.start()
    assert not broker.is_running()


def test_brokers_of_one_test_share_its_lake(kafkalake_broker: Callable[..., Kafkalake], topic: str) -> None:
    first = kafkalake_broker(settings={"num.partitions": "2"})
    create_topic(first, topic)
    write(first, topic, [b"in the lake"])
    first.stop()
    second = kafkalake_broker()
    assert second.lake == first.lake
    assert read(second, topic, 1) == [b"in the lake"]
