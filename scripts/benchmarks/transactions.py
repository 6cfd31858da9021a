"""Transactions: one producer that commits 10 records over 4 partitions, again and again, as fast as it is answered.

Two clients, because their protocols differ: librdkafka adds partitions by requests of their own and keeps its epoch; Kafka's
Java client adds them with the records and gets a new epoch with every commit (KIP-890).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import confluent_kafka
from kafka_reference import BrokerProcess, create_topic

from benchmarks.java_clients import JavaClients
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.rows import Row, compare_rates

TOPIC = "transactions"
PARTITIONS = 4
RECORDS = 10
RECORD_BYTES = 100
AT_LEAST = 0.7
TIMEOUT_S = 60.0


def measure(plan: Plan) -> list[Row]:
    count = plan.size(1_000, 100)
    rows = []
    with plan.brokers() as brokers, JavaClients() as java:
        for broker in brokers:
            create_topic(broker, TOPIC, partitions=PARTITIONS)
        for key, client, rate in (
            ("transactions", "librdkafka", librdkafka),
            ("transactions-java", "Java client", java.transactions_per_s),
        ):
            for broker in brokers:
                progress(f"{key}: warming {broker.name}")
                rate(broker.bootstrap_servers, TOPIC, PARTITIONS, count, RECORDS, RECORD_BYTES)

            def work(broker: BrokerProcess, rate: Callable[..., float] = rate) -> float:
                return rate(broker.bootstrap_servers, TOPIC, PARTITIONS, count, RECORDS, RECORD_BYTES)

            ours, theirs = take_turns(key, plan.rounds, brokers, work, "transactions/s")
            rows.append(
                compare_rates(
                    key,
                    f"transactions of {RECORDS} records over {PARTITIONS} partitions, one producer, {client}",
                    ours,
                    theirs,
                    at_least=AT_LEAST,
                    unit="transactions/s",
                    transactions=count,
                )
            )
    return rows


def librdkafka(servers: str, topic: str, partitions: int, count: int, records: int, record_bytes: int) -> float:
    """Transactions a second of confluent-kafka."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": f"measure-{uuid.uuid4().hex[:10]}",
            "linger.ms": 0,
            "queue.buffering.max.messages": 100_000,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    value = bytes(record_bytes)
    started = time.perf_counter()
    for _ in range(count):
        producer.begin_transaction()
        for number in range(records):
            producer.produce(topic, value, partition=number % partitions)
        producer.commit_transaction(TIMEOUT_S)
    return count / (time.perf_counter() - started)
