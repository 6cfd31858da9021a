"""Produce: Kafka's ProducerPerformance, 100-byte records, acks=all, with default settings and with large batches."""

from __future__ import annotations

from kafka_reference import BrokerProcess, create_topic

from benchmarks import kafka_tools
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.rows import Row, compare_rates

DEFAULT: dict[str, str] = {}
LARGE_BATCHES = {"batch.size": "262144", "linger.ms": "10"}


def measure(plan: Plan) -> list[Row]:
    cases = [
        ("produce-default", "default settings", DEFAULT, plan.size(3_000_000, 300_000), 0.7),
        ("produce-large", "`batch.size=262144 linger.ms=10`", LARGE_BATCHES, plan.size(8_000_000, 1_000_000), 0.9),
    ]
    rows = []
    with plan.brokers() as brokers:
        for broker in brokers:
            create_topic(broker, "warm", partitions=plan.partitions)
            for _, _, settings, records, _ in cases:
                progress(f"produce: warming {broker.name}")
                kafka_tools.produce(broker.bootstrap_servers, "warm", records=records // 2, settings=settings)
            for key, *_ in cases:
                create_topic(broker, key, partitions=plan.partitions)
        for key, title, settings, records, at_least in cases:

            def work(
                broker: BrokerProcess, key: str = key, settings: dict[str, str] = settings, records: int = records
            ) -> float:
                return kafka_tools.produce(
                    broker.bootstrap_servers, key, records=records, settings=settings
                ).records_per_s

            ours, theirs = take_turns(key, plan.rounds, brokers, work, "records/s")
            rows.append(
                compare_rates(
                    key,
                    f"produce, `ProducerPerformance`, 100-byte records, acks=all, {title}",
                    ours,
                    theirs,
                    at_least=at_least,
                    unit="records/s",
                    records=records,
                    partitions=plan.partitions,
                )
            )
    return rows
