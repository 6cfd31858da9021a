"""Copies records exactly once, in a process of its own: `python transactional_copier.py OPTIONS`, a JSON object.

{"client", "servers", "group", "input", "output", "transactional_id", "seed", "abort_rate", "protocol"}. Reads the topic `input` as
a member of `group`, which must have committed an offset of each partition, writes each value as `copied:VALUE` to the same
partition of `output`, and commits the offsets in the same transaction (KIP-98, KIP-447). Some transactions are aborted on purpose,
then it goes back to what is committed. Prints a JSON line per event: {"assigned": [partitions]}, {"copied": n}, {"aborted": why}.
Ends in order at SIGTERM; when it cannot go on (fenced), with {"ended": why} and code 3.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import traceback
from typing import Any

import kafka_python_group

SESSION_TIMEOUT_MS = 6_000
TRANSACTION_TIMEOUT_MS = 10_000
RECORDS_PER_TRANSACTION = 50
TIMEOUT_S = 20.0
ON_PURPOSE = "on purpose"
CANNOT_GO_ON = 3


class Ended(Exception):
    """SIGTERM came."""


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def end(number: int, frame: Any) -> None:
    raise Ended


class ConfluentCopier:
    """librdkafka, ready for everything: rebalances, lost partitions, errors that can be tried again, that abort, that end."""

    def __init__(self, options: dict[str, Any]) -> None:
        import confluent_kafka

        self._kafka = confluent_kafka
        self._options = options
        self._randomness = random.Random(options["seed"])
        self._is_of_consumer_protocol = options.get("protocol") == "consumer"
        common = {
            "bootstrap.servers": options["servers"],
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 50,
            # librdkafka 2.16 begins anew at the bootstrap servers when its only broker is away, and then may wait in
            # `commit_transaction` for ever, on Apache Kafka as well.
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        self._producer = confluent_kafka.Producer(
            common
            | {
                "transactional.id": options["transactional_id"],
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 0,
            }
        )
        self._consumer = confluent_kafka.Consumer(
            common
            | {
                "group.id": options["group"],
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "topic.metadata.refresh.interval.ms": 1_000,
            }
            | (
                {"group.protocol": "consumer"}
                if self._is_of_consumer_protocol
                else {
                    "session.timeout.ms": options.get("session_timeout_ms", SESSION_TIMEOUT_MS),
                    "heartbeat.interval.ms": 300,
                    "partition.assignment.strategy": "range",
                }
            )
        )
        self._batch: list[Any] = []
        self._metadata: Any = None
        """Who this member was when it was given its partitions: a later generation must not commit for this one."""
        self._held: set[int] = set()

    def run(self) -> None:
        self._persist(lambda: self._producer.init_transactions(TIMEOUT_S))
        self._consumer.subscribe(
            [self._options["input"]], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
        )
        try:
            while True:
                self._collect()
                if self._batch:
                    self._copy()
        except Ended:
            self._consumer.close()

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        self._held |= {each.partition for each in partitions}
        self._metadata = consumer.consumer_group_metadata()
        say(assigned=sorted(self._held))

    def _revoked(self, consumer: Any, partitions: list[Any]) -> None:
        self._held -= {each.partition for each in partitions}
        self._batch = [message for message in self._batch if message.partition() in self._held]
        say(assigned=sorted(self._held))

    def _collect(self) -> None:
        """Poll one by one: a callback between two of them throws away what others will read."""
        if (
            self._is_of_consumer_protocol
        ):  # an epoch may begin without a callback, where the member keeps its partitions
            self._metadata = self._consumer.consumer_group_metadata()
        while len(self._batch) < RECORDS_PER_TRANSACTION:
            message = self._consumer.poll(0.1)
            if message is None:
                return
            if not message.error():
                self._batch.append(message)

    def _copy(self) -> None:
        batch, self._batch = self._batch, []
        ends = {message.partition(): message.offset() + 1 for message in batch}
        offsets = [self._kafka.TopicPartition(self._options["input"], index, end) for index, end in ends.items()]
        self._producer.begin_transaction()
        try:
            for message in batch:
                self._producer.produce(
                    self._options["output"], b"copied:" + message.value(), partition=message.partition()
                )
            self._persist(lambda: self._producer.send_offsets_to_transaction(offsets, self._metadata, TIMEOUT_S))
            if self._randomness.random() < self._options["abort_rate"]:
                self._abort(ON_PURPOSE)
                return
            self._persist(lambda: self._producer.commit_transaction(TIMEOUT_S))
            say(copied=len(batch))
        except self._kafka.KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort(str(error))

    def _abort(self, why: str) -> None:
        self._persist(lambda: self._producer.abort_transaction(TIMEOUT_S))
        say(aborted=why)
        assignment = self._consumer.assignment()
        for each in self._persist(lambda: self._consumer.committed(assignment, timeout=TIMEOUT_S)):
            if each.offset < 0:
                raise ValueError(f"nothing is committed of partition {each.partition}")
            try:
                self._consumer.seek(each)
            except self._kafka.KafkaException as error:
                say(lost=str(error))  # taken away meanwhile: whoever has it now starts at the committed offset

    def _persist(self, operation: Any) -> Any:
        """Try again what may be tried again."""
        for _ in range(100):
            try:
                return operation()
            except self._kafka.KafkaException as error:
                if not error.args[0].retriable() and error.args[0].name() not in ("_TRANSPORT", "_TIMED_OUT"):
                    raise
                last = error
                say(retried=str(error))
        raise last


def kafka_python(options: dict[str, Any]) -> None:
    """kafka-python, as its documentation shows it."""
    import kafka

    randomness = random.Random(options["seed"])
    producer = kafka.KafkaProducer(
        bootstrap_servers=options["servers"],
        transactional_id=options["transactional_id"],
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        linger_ms=0,
    )
    producer.init_transactions()
    consumer = kafka.KafkaConsumer(
        options["input"],
        bootstrap_servers=options["servers"],
        group_id=options["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        metadata_max_age_ms=1_000,
    )
    assigned = None
    try:
        while True:
            batches = kafka_python_group.poll(consumer, RECORDS_PER_TRANSACTION)
            if consumer.assignment() != assigned:
                assigned = set(consumer.assignment())
                say(assigned=sorted(each.partition for each in assigned))
            if not batches:
                continue
            producer.begin_transaction()
            for where, records in batches.items():
                for record in records:
                    producer.send(options["output"], value=b"copied:" + record.value, partition=where.partition)
            offsets = {
                where: kafka.OffsetAndMetadata(records[-1].offset + 1, "", -1) for where, records in batches.items()
            }
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            if randomness.random() < options["abort_rate"]:
                producer.abort_transaction()
                say(aborted=ON_PURPOSE)
                for where, records in batches.items():
                    consumer.seek(where, records[0].offset)
            else:
                producer.commit_transaction()
                say(copied=sum(map(len, batches.values())))
    except Ended:
        consumer.close()


def aio(options: dict[str, Any]) -> None:
    """aiokafka, as its documentation shows it."""
    import aiokafka

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        randomness = random.Random(options["seed"])
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=options["servers"],
            transactional_id=options["transactional_id"],
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        await producer.start()
        consumer = aiokafka.AIOKafkaConsumer(
            options["input"],
            bootstrap_servers=options["servers"],
            group_id=options["group"],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            metadata_max_age_ms=1_000,
        )
        await consumer.start()
        assigned = None
        while not stop.is_set():
            batches = await consumer.getmany(timeout_ms=100, max_records=RECORDS_PER_TRANSACTION)
            if consumer.assignment() != assigned:
                assigned = set(consumer.assignment())
                say(assigned=sorted(each.partition for each in assigned))
            if not any(batches.values()):
                continue
            await producer.begin_transaction()
            for where, records in batches.items():
                for record in records:
                    await producer.send(options["output"], b"copied:" + record.value, partition=where.partition)
            offsets = {where: records[-1].offset + 1 for where, records in batches.items()}
            await producer.send_offsets_to_transaction(offsets, options["group"])
            if randomness.random() < options["abort_rate"]:
                await producer.abort_transaction()
                say(aborted=ON_PURPOSE)
                for where, records in batches.items():
                    consumer.seek(where, records[0].offset)
            else:
                await producer.commit_transaction()
                say(copied=sum(map(len, batches.values())))
        await consumer.stop()
        await producer.stop()

    asyncio.run(run())


def confluent(options: dict[str, Any]) -> None:
    """librdkafka."""
    ConfluentCopier(options).run()


RUN = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": aio}

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    given = json.loads(sys.argv[1])
    try:
        RUN[given["client"]](given)
    except Ended:
        pass  # before it had begun
    except Exception as error:
        traceback.print_exc()
        say(ended=repr(error))
        sys.exit(CANNOT_GO_ON)
