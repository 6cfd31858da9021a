"""Consume: Kafka's ConsumerPerformance over a topic that ProducerPerformance wrote with its default settings.

By one consumer, by four at once, and by one after both brokers were started again, when nothing of the topic is in their memory
(the operating system may still have the files). Beside each rate stands the broker's processor time.
"""

from __future__ import annotations

from kafka_reference import BrokerProcess, create_topic

from benchmarks import kafka_tools
from benchmarks.plan import Plan, costing, progress, take_turns
from benchmarks.rows import Cost, Row, compare_rates

TOPIC = "consume"
FAN_OUT_TOPIC = "consume-fan-out"
RECORD_BYTES = 100
CONSUMERS = 4


def measure(plan: Plan) -> list[Row]:
    records = plan.size(8_000_000, 1_000_000)
    fan_out_records = plan.size(4_000_000, 500_000)
    rows = []
    with plan.brokers() as brokers:
        if plan.wants("consume-fan-out"):
            _write(plan, brokers, FAN_OUT_TOPIC, fan_out_records)
            title = f"consume, {CONSUMERS} consumers of one topic at once"
            rows.append(_row(plan, brokers, "consume-fan-out", title, FAN_OUT_TOPIC, fan_out_records, CONSUMERS))
        if plan.wants("consume-one") or plan.wants("consume-restarted"):
            _write(plan, brokers, TOPIC, records)
        if plan.wants("consume-one"):
            rows.append(_row(plan, brokers, "consume-one", "consume", TOPIC, records))
        if plan.wants("consume-restarted"):
            for broker in brokers:
                broker.restart()
            title = "consume, after a restart of the broker"
            rows.append(_row(plan, brokers, "consume-restarted", title, TOPIC, records))
    return rows


def _write(plan: Plan, brokers: tuple[BrokerProcess, ...], topic: str, records: int) -> None:
    for broker in brokers:
        create_topic(broker, topic, partitions=plan.partitions)
        progress(f"{topic}: writing {records:,} records to {broker.name}")
        kafka_tools.produce(broker.bootstrap_servers, topic, records=records, timeout_s=600)


def _row(
    plan: Plan,
    brokers: tuple[BrokerProcess, ...],
    key: str,
    title: str,
    topic: str,
    records: int,
    consumers: int = 1,
) -> Row:
    cost = Cost("GB")

    def work(broker: BrokerProcess) -> float:
        with costing(cost, broker, consumers * records * RECORD_BYTES / 1e9):
            return consume(broker)

    def consume(broker: BrokerProcess) -> float:
        consumed = kafka_tools.side_by_side(
            consumers, lambda: kafka_tools.consume(broker.bootstrap_servers, topic, records=records)
        )
        return sum(each.fetch_records_per_s for each in consumed)

    for broker in brokers:
        progress(f"{key}: warming {broker.name}")
        consume(broker)
    ours, theirs = take_turns(key, plan.rounds, brokers, work, "records/s")
    return compare_rates(
        key,
        f"{title}, `ConsumerPerformance`, {RECORD_BYTES}-byte records",
        ours,
        theirs,
        at_least=0.7,
        unit="records/s",
        cost=cost,
        records=records,
        partitions=plan.partitions,
    )
