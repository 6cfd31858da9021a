"""What a broker takes from Delta of partitions that it is given to lead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from manual_clock import ManualClock
from metadata.metadata_rows import segment_row

from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.publishing.broker_reports import BrokerReports
from kafkalake.broker.publishing.partitions import PartitionReporter
from kafkalake.clock import SystemClock
from kafkalake.cluster.image import NO_LEADER
from kafkalake.errors import KafkaError, KafkaStorageError
from kafkalake.metadata.tables.schemas import SegmentRow
from kafkalake.run_blocking import take_all

REGISTERED = SimpleNamespace(leader=0, replicas=(0, 1), isr=(0, 1))
TOPIC = SimpleNamespace(name="clicks", topic_id=UUID(int=7), registrations=(REGISTERED,) * 3)


SEALED: Any = SimpleNamespace(
    base_offset=0,
    next_offset=10,
    generation=0,
    path="lake/clicks/0.arrow",
    records=10,
    bytes=100,
    min_timestamp=1,
    max_timestamp=2,
    sealed_at_ms=3,
)
REWRITTEN = [
    SimpleNamespace(topic_id=str(TOPIC.topic_id), partition=index, base_offset=0, next_offset=10, generation=1)
    for index in (0, 1)
]


class Log:
    """A log with two sealed segments of ten records."""

    log_start_offset, last_stable_offset, high_watermark, log_end_offset = 0, 20, 20, 20
    sealed_base_offsets: tuple[int, ...] = (0, 10)
    segment_borders = (0, 10, 20, 20)
    refused: tuple[Any, ...] = ()

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.adopted: list[Any] = []

    def producers(self) -> list[Any]:
        return []

    def generation_of(self, base: int) -> int:
        return 0

    def sealed_segments(self, base: int) -> list[Any]:
        if self.failures:
            raise self.failures.pop()
        return [SEALED]

    def delete_records_before(self, offset: int) -> None:
        self.log_start_offset = offset

    @property
    def generations(self) -> list[Any]:
        return list(self.adopted)

    def adopt_rewritten(self, segments: list[Any]) -> list[Any]:
        if self.failures:
            raise self.failures.pop()
        self.adopted = segments
        return list(self.refused)


class Store:
    """Delta, where a job has raised the log start before this broker led the partition."""

    def __init__(self, failures: int = 1, swapped_at: int = 1 << 30) -> None:
        """swapped_at: the number of the look at which a segment has been rewritten."""
        self.failures = failures
        self._swapped_at = swapped_at
        self.segments: tuple[SegmentRow, ...] = ()

    def raised_log_starts(self, leader: int) -> dict[Any, int]:
        return {}

    def load_swapped(self, since: object) -> Any:
        self._swapped_at -= 1
        return SimpleNamespace(position="now", rows=REWRITTEN) if self._swapped_at < 0 and since is None else None

    def load_segments(self, topic: str | None = None) -> list[Any]:
        return list(self.segments)

    def load_partitions(self) -> list[Any]:
        if self.failures:
            self.failures -= 1
            raise OSError("once")
        return [SimpleNamespace(topic_id=str(TOPIC.topic_id), partition=0, log_start_offset=10)]


async def run_blocking(work: Callable[[], Any]) -> Any:
    return work()


class _Partition:
    change_log: Any = Partition.change_log
    removed: Any = Partition.removed

    def __init__(self, index: int, *failures: Exception) -> None:
        self.topic: Any = TOPIC
        self.index, self.leader_epoch, self.name = index, 1, f"clicks-{index}"
        self.log = Log(*failures)
        self.refusal: KafkaError | None = None
        self.under_way = set[Any]()

    def forget_tail(self) -> None:
        pass


def new_partition(*failures: Exception, index: int = 0) -> Any:
    return _Partition(index, *failures)


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
            reporter.changes.acknowledge(take_all(reporter.changes.report()).sequence)
            partition.log.log_end_offset = 22
            registered = SimpleNamespace(leader=leader, replicas=(0, 1), isr=(1,))
            partition.topic = SimpleNamespace(name="clicks", topic_id=TOPIC.topic_id, registrations=(registered,))
            reporter.partition_resigned(partition)
            for is_published in (False, True):
                report = take_all(reporter.changes.report())
                assert [row.log_end_offset for row in report.rows] == ends
                reporter.changes.acknowledge(report.sequence if is_published else -1)
            assert not reporter.changes

    asyncio.run(run())


def begun(store: Any) -> tuple[PartitionReporter, list[Any]]:
    """Return a reporter, and its works: the look, and what makes it compare again."""
    reporter = PartitionReporter(Path("lake"), 0, store, ManualClock(), run_blocking)
    works: list[Any] = []
    scheduler: Any = SimpleNamespace(every=lambda name, interval, work: works.append(work))
    reporter.begin(scheduler)
    return reporter, works


def test_segments_of_a_log_that_could_not_be_read_are_published_later() -> None:
    async def run() -> None:
        reporter, (look, compare_again) = begun(Store(failures=0))
        for partition in (new_partition(*[KafkaStorageError("no descriptor left")] * 2), new_partition(index=1)):
            reporter.partition_added(partition)
        for published in ([1], [1], [0, 1]):
            await look()
            await asyncio.sleep(0)
            assert sorted(row.partition for row in take_all(reporter.changes.report()).sealed) == published
            compare_again()
        resigned = new_partition(KafkaStorageError("no descriptor left"), index=2)
        reporter.partition_added(resigned)
        await look()
        reporter.partition_removed(resigned)
        compare_again()
        assert not reporter._uncompared

    asyncio.run(run())


def test_a_segment_that_is_removed_while_it_is_compared_is_not_published() -> None:
    """Its removal is reported before the comparison ends, which then brought it back for good."""

    class Trimmed(Log):
        def sealed_segments(self, base: int) -> list[Any]:
            self.sealed_base_offsets = (10,)
            events.segment_removed(0, 0)
            return [SEALED]

    async def run() -> None:
        nonlocal events
        reporter, (look, _) = begun(Store(failures=0))
        partition = new_partition()
        partition.log = Trimmed()
        events = reporter._segments_of(partition)
        reporter.partition_added(partition)
        await look()
        await asyncio.sleep(0)
        report = take_all(reporter.changes.report())
        assert ([each.base_offset for each in report.removed], list(report.sealed)) == ([0], [])

    events: Any = None
    asyncio.run(run())


def row(base_offset: int, next_offset: int, *, generation: int = 0, broker: int = 1) -> SegmentRow:
    place = segment_row(
        "clicks", base=base_offset, size=next_offset - base_offset, generation=generation, broker=broker
    )
    return replace(place, topic_id=str(TOPIC.topic_id))


def test_rows_of_records_that_an_unclean_election_has_lost_are_gone() -> None:
    """The log's segments begin at 10, 20 and 30, where the active one does. It ends at 40, also if it has gone on since then."""

    async def run() -> None:
        store = Store(failures=0)
        kept = (row(5, 10), row(8, 20), row(20, 30), row(30, 35), row(15, 35, generation=1))
        lost = (row(15, 20), row(25, 35), row(10, 30), row(30, 45), row(40, 50), row(20, 50, generation=1))
        store.segments = (*kept, *lost)
        reporter, (look, _) = begun(store)
        partition = new_partition()
        partition.log.segment_borders = (10, 20, 30, 40)
        partition.log.sealed_segments = lambda base: []
        reporter.partition_added(partition)
        await look()
        await asyncio.sleep(0)
        removed = set(take_all(reporter.changes.report()).removed)
        assert removed == {row.key for row in (kept[0], *lost)}, (
            "and the one before the log start, which a job has raised"
        )

    asyncio.run(run())


@pytest.mark.parametrize("broker", [0, 1])
def test_a_segment_that_ends_elsewhere_than_the_one_an_unclean_election_has_lost_takes_its_place(broker: int) -> None:
    """Also if the log has gone on beyond the end of the lost one. broker: which one has published that."""

    async def run() -> None:
        store = Store(failures=0)
        store.segments = (row(0, 15, broker=broker), row(10, 20, broker=broker))
        reporter, (look, _) = begun(store)
        reporter.partition_added(new_partition())
        await look()
        await asyncio.sleep(0)
        report = take_all(reporter.changes.report())
        assert [(each.base_offset, each.next_offset, each.broker_id) for each in report.sealed] == [(0, 10, 0)]
        assert not report.removed

    asyncio.run(run())


def test_what_was_rewritten_to_segments_that_a_log_refuses_is_published_again() -> None:
    async def run() -> None:
        store = Store(failures=0, swapped_at=2)
        reporter, (look, _) = begun(store)
        partition = new_partition()
        partition.log.segment_borders = (0, 10, 10)
        reporter.partition_added(partition)
        store.segments = (reporter._segments_of(partition).row(SEALED),)
        await look()
        await asyncio.sleep(0)
        assert not take_all(reporter.changes.report()).sealed
        store.segments = ()
        partition.log.refused = (REWRITTEN[0],)
        for _ in range(2):
            await look()
            await asyncio.sleep(0)
        report = take_all(reporter.changes.report())
        assert [(each.base_offset, each.generation) for each in report.removed] == [(0, 1)]
        assert [(each.base_offset, each.generation) for each in report.sealed] == [(0, 0)]

    asyncio.run(run())


def test_rewritten_segments_are_taken_over_after_a_log_that_could_not_be_read() -> None:
    async def run() -> None:
        reporter, (look, _) = begun(Store(failures=0, swapped_at=1))
        other, partition = new_partition(OSError("once"), index=1), new_partition()
        reporter.partition_added(other)
        reporter.partition_added(partition)
        with pytest.raises(OSError, match="once"):
            await look()
        assert not partition.log.adopted
        await look()
        assert [each.generation for each in partition.log.adopted] == [1]

    asyncio.run(run())


def test_a_lack_of_descriptors_does_not_end_a_start(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is compared without what was rewritten, whose rows in Delta would be gone, until that is taken over."""

    async def run() -> None:
        store = Store(failures=0, swapped_at=0)
        reporter, (look, _) = begun(store)
        partition = new_partition(KafkaStorageError("too many open files"))
        reporter.partition_added(partition)
        store.segments = (row(0, 20, generation=1),)
        topics: Any = SimpleNamespace(find_id=lambda topic_id: TOPIC)
        await reporter.compare_all(topics)
        await asyncio.sleep(0)
        report = take_all(reporter.changes.report())
        assert not partition.log.adopted and not report.sealed and not report.removed
        assert "too many open files" in caplog.text
        store.segments = ()
        await look()
        await asyncio.sleep(0)
        assert [each.generation for each in partition.log.adopted] == [1]
        assert [each.base_offset for each in take_all(reporter.changes.report()).sealed] == [0]

    asyncio.run(run())


def test_a_broker_that_leads_nothing_does_not_look_for_changes_by_jobs_and_misses_none() -> None:
    class CountedStore(Store):
        looks = 0

        def raised_log_starts(self, leader: int) -> dict[Any, int]:
            self.looks += 1
            return super().raised_log_starts(leader)

    async def run() -> None:
        store = CountedStore(failures=0, swapped_at=0)
        reporter, (look, _) = begun(store)
        await look()
        assert store.looks == 0
        partition = new_partition()
        reporter.partition_added(partition)
        await look()
        assert (store.looks, [each.generation for each in partition.log.adopted]) == (1, [1])

    asyncio.run(run())


def test_a_topic_that_comes_again_in_the_version_in_which_it_goes_is_reported() -> None:
    """A broker that misses a version learns of both at once."""

    async def run() -> None:
        reporter, _ = begun(Store(failures=0))
        before, again = new_partition(), new_partition()
        again.topic = SimpleNamespace(name="clicks", topic_id=UUID(int=8), registrations=(REGISTERED,))
        for partition in (before, again):
            reporter.partition_added(partition)
        reporter.partition_removed(before)
        reporter.report_all()
        report = take_all(reporter.changes.report())
        assert [row.topic_id for row in report.rows] == [str(UUID(int=8))]
        assert {key.topic_id for key in report.removed} == {str(TOPIC.topic_id)}
        reporter.partition_removed(again)
        assert not take_all(reporter.changes.report()).rows

    asyncio.run(run())


def test_the_report_of_very_many_partitions_holds_nobody_up() -> None:
    many = 10_000
    topic = SimpleNamespace(name="clicks", topic_id=UUID(int=7), registrations=(REGISTERED,) * many)

    async def longest_turn_ms(reports: BrokerReports) -> float:
        collected = asyncio.ensure_future(reports.partitions(1))
        longest_s, last_s = 0.0, time.thread_time()
        while not collected.done():
            await asyncio.sleep(0)
            now_s = time.thread_time()
            longest_s, last_s = max(longest_s, now_s - last_s), now_s
        assert len(collected.result().rows) == many
        return longest_s * 1000

    async def run() -> None:
        store: Any = Store()
        reporter = PartitionReporter(Path("lake"), 0, store, SystemClock(), run_blocking)
        for index in range(many):
            partition = new_partition(index=index)
            partition.topic = topic
            reporter.partition_added(partition)
        none: Any = None
        image: Any = SimpleNamespace(version=1, controller_epoch=1)
        reports = BrokerReports(reporter, none, none, none, frozenset, lambda: image, SystemClock())
        assert min([await longest_turn_ms(reports) for _ in range(4)]) < 20

    asyncio.run(run())
