"""The broker is killed again and again while an idempotent producer writes: nothing acknowledged is lost, nothing is twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from kafka_clients import create_topic
from recording_producer import RecordingProducer, check_nothing_lost_nothing_twice, read_all

from kafkalake.dataset import topic_reader

ROUNDS = int(os.environ.get("KILL_ROUNDS", "5"))
PARTITIONS = 3


def test_rounds_of_sigkill_lose_and_repeat_nothing(kafkalake_broker: Callable[..., Any], topic: str) -> None:
    broker = kafkalake_broker(settings={"internal.segment.bytes": "300000", "log.index.interval.bytes": "1000"})
    servers = broker.bootstrap_servers
    create_topic(servers, topic, partitions=PARTITIONS)
    producer = RecordingProducer(servers, topic, PARTITIONS).start()
    randomness = random.Random(7)
    for _ in range(ROUNDS):
        producer.wait_for_acknowledged(randomness.randrange(200, 2_000), timeout_s=60)
        broker.kill()
        broker.start()
    producer.wait_for_acknowledged(500, timeout_s=60)
    producer.stop()
    assert not producer.failed, producer.failed[0]
    check_nothing_lost_nothing_twice(servers, topic, producer)

    through_kafka = {p: read_all(servers, topic, p) for p in range(PARTITIONS)}
    broker.kill()
    through_arrow: dict[int, dict[int, bytes]] = {p: {} for p in range(PARTITIONS)}
    for batch in topic_reader(str(broker.lake), topic, columns=["partition", "offset", "value"]):
        for partition, offset, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            through_arrow[partition][offset] = value
    assert through_arrow == through_kafka
    broker.start()
    broker.stop()
    verified = subprocess.run(
        [sys.executable, "-m", "kafkalake", "log", "verify", str(broker.lake)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert verified.returncode == 0, verified.stderr
