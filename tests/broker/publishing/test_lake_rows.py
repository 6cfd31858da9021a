"""What reports make of the published rows: nothing goes back, nothing is published twice, nothing is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_store import MemoryMetadataStore
from metadata.metadata_rows import NOW_MS, partition_row, segment_row

from kafkalake.broker.publishing.lake_rows import APPLICATION_ID, LakeRows
from kafkalake.broker.publishing.reports import PartitionReport
from kafkalake.broker.publishing.unpublished import UnpublishedChanges
from kafkalake.cluster.image import NO_LEADER
from kafkalake.errors import KafkaStorageError
from kafkalake.metadata.store import NONE_PUBLISHED, PublishedPartitions, PublishedState
from kafkalake.metadata.tables.schemas import PartitionRow
from kafkalake.run_blocking import Steps, take_all
from kafkalake.topic_partition import TopicPartition

CLICKS_0: TopicPartition = ("clicks", 0)
CLICKS_1: TopicPartition = ("clicks", 1)
TOPICS = {"id-clicks"}
FULL_DISK = KafkaStorageError("no space left on device")


class Lake:
    """A controller's publishing of the reports of two brokers, of which each leads the partition of its number."""

    def __init__(self) -> None:
        self.store = MemoryMetadataStore()
        self.leaders = [0, 1]
        self.ends: dict[TopicPartition, int] = {}
        self.brokers = [UnpublishedChanges(broker_id, self.describe) for broker_id in (0, 1)]
        self.rows = LakeRows(1, PublishedPartitions((), NONE_PUBLISHED))
        self.commits = 0
        self.begun: Steps[PartitionReport] | None = None
        """A report of the first broker that is being made."""

    def describe(self, partition: TopicPartition) -> PartitionRow | None:
        if partition not in self.ends:
            return None
        return partition_row(*partition, leader=self.leaders[partition[1]], end=self.ends[partition])

    def append(self, partition: TopicPartition, records: int = 1) -> None:
        self.ends[partition] = self.ends.get(partition, 0) + records
        self.brokers[self.leaders[partition[1]]].moved(partition)

    def prepare(self, *reports: PartitionReport, kept: Collection[TopicPartition] = ()) -> PublishedState | None:
        stable_max = dict.fromkeys(kept, -1)
        return take_all(self.rows.prepare(reports, TOPICS, lambda _, index: self.leaders[index], stable_max, NOW_MS))

    def publish(self, kept: Collection[TopicPartition] = ()) -> bool:
        """Ask all brokers, commit, acknowledge. Return whether there was a commit."""
        if not self.rows.is_known:
            self.rows.take(self.store.load_published(APPLICATION_ID))
        steps = [
            self.begun if not number and self.begun else each.report()
            for number, each in enumerate(self.brokers)
            if each
        ]
        self.begun = None
        reports = [take_all(each) for each in steps]
        state = self.prepare(*reports, kept=kept)
        if state is not None:
            self.store.publish(state)
            self.rows.committed(state)
            self.commits += 1
        for report in reports:
            self.brokers[report.broker_id].acknowledge(report.sequence, kept)
        return state is not None

    def publish_or_fail(self) -> None:
        with contextlib.suppress(KafkaStorageError):
            self.publish()

    def begin_term(self, epoch: int) -> None:
        """Another controller takes over."""
        self.rows = LakeRows(epoch, self.store.load_published(APPLICATION_ID))

    def published(self) -> list[tuple[int, int]]:
        return [(row.partition, row.high_watermark) for row in self.store.load_partitions()]


def test_what_all_brokers_report_is_one_commit_and_nothing_new_is_none() -> None:
    lake = Lake()
    lake.append(CLICKS_0)
    lake.append(CLICKS_1, 200)
    lake.brokers[1].sealed(segment_row(partition=1, broker=1))
    assert lake.publish()
    assert lake.published() == [(0, 1), (1, 200)]
    assert len(lake.store.load_segments()) == 1
    assert not any(lake.brokers)
    lake.brokers[0].moved(CLICKS_0)
    assert not lake.publish()
    assert lake.commits == 1


def test_only_the_rows_of_leaders_with_changes_are_written() -> None:
    lake = Lake()
    lake.append(CLICKS_0)
    lake.append(CLICKS_1)
    lake.publish()
    lake.append(CLICKS_1)
    state = lake.prepare(take_all(lake.brokers[1].report()))
    assert state is not None
    assert (state.leaders, [row.partition for row in state.partitions]) == ((1,), [1])


def test_what_was_not_acknowledged_is_reported_again_and_published_once() -> None:
    lake = Lake()
    lake.append(CLICKS_0, 200)
    lake.brokers[0].sealed(segment_row(base=0))
    lake.prepare(take_all(lake.brokers[0].report()))  # this controller is killed before its commit
    lake.begin_term(2)
    lake.brokers[0].sealed(segment_row(base=100))
    state = lake.prepare(take_all(lake.brokers[0].report()))
    assert state is not None
    lake.store.publish(state)  # and this one after it
    lake.begin_term(3)
    lake.publish()
    assert lake.published() == [(0, 200)]
    assert lake.store.load_segments() == [segment_row(base=0), segment_row(base=100)]
    assert not lake.brokers[0]


def test_an_acknowledgement_counts_once_and_only_for_the_last_report() -> None:
    lake = Lake()
    lake.append(CLICKS_0)
    changes = lake.brokers[0]
    first, second = take_all(changes.report()), take_all(changes.report())
    assert not changes.acknowledge(first.sequence)
    assert changes
    assert changes.acknowledge(second.sequence)
    lake.append(CLICKS_0)
    assert not changes.acknowledge(second.sequence)
    assert changes


def test_a_deposed_controller_is_refused_once_the_next_has_published() -> None:
    lake = Lake()
    lake.append(CLICKS_0, 200)
    lake.brokers[0].sealed(segment_row())
    late = lake.prepare(take_all(lake.brokers[0].report()))
    assert late is not None
    lake.begin_term(2)
    lake.brokers[0].removed(segment_row().key)
    lake.append(CLICKS_0)
    lake.publish()
    with pytest.raises(KafkaStorageError, match="late"):
        lake.store.publish(late)
    assert lake.published() == [(0, 201)]
    assert lake.store.load_segments() == []


def test_a_publish_that_failed_and_is_committed_is_continued_and_not_mixed_with_the_next() -> None:
    """A transaction of both partitions was in it. The next report lacks one of them: its leader is away, or has changed."""
    lake = Lake()
    lake.append(CLICKS_0, 5)
    lake.append(CLICKS_1, 7)
    state = lake.prepare(*[take_all(broker.report()) for broker in lake.brokers])
    assert state is not None
    lake.store.publish(state)  # and its answer is lost
    lake.leaders[0] = 1
    late = lake.prepare(PartitionReport(1, 9, [replace(partition_row(*CLICKS_0, leader=1, end=6), leader_epoch=4)]))
    assert late is not None
    with pytest.raises(KafkaStorageError, match="follows -1"):
        lake.store.publish(late)
    assert lake.published() == [(0, 5), (1, 7)]
    lake.ends[CLICKS_0] = 6
    lake.brokers[1].moved(CLICKS_0)
    lake.publish()
    assert lake.published() == [(0, 6), (1, 7)]
    assert not lake.publish()


def test_a_publish_is_refused_where_a_deposed_controller_has_published_after_the_rows_were_read() -> None:
    lake = Lake()
    lake.append(CLICKS_0, 5)
    late = lake.prepare(take_all(lake.brokers[0].report()))
    assert late is not None
    lake.begin_term(2)
    lake.store.publish(late)
    lake.append(CLICKS_1, 3)
    with pytest.raises(KafkaStorageError, match="follows -1"):
        lake.publish()
    lake.publish()
    assert lake.published() == [(0, 5), (1, 3)]


def test_reports_of_a_former_leader_change_nothing() -> None:
    lake = Lake()
    lake.append(CLICKS_0, 5)
    lake.publish()
    lake.leaders[0] = 1
    newer = replace(partition_row(*CLICKS_0, leader=1, end=7), leader_epoch=4)
    state = lake.prepare(PartitionReport(1, 1, [newer]))
    assert state is not None
    assert state.leaders == (0, 1)
    lake.store.publish(state)
    lake.rows.committed(state)
    former = PartitionReport(0, 2, [partition_row(*CLICKS_0, end=9)], [segment_row()], [segment_row(base=100).key])
    assert lake.prepare(former) is None
    lake.leaders[0] = NO_LEADER
    assert lake.prepare(PartitionReport(0, 2, [partition_row(*CLICKS_0, end=9)])) is None, "its epoch is older"


def test_a_segment_of_another_replica_is_not_published_again() -> None:
    lake = Lake()
    lake.append(CLICKS_0, 200)
    lake.brokers[0].sealed(segment_row(broker=0))
    lake.publish()
    lake.leaders[0] = 1
    lake.brokers[1].sealed(segment_row(broker=1))
    lake.publish()
    assert [row.broker_id for row in lake.store.load_segments()] == [0]


def test_a_segment_above_the_high_watermark_waits() -> None:
    lake = Lake()
    lake.append(CLICKS_0, 99)
    lake.brokers[0].sealed(segment_row(size=100))
    lake.publish()
    assert (lake.store.load_segments(), lake.published()) == ([], [(0, 99)])
    lake.append(CLICKS_0)
    lake.publish()
    assert lake.store.load_segments() == [segment_row(size=100)]
    assert not lake.brokers[0]


def test_a_topic_that_is_gone_has_no_rows() -> None:
    lake = Lake()
    lake.append(CLICKS_0)
    lake.publish()
    state = take_all(lake.rows.prepare((), set(), lambda *_: NO_LEADER, (), NOW_MS))
    assert state is not None
    assert (state.leaders, list(state.partitions)) == ((0,), [])


def test_a_kept_last_stable_offset_is_published_later_although_nothing_moves() -> None:
    lake = Lake()
    lake.append(CLICKS_0, 3)
    lake.brokers[0].marked(CLICKS_0)
    lake.publish(kept={CLICKS_0})
    [row] = lake.store.load_partitions()
    assert (row.high_watermark, row.last_stable_offset) == (3, 0)
    assert lake.brokers[0].is_marked
    lake.publish()
    [row] = lake.store.load_partitions()
    assert (row.high_watermark, row.last_stable_offset) == (3, 3)
    assert not lake.brokers[0]


def test_a_marker_that_is_being_written_is_reported_until_it_is_published() -> None:
    changes = UnpublishedChanges(0, lambda key: partition_row(*key))
    changes.marking(CLICKS_0)
    changes.acknowledge(take_all(changes.report()).sequence)
    assert take_all(changes.report()).marked == {CLICKS_0}
    changes.marked(CLICKS_0)
    report = take_all(changes.report())
    assert report.marked == {CLICKS_0}
    changes.acknowledge(report.sequence)
    assert not changes.is_marked


def test_the_last_row_of_a_partition_keeps_its_markers_until_it_is_published() -> None:
    """A broker that is fenced leads nothing more: what it reports then must not show markers that others have not published."""
    led = {CLICKS_0: partition_row(*CLICKS_0)}
    changes = UnpublishedChanges(0, led.get)
    changes.moved(CLICKS_0)
    changes.marked(CLICKS_0)
    take_all(changes.report())
    changes.orphaned(led.pop(CLICKS_0))
    for _ in range(2):
        report = take_all(changes.report())
        assert ([(row.topic, row.partition) for row in report.rows], report.marked) == ([CLICKS_0], {CLICKS_0})
        changes.acknowledge(report.sequence, {CLICKS_0})
    changes.acknowledge(take_all(changes.report()).sequence)
    assert not changes
    assert not changes.is_marked


def report_begun() -> tuple[dict[TopicPartition, PartitionRow], UnpublishedChanges, Steps[PartitionReport]]:
    """The rows of two partitions that have moved, and a report of which one row is made."""
    led = {each: partition_row(*each) for each in (CLICKS_0, CLICKS_1)}
    changes = UnpublishedChanges(0, led.get)
    for each in led:
        changes.moved(each)
    steps = changes.report()
    next(steps)
    return led, changes, steps


def test_what_happens_while_a_report_is_made_is_in_the_next_one() -> None:
    led, changes, steps = report_begun()
    for each in list(led):
        led[each] = partition_row(*each, end=7)
        changes.moved(each)
    report = take_all(steps)
    assert sorted(row.log_end_offset for row in report.rows) == [partition_row(*CLICKS_0).log_end_offset, 7]
    assert changes.acknowledge(report.sequence)
    assert [row.log_end_offset for row in take_all(changes.report()).rows] == [7, 7]


def test_rows_that_may_show_a_marker_are_marked_whatever_happens_while_the_report_is_made() -> None:
    led, changes, steps = report_begun()
    for each in list(led):
        changes.marking(each)
        changes.marked(each)
        changes.moved(each)
    del led[CLICKS_0]
    changes.dropped(CLICKS_0)
    report = take_all(steps)
    assert report.marked == {CLICKS_0, CLICKS_1}
    changes.acknowledge(report.sequence, report.marked)
    report = take_all(changes.report())
    assert ([(row.topic, row.partition) for row in report.rows], report.marked) == ([CLICKS_1], {CLICKS_1})
    changes.acknowledge(report.sequence)
    assert not changes
    assert not changes.is_marked


def test_a_segment_that_waits_and_is_removed_while_the_report_is_made_is_not_reported_again() -> None:
    segment, other = segment_row(base=600), segment_row(base=500)
    changes = UnpublishedChanges(0, lambda key: partition_row(*key, end=0))
    changes.sealed(other)
    changes.sealed(segment)
    steps = changes.report()
    next(steps)
    changes.removed(segment.key)
    assert take_all(steps).sealed == ()
    report = take_all(changes.report())
    assert (report.sealed, report.removed) == ((), (segment.key,))


_event = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 1)),
    st.tuples(st.sampled_from(["seal", "remove"]), st.integers(0, 4)),
    st.tuples(st.sampled_from(["publish", "report", "fail", "term"]), st.just(0)),
    st.tuples(st.just("begin"), st.integers(0, 4)),
)


@given(events=st.lists(_event, max_size=40))
def test_whatever_fails_the_tables_end_up_equal_to_the_logs(events: list[tuple[str, int]]) -> None:
    lake = Lake()
    lake.append(CLICKS_0, 600)
    segments: set[int] = set()
    term = 1
    for event, number in events:
        if event == "append":
            lake.append(("clicks", number), 600)
        elif event == "seal":
            segments.add(number)
            lake.brokers[0].sealed(segment_row(base=number * 100))
        elif event == "remove":
            segments.discard(number)
            lake.brokers[0].removed(segment_row(base=number * 100).key)
        elif event == "fail":
            lake.store.fail_next.append(FULL_DISK)
        elif event == "term":
            term += 1
            lake.begin_term(term)
        elif event == "report":
            take_all(lake.begun or lake.brokers[0].report())  # and it is lost
            lake.begun = None
        elif event == "begin":
            take_all(lake.begun or lake.brokers[0].report())
            lake.begun = lake.brokers[0].report()
            for _ in range(number):
                if next(lake.begun, True):
                    lake.begun = None  # it was shorter, and is lost
                    break
        else:
            lake.publish_or_fail()
    lake.store.fail_next = []
    if lake.begun is not None:
        lake.publish()
    lake.publish()
    assert lake.published() == sorted((index, end) for (_, index), end in lake.ends.items())
    assert [row.base_offset for row in lake.store.load_segments()] == [base * 100 for base in sorted(segments)]
    assert not lake.publish()
