"""Exactly-once under fire: every input is once in the output, in order, for a Kafka consumer and for Spark.

`FIRE_S`, `FIRE_SEED` and `FIRE_PROTOCOL` (classic, consumer) lengthen and replay it (`scripts/soak`).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from exactly_once import BROKER_SETTINGS, PARTITIONS, Fire, check_exactly_once, read_committed
from kafka_reference import BROKERS, Cluster, Kafkalake, kafkalake_cluster

from kafkalake.dataset import topic_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRE_S = float(os.environ.get("FIRE_S", "10"))
SEED = int(os.environ.get("FIRE_SEED") or random.randrange(1_000_000))


class OneOfThree:
    """Three brokers of a lake as the one that dies, which is another one each time."""

    def __init__(self, cluster: Cluster[Kafkalake], chance: random.Random) -> None:
        self.bootstrap_servers = cluster.bootstrap_servers
        self.lake = cluster.brokers[0].lake
        self._brokers = cluster.brokers
        self._chance = chance
        self._victim = cluster.brokers[0]

    def kill(self) -> None:
        self._victim = self._chance.choice(self._brokers)
        self._victim.kill()

    def start(self) -> None:
        self._victim.start()


def test_each_input_is_copied_exactly_once_while_copiers_and_broker_are_killed(
    kafkalake_broker: Callable[..., Any], topic: str, spark: SparkSession
) -> None:
    check_copies(kafkalake_broker(settings=BROKER_SETTINGS), topic, spark)


@pytest.mark.long
def test_each_input_is_copied_exactly_once_while_copiers_and_any_of_three_brokers_are_killed(
    tmp_path: Path, topic: str, spark: SparkSession
) -> None:
    with kafkalake_cluster(tmp_path, BROKER_SETTINGS) as cluster:
        check_copies(OneOfThree(cluster, random.Random(SEED)), topic, spark, replicas=BROKERS)


def check_copies(broker: Any, topic: str, spark: SparkSession, replicas: int = 1) -> None:
    fire = Fire(broker, topic, SEED, os.environ.get("FIRE_PROTOCOL"), replicas)
    print(f"FIRE_SEED={SEED} FIRE_S={FIRE_S:g} FIRE_PROTOCOL={fire.protocol}", flush=True)
    fire.burn(FIRE_S)
    print(dict(fire.counts), flush=True)
    expected = fire.expected()
    assert all(len(partition) > 100 for partition in expected)
    assert fire.counts["broker killed"] and fire.counts["copier killed"]
    check_exactly_once(read_committed(broker.bootstrap_servers, fire.output, PARTITIONS), expected, "read_committed")

    through_spark: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    reader = spark.read.format("kafkalake").option("lake", str(broker.lake)).load(fire.output)
    for row in reader.orderBy("partition", "offset").select("partition", "value").collect():
        through_spark[row.partition].append(bytes(row.value))
    check_exactly_once(through_spark, expected, "Spark")
    broker.kill()
    through_arrow: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    for batch in topic_reader(str(broker.lake), fire.output, columns=["partition", "value"]):
        for partition, value in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            through_arrow[partition].append(value)
    check_exactly_once(through_arrow, expected, "topic_reader after SIGKILL")
