"""Calls of the system fail at random in a broker that is written to, killed and started: what was acknowledged is there, and life
goes on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from failing_calls import FailingCalls, Kind
from group_offsets import committed
from kafka_clients import create_topic
from kafka_reference import BrokerFailed, Kafkalake
from recording_producer import RecordingProducer, check_nothing_lost_nothing_twice
from waiting import wait_until

ROUNDS = int(os.environ.get("KILL_ROUNDS", "5"))
PARTITIONS = 3
GROUP = "etl"
SETTINGS = {
    "metadata.publish.interval.ms": "200",
    "internal.segment.bytes": "50000",
    "log.index.interval.bytes": "1000",
}
MIXTURES = {
    "every call": (Kind.ANY, 30_000, 20_000),
    "changes": (Kind.CHANGE, 60_000, 20_000),
    "names": (Kind.NAME | Kind.REMOVE | Kind.CREATE, 200_000, 0),
    "reads": (Kind.READ, 60_000, 0),
    "writes": (Kind.WRITE, 100_000, 100_000),
}


class ExecutedKafkalake(Kafkalake):
    """A broker that is no fork: nothing is preloaded into one."""

    is_forked = False


def start(broker: Kafkalake, calls: FailingCalls) -> None:
    """Start a broker in which calls may fail: then without, as the start may have failed."""
    try:
        broker.start()
    except BrokerFailed:
        calls.stop()
        broker.kill()
        broker.start()


def commit(consumer: Consumer, topic: str, offset: int) -> None:
    """Commit this offset, again until it is acknowledged."""

    def is_acknowledged() -> bool:
        try:
            (found,) = consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        except KafkaException:
            return False
        return found.error is None

    wait_until(is_acknowledged)


@pytest.mark.long
@pytest.mark.parametrize("mixture", MIXTURES)
def test_rounds_of_failing_calls_lose_and_repeat_nothing(tmp_path: Path, topic: str, mixture: str) -> None:
    lake, randomness = tmp_path / "lake", random.Random(mixture)
    calls = FailingCalls(tmp_path, lake)
    with ExecutedKafkalake(lake, directory=tmp_path, settings=SETTINGS, environment=calls.environment) as broker:
        servers = broker.bootstrap_servers
        create_topic(servers, topic, partitions=PARTITIONS)
        producer = RecordingProducer(servers, topic, PARTITIONS, in_flight=1).start()
        consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP, "log_level": 0})
        for number in range(ROUNDS):
            calls.fail(*MIXTURES[mixture])
            calls.wait_for(randomness.randrange(5, 50))
            if randomness.random() < 0.5:
                broker.kill()
                start(broker, calls)
            calls.stop()
            if not broker.is_running():
                broker.start()
            producer.wait_for_acknowledged(200, timeout_s=60)
            commit(consumer, topic, number)
        consumer.close()
        producer.stop()
        assert not producer.failed, producer.failed[0]
        for is_killed in (False, True):
            if is_killed:
                broker.kill()
                broker.start()
            check_nothing_lost_nothing_twice(servers, topic, producer)
            assert committed(broker, GROUP, topic, 1) == [ROUNDS - 1]
        broker.stop()
    verified = subprocess.run(
        [sys.executable, "-m", "kafkalake", "log", "verify", str(lake)], capture_output=True, text=True, timeout=120
    )
    assert verified.returncode == 0, verified.stdout
