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

TOPIC = SimpleNamespace(name="clicks", topic_id=UUID(int=7), registrations=(SimpleNamespace(leader=0),))


class Log:
    """A log with two sealed segments of ten records."""

    log_start_offset, high_watermark = 0, 20
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


def test_a_log_start_that_a_job_raised_is_taken_by_who_leads_from_now_on() -> None:
    async def run_blocking(work: Callable[[], Any]) -> Any:
        return work()

    async def run() -> None:
        store: Any = Store()
        clock = ManualClock()
        reporter = PartitionReporter(Path("lake"), 0, store, clock, run_blocking)
        looks: list[Any] = []
        scheduler: Any = SimpleNamespace(every=lambda name, interval, work: looks.append(work))
        reporter.begin(scheduler)
        partition: Any = SimpleNamespace(topic=TOPIC, index=0, log=Log(), leader_epoch=1, name="clicks-0")
        reporter.partition_added(partition)
        with pytest.raises(OSError, match="once"):
            await looks[0]()
        assert partition.log.log_start_offset == 0
        for _ in range(2):
            await looks[0]()
            assert partition.log.log_start_offset == 10

    asyncio.run(run())
