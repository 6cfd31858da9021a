"""Transactions over several partitions by several producers, and whether each version of `partitions` shows them whole."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from kafkalake.errors import LakeError
from kafkalake.metadata.delta import DeltaMetadataStore

TIMEOUT_S = 60.0


class TransactionLoad:
    """Producers that write a record to each partition in each transaction, until `stop`. Each begins anew after an error."""

    def __init__(self, servers: str, topic: str, partitions: int, producers: int) -> None:
        self._servers = servers
        self._topic = topic
        self._partitions = partitions
        self._ends = threading.Event()
        self.committed = 0
        self._threads = [threading.Thread(target=self._produce, args=(number,)) for number in range(producers)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()

    def _produce(self, number: int) -> None:
        transaction = 0
        while not self._ends.is_set():
            producer = Producer(
                {
                    "bootstrap.servers": self._servers,
                    "transactional.id": f"whole-{number}",
                    "transaction.timeout.ms": 5_000,
                    "message.timeout.ms": 4_000,
                    "socket.timeout.ms": 3_000,
                    "log_level": 0,
                }
            )
            try:
                producer.init_transactions(10)
                while not self._ends.is_set():
                    transaction += 1
                    self._transact(producer, b"%d-%d" % (number, transaction), is_aborted=transaction % 7 == 0)
            except KafkaException:
                continue

    def _transact(self, producer: Producer, value: bytes, *, is_aborted: bool) -> None:
        producer.begin_transaction()
        for partition in range(self._partitions):
            producer.produce(self._topic, value, partition=partition)
        if is_aborted:
            producer.abort_transaction(10)
        else:
            producer.commit_transaction(10)
            self.committed += 1


def committed_offsets(servers: str, topic: str, ends: Mapping[int, int]) -> dict[bytes, dict[int, int]]:
    """Return the offsets of each committed transaction by partition, as a consumer of `read_committed` gets them."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "whole",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    found: dict[bytes, dict[int, int]] = defaultdict(dict)
    left, until = set(ends), time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        while left:
            assert time.monotonic() < until, f"partitions {left} are not read to their end"
            for message in consumer.consume(1, 0.5):
                error, partition = message.error(), message.partition()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        position = consumer.position([TopicPartition(topic, partition)])[0].offset
                        if position >= ends[partition]:
                            left.discard(partition)
                    continue
                assert partition not in found[message.value()], f"{message.value()!r} is twice in partition {partition}"
                found[message.value()][partition] = message.offset()
    finally:
        consumer.close()
    return found


def half_transactions(
    lake: Path, topic: str, offsets: Mapping[bytes, Mapping[int, int]], first_version: int = 0
) -> tuple[int, list[str]]:
    """Return the number of versions of `partitions`, from one on, that differ in a topic, and the transactions shown in part.

    offsets: of each transaction in each partition.
    """
    store = DeltaMetadataStore(lake, create=False)
    last, _ = store.partitions_at(None, None)
    halves: list[str] = []
    values, partitions = list(offsets), sorted(next(iter(offsets.values()), {}))
    matrix = np.array([[offsets[value][partition] for partition in partitions] for value in values])
    seen = 0
    before: dict[int, int] = {}
    for version in range(first_version, last + 1):
        try:
            _, rows = store.partitions_at(version, None, [topic])
        except LakeError:
            continue
        stable = {row.partition: row.last_stable_offset for row in rows}
        if not stable or stable == before:
            continue
        seen += 1
        assert all(end >= before.get(partition, 0) for partition, end in stable.items()), f"version {version} goes back"
        before = stable
        shown = matrix < np.array([stable.get(partition, 0) for partition in partitions])
        for index in np.flatnonzero(shown.any(axis=1) & ~shown.all(axis=1))[:10]:
            halves.append(f"version {version} shows {values[index]!r} in {shown[index].tolist()}")
    return seen, halves
