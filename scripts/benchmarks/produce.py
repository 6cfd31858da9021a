"""Produce: Kafka's ProducerPerformance with acks=all, and the broker's processor time beside each rate.

Default settings to one, 100 and 1,000 partitions, large batches, lz4, and requests of one record from three producers at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_reference import BrokerProcess, create_topic

from benchmarks import kafka_tools
from benchmarks.plan import Plan, costing, progress, take_turns
from benchmarks.rows import Cost, Row, compare_rates

LARGE_BATCHES = {"batch.size": "262144", "linger.ms": "10"}


@dataclass(frozen=True)
class Case:
    """What one row writes. `records` are all producers' together; without `partitions`, the run's option counts."""

    key: str
    title: str
    records: int
    at_least: float
    settings: dict[str, str] = field(default_factory=dict)
    record_bytes: int = 100
    partitions: int | None = None
    producers: int = 1

    @property
    def cost(self) -> Cost:
        """A GB of values, or a million requests where each is one record."""
        return Cost("M requests" if self.producers > 1 else "GB")

    @property
    def units(self) -> float:
        return self.records / 1e6 if self.producers > 1 else self.records * self.record_bytes / 1e9


def measure(plan: Plan) -> Iterator[Row]:
    default = plan.size(3_000_000, 300_000)
    cases = (
        Case("produce-default", "default settings", default, 0.7),
        Case("produce-large", "`batch.size=262144 linger.ms=10`", plan.size(8_000_000, 1_000_000), 0.9, LARGE_BATCHES),
        Case("produce-lz4", "`lz4`", plan.size(1_000_000, 100_000), 0.7, {"compression.type": "lz4"}, 1024),
        Case("produce-100", "default settings, 100 partitions", default, 0.7, partitions=100),
        Case("produce-1000", "default settings, 1,000 partitions", default, 0.7, partitions=1000),
        Case(
            "produce-small",
            "three producers, one record a request",
            plan.size(150_000, 15_000),
            0.7,
            {"batch.size": "0"},
            producers=3,
        ),
    )
    with plan.brokers() as brokers:
        for case in cases:
            if plan.wants(case.key):
                yield _row(plan, brokers, case)


def _row(plan: Plan, brokers: tuple[BrokerProcess, ...], case: Case) -> Row:
    cost = case.cost
    partitions = case.partitions or plan.partitions

    def work(broker: BrokerProcess) -> float:
        with costing(cost, broker, case.units):
            return _produce(broker, case, case.records)

    for broker in brokers:
        progress(f"{case.key}: warming {broker.name}")
        create_topic(broker, case.key, partitions=partitions, timeout_s=60)
        _produce(broker, case, case.records // 2)
    ours, theirs = take_turns(case.key, plan.rounds, brokers, work, "records/s")
    return compare_rates(
        case.key,
        f"produce, `ProducerPerformance`, {case.record_bytes:,}-byte records, acks=all, {case.title}",
        ours,
        theirs,
        at_least=case.at_least,
        unit="records/s",
        cost=cost,
        records=case.records,
        partitions=partitions,
    )


def _produce(broker: BrokerProcess, case: Case, records: int) -> float:
    """Records a second of all producers, which start together."""
    produced = kafka_tools.side_by_side(
        case.producers,
        lambda: kafka_tools.produce(
            broker.bootstrap_servers,
            case.key,
            records=records // case.producers,
            record_bytes=case.record_bytes,
            settings=case.settings,
        ),
    )
    return sum(each.records_per_s for each in produced)
