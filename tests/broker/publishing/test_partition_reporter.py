"""What a broker takes from Delta of partitions that it is given to lead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from manual_clock import ManualClock

from kafkalake.broker.publishing.partitions import PartitionReporter
from kafkalake.cluster.image import NO_LEADER

REGISTERED = SimpleNamespace(leader=0, replicas=(0, 1), isr=(0, 1))
TOPIC = SimpleNamespace(name="clicks", topic_id=UUID(int=7), registrations=(REGISTERED,))


class Log:
    """A log with two sealed segments of ten records."""

    log_start_offset, last_stable_offset, high_watermark, log_end_offset = 0, 20, 20, 20
    sealed_base_offsets = (0, 10)

    def producers(self) -> list[Any]:
        return []

    def generation_of(self, base: int) -> int:
        return 0

    def sealed_segments(self, base: int) -> list[Any]:
        return []

    def delete_records_before(self, offset: int) -> None:
        self.log_start_offset = offset


class Store:
    """Delta, where a job has raised the log start before this broker led the partition."""

    def __init__(self) -> None:
        self.failures = 1

    def raised_log_starts(self, leader: int) -> dict[Any, int]:
        return {}

    def load_swapped(self, since: object) -> None:
        return None

    def load_segments(self, topic: str | None = None) -> list[Any]:
        return []

    def load_partitions(self) -> list[Any]:
        if self.failures:
            self.failures -= 1
            raise OSError("once")
        return [SimpleNamespace(topic_id=str(TOPIC.topic_id), partition=0, log_start_offset=10)]


async def run_blocking(work: Callable[[], Any]) -> Any:
    return work()


def new_partition() -> Any:
    return SimpleNamespace(topic=TOPIC, index=0, log=Log(), leader_epoch=1, name="clicks-0")


def test_a_log_start_that_a_job_raised_is_taken_by_who_leads_from_now_on() -> None:
    async def run() -> None:
        store: Any = Store()
        clock = ManualClock()
        reporter = PartitionReporter(Path("lake"), 0, store, clock, run_blocking)
        looks: list[Any] = []
        scheduler: Any = SimpleNamespace(every=lambda name, interval, work: looks.append(work))
        reporter.begin(scheduler)
        partition = new_partition()
        reporter.partition_added(partition)
        with pytest.raises(OSError, match="once"):
            await looks[0]()
        assert partition.log.log_start_offset == 0
        for _ in range(2):
            await looks[0]()
            assert partition.log.log_start_offset == 10

    asyncio.run(run())


@pytest.mark.parametrize(("leader", "ends"), [(0, [22]), (NO_LEADER, [22]), (1, [])])
def test_the_last_offsets_of_a_partition_are_reported_unless_another_broker_leads_it(
    leader: int, ends: list[int]
) -> None:
    """The cluster's image names a broker whose disk has failed until another one is elected."""

    async def run() -> None:
        store: Any = Store()
        reporter = PartitionReporter(Path("lake"), 0, store, ManualClock(), run_blocking)
        for _ in range(2):
            partition = new_partition()
            reporter.partition_added(partition)
            reporter.changes.acknowledge(reporter.changes.report().sequence)
            partition.log.log_end_offset = 22
            registered = SimpleNamespace(leader=leader, replicas=(0, 1), isr=(1,))
            partition.topic = SimpleNamespace(name="clicks", topic_id=TOPIC.topic_id, registrations=(registered,))
            reporter.partition_resigned(partition)
            for is_published in (False, True):
                report = reporter.changes.report()
                assert [row.log_end_offset for row in report.rows] == ends
                reporter.changes.acknowledge(report.sequence if is_published else -1)
            assert not reporter.changes

    asyncio.run(run())
