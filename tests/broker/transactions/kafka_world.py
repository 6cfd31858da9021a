"""Requests about one transactional id to an Apache Kafka, over raw connections. `our_world` asks our coordinator the same.

Answers are plain tuples. Producer ids are shown by the order in which they appeared ("p0", "p1"), because they differ.
"""

from __future__ import annotations

import datetime
import socket
import struct
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

from broker.groups import worlds
from broker.groups.worlds import label

from kafkalake.broker.coordination.fields import FieldReader, compact_string, string, unsigned_varint

Partition = tuple[str, int]
PATIENCE_S = 30.0
PARTITIONS_TRIED = 8
DESCRIBE_TRANSACTIONS = 65
TIMEOUT_MS = 60_000
NOBODY = "none"


class World(Protocol):
    """Requests to one transaction coordinator. `v2`: as a client of transactions version 2 (KIP-890) sends them."""

    def init(self, timeout_ms: int = TIMEOUT_MS, expected: tuple[str, int] | None = None) -> tuple[str, str, int]: ...
    def add(self, producer: str, epoch: int, partitions: Sequence[Partition], *, v2: bool) -> list[str]: ...
    def verify(self, producer: str, epoch: int, partitions: Sequence[Partition]) -> list[str]: ...
    def add_offsets(self, producer: str, epoch: int, group: str) -> str: ...
    def end(self, producer: str, epoch: int, *, committed: bool, v2: bool) -> tuple[str, str, int]: ...
    def describe(self) -> tuple[str, str, list[Partition], str, int]: ...
    def settle(self) -> None: ...


class ProducerNames:
    """Producer id <-> the name it is shown by."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {-1: NOBODY}

    def name(self, producer_id: int) -> str:
        return self._names.setdefault(producer_id, f"p{len(self._names) - 1}")

    def producer_id(self, name: str) -> int:
        """The id of that name; of a name that was never given, an id that was never given."""
        return next((known for known, one in self._names.items() if one == name), 987_654_321)


class KafkaTransactions:
    """An Apache Kafka's transaction coordinator."""

    def __init__(self, bootstrap_servers: str, transactional_id: str) -> None:
        self._kafka = worlds.KafkaWorld(bootstrap_servers)
        self._bootstrap_servers = bootstrap_servers
        self._id = transactional_id
        self._names = ProducerNames()

    def wait_for_coordinator(self) -> None:
        """Until the broker coordinates ids; it makes its journal when it is first asked for."""
        deadline = time.monotonic() + PATIENCE_S
        self._kafka.ask("find_coordinator", 4, key_type=1, coordinator_keys=(self._id,))
        for number in range(PARTITIONS_TRIED):
            other = KafkaTransactions(self._bootstrap_servers, f"{self._id}-{number}")
            while (answer := other.init())[0] != "NONE":
                assert time.monotonic() < deadline, f"no coordinator: {answer}"
                time.sleep(0.05)

    def settle(self) -> None:
        """Until no marker is on its way."""
        deadline = time.monotonic() + PATIENCE_S
        while self.describe()[1].startswith("Prepare"):
            assert time.monotonic() < deadline, "markers do not arrive"
            time.sleep(0.02)

    def init(self, timeout_ms: int = TIMEOUT_MS, expected: tuple[str, int] | None = None) -> tuple[str, str, int]:
        producer, epoch = (NOBODY, -1) if expected is None else expected
        response = self._kafka.ask(
            "init_producer_id",
            5,
            transactional_id=self._id,
            transaction_timeout=datetime.timedelta(milliseconds=timeout_ms),
            producer_id=self._names.producer_id(producer),
            producer_epoch=epoch,
        )
        return self._shown(response)

    def add(self, producer: str, epoch: int, partitions: Sequence[Partition], *, v2: bool) -> list[str]:
        if v2:
            return self._batched(producer, epoch, partitions, verify_only=False)
        module = import_module("kio.schema.add_partitions_to_txn.v3.request")
        response = self._kafka.ask(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._names.producer_id(producer),
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=_topics(module, partitions),
        )
        return _errors(response.results_by_topic_v3_and_below, partitions)

    def verify(self, producer: str, epoch: int, partitions: Sequence[Partition]) -> list[str]:
        return self._batched(producer, epoch, partitions, verify_only=True)

    def _batched(self, producer: str, epoch: int, partitions: Sequence[Partition], *, verify_only: bool) -> list[str]:
        module = import_module("kio.schema.add_partitions_to_txn.v5.request")
        transaction = module.AddPartitionsToTxnTransaction(
            transactional_id=self._id,
            producer_id=self._names.producer_id(producer),
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=_topics(module, partitions),
        )
        response = self._kafka.ask("add_partitions_to_txn", 5, transactions=(transaction,))
        return _errors(response.results_by_transaction[0].topic_results, partitions)

    def add_offsets(self, producer: str, epoch: int, group: str) -> str:
        response = self._kafka.ask(
            "add_offsets_to_txn",
            4,
            transactional_id=self._id,
            producer_id=self._names.producer_id(producer),
            producer_epoch=epoch,
            group_id=group,
        )
        return label(int(response.error_code))

    def end(self, producer: str, epoch: int, *, committed: bool, v2: bool) -> tuple[str, str, int]:
        response = self._kafka.ask(
            "end_txn",
            5 if v2 else 4,
            transactional_id=self._id,
            producer_id=self._names.producer_id(producer),
            producer_epoch=epoch,
            committed=committed,
        )
        return self._shown(response) if v2 else (label(int(response.error_code)), NOBODY, -1)

    def describe(self) -> tuple[str, str, list[Partition], str, int]:
        # By hand: kio refuses the start time -1 of an id that had no transaction yet.
        host, port = self._bootstrap_servers.split(":")
        frame = struct.pack(">hhi", DESCRIBE_TRANSACTIONS, 0, 1) + string("c") + b"\x00"
        frame += unsigned_varint(2) + compact_string(self._id) + b"\x00"
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            stream = connection.makefile("rb")
            reader = FieldReader(stream.read(struct.unpack(">i", stream.read(4))[0]))
        reader.raw(4 + 1 + 4)  # correlation id, tags, throttle time
        assert reader.compact_count() == 1
        error, _ = reader.int16(), reader.compact_string()
        state, _, _ = reader.compact_string(), reader.int32(), reader.int64()
        producer_id, epoch = reader.int64(), reader.int16()
        partitions = []
        for _ in range(reader.compact_count()):
            topic = reader.compact_string()
            partitions += [(topic, reader.int32()) for _ in range(reader.compact_count())]
            reader.tagged()
        if error:
            return label(error), "", [], NOBODY, -1
        return "NONE", state, sorted(partitions), self._names.name(producer_id), epoch

    def _shown(self, response: Any) -> tuple[str, str, int]:
        return label(int(response.error_code)), self._names.name(response.producer_id), response.producer_epoch


def _topics(module: Any, partitions: Sequence[Partition]) -> tuple[Any, ...]:
    names = dict.fromkeys(topic for topic, _ in partitions)
    return tuple(
        module.AddPartitionsToTxnTopic(
            name=name, partitions=tuple(partition for topic, partition in partitions if topic == name)
        )
        for name in names
    )


def _errors(topics: Sequence[Any], partitions: Sequence[Partition]) -> list[str]:
    found = {
        (topic.name, one.partition_index): label(int(one.partition_error_code))
        for topic in topics
        for one in topic.results_by_partition
    }
    return [found[one] for one in partitions]
