"""Consume: Kafka's ConsumerPerformance over a topic that ProducerPerformance wrote with its default settings."""

from __future__ import annotations

from kafka_reference import BrokerProcess, create_topic

from benchmarks import kafka_tools
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.rows import Row, compare_rates


def measure(plan: Plan) -> list[Row]:
    records = plan.size(8_000_000, 1_000_000)

    def work(broker: BrokerProcess) -> float:
        return kafka_tools.consume(broker.bootstrap_servers, "consume", records=records).fetch_records_per_s

    with plan.brokers() as brokers:
        for broker in brokers:
            create_topic(broker, "consume", partitions=plan.partitions)
            progress(f"consume: writing {records:,} records to {broker.name}")
            kafka_tools.produce(broker.bootstrap_servers, "consume", records=records, timeout_s=600)
        for broker in brokers:
            progress(f"consume: warming {broker.name}")
            work(broker)
        ours, theirs = take_turns("consume", plan.rounds, brokers, work, "records/s")
    return [
        compare_rates(
            "consume",
            "consume, `ConsumerPerformance`, 100-byte records",
            ours,
            theirs,
            at_least=0.7,
            unit="records/s",
            records=records,
            partitions=plan.partitions,
        )
    ]
