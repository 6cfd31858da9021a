"""Latency: Kafka's EndToEndLatency, a record at a time from producer to consumer, and ProducerPerformance at a fixed rate."""

from __future__ import annotations

from kafka_reference import BrokerProcess, create_topic

from benchmarks import kafka_tools
from benchmarks.plan import Plan, progress, take_turns
from benchmarks.rows import Row, compare_times

RECORDS_PER_S = 60_000
RECORD_BYTES = 100


def measure(plan: Plan) -> list[Row]:
    rows = []
    with plan.brokers() as brokers:
        if plan.wants("latency-average") or plan.wants("latency-p99"):
            rows += _end_to_end(plan, brokers)
        if plan.wants("producer-p99"):
            rows.append(_producer(plan, brokers))
    return rows


def _end_to_end(plan: Plan, brokers: tuple[BrokerProcess, ...]) -> list[Row]:
    records = plan.size(20_000, 2_000)
    p99_ms: dict[str, list[float]] = {broker.name: [] for broker in brokers}

    def work(broker: BrokerProcess) -> float:
        found = kafka_tools.end_to_end_latency(broker.bootstrap_servers, "latency", records, RECORD_BYTES)
        p99_ms[broker.name].append(found.p99_ms)
        return found.average_ms

    for broker in brokers:
        progress(f"latency: warming {broker.name}")
        create_topic(broker, "latency")
        kafka_tools.end_to_end_latency(broker.bootstrap_servers, "latency", records, RECORD_BYTES)
    ours, theirs = take_turns("latency", plan.rounds, brokers, work, "ms")
    title = f"from producer to consumer, `EndToEndLatency`, {RECORD_BYTES}-byte records, acks=all"
    return [
        compare_times("latency-average", f"{title}, average", ours, theirs, at_least=1, unit="ms", records=records),
        compare_times("latency-p99", f"{title}, p99", *p99_ms.values(), at_least=1, unit="ms", records=records),
    ]


def _producer(plan: Plan, brokers: tuple[BrokerProcess, ...]) -> Row:
    seconds = plan.size(15, 5)

    def work(broker: BrokerProcess) -> float:
        return kafka_tools.produce(
            broker.bootstrap_servers, "producer-p99", records=seconds * RECORDS_PER_S, throughput=RECORDS_PER_S
        ).latency_ms_p99

    for broker in brokers:
        progress(f"producer-p99: warming {broker.name}")
        create_topic(broker, "producer-p99", partitions=plan.partitions)
        work(broker)
    ours, theirs = take_turns("producer-p99", plan.rounds, brokers, work, "ms")
    title = f"produce {RECORDS_PER_S:,} records/s, `ProducerPerformance`, {RECORD_BYTES}-byte records, acks=all, p99 of the latency"
    return compare_times("producer-p99", title, ours, theirs, at_least=1, unit="ms", seconds=seconds)
