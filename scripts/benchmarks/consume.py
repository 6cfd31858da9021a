"""Consume: Kafka's ConsumerPerformance over a topic that ProducerPerformance wrote with its default settings.

ConsumerPerformance joins a group. Where one of the brokers has no groups, both are read by the same Java consumer with
assigned partitions and ConsumerPerformance's own settings instead, and the row says so.
"""

from __future__ import annotations

from collections.abc import Callable

from kafka_reference import BrokerProcess, create_topic

from benchmarks import kafka_tools
from benchmarks.assigned_consumer import AssignedConsumer
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.raw import JOIN_GROUP, api_keys
from benchmarks.rows import Row, compare_rates


def measure(plan: Plan) -> list[Row]:
    records = plan.size(8_000_000, 1_000_000)
    with plan.brokers() as brokers:
        for broker in brokers:
            create_topic(broker, "consume", partitions=plan.partitions)
            progress(f"consume: writing {records:,} records to {broker.name}")
            kafka_tools.produce(broker.bootstrap_servers, "consume", records=records, timeout_s=600)
        groups = all(JOIN_GROUP in api_keys(broker.port) for broker in brokers)
        if groups:

            def work(broker: BrokerProcess) -> float:
                return kafka_tools.consume(broker.bootstrap_servers, "consume", records=records).fetch_records_per_s

            figures = _take_turns(plan, brokers, work)
        else:
            with AssignedConsumer() as consumer:

                def work(broker: BrokerProcess) -> float:
                    return consumer.records_per_s(broker.bootstrap_servers, "consume", plan.partitions, records)

                figures = _take_turns(plan, brokers, work)
    tool = (
        "`ConsumerPerformance`"
        if groups
        else "Java consumer with assigned partitions, settings of `ConsumerPerformance`"
    )
    return [
        compare_rates(
            "consume",
            f"consume, {tool}, 100-byte records",
            figures[0],
            figures[1],
            at_least=0.7,
            unit="records/s",
            records=records,
            partitions=plan.partitions,
        )
    ]


def _take_turns(
    plan: Plan, brokers: tuple[BrokerProcess, ...], work: Callable[[BrokerProcess], float]
) -> list[list[float]]:
    for broker in brokers:
        progress(f"consume: warming {broker.name}")
        work(broker)
    return take_turns("consume", plan.rounds, brokers, work, "records/s")
