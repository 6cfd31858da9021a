"""When a publish is due, what is in it, and that nothing is lost when one fails."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manual_clock import ManualClock
from memory_store import MemoryMetadataStore
from metadata_rows import NOW_MS, partition_row, segment_row

from kafkalake.broker.publishing.schedule import (
    BACKOFF_MS_MAX,
    BACKOFF_MS_MIN,
    COST_PAUSE_MS_MAX,
    COST_SHARE,
    ROLL_GAP_MS,
    PublishSchedule,
    application_id,
)
from kafkalake.errors import KafkaStorageError
from kafkalake.metadata.store import PublishedState
from kafkalake.metadata.tables.schemas import PartitionRow
from kafkalake.topic_partition import TopicPartition

INTERVAL_MS = 1_000
CLICKS_0: TopicPartition = ("clicks", 0)
CLICKS_1: TopicPartition = ("clicks", 1)
FULL_DISK = KafkaStorageError("no space left on device")


class Broker:
    """The broker's side of a publisher: partitions with a log end, a clock, and a store."""

    def __init__(self, last_version: int | None = None) -> None:
        self.clock = ManualClock(NOW_MS)
        self.store = MemoryMetadataStore(self.clock)
        self.ends: dict[TopicPartition, int] = {}
        self.publisher = PublishSchedule(0, self.describe, last_version=last_version, interval_ms=INTERVAL_MS)
        self.publishes: list[PublishedState] = []

    def describe(self, partition: TopicPartition) -> PartitionRow | None:
        if partition not in self.ends:
            return None
        return partition_row(*partition, end=self.ends[partition])

    def append(self, partition: TopicPartition = CLICKS_0, records: int = 1) -> None:
        self.ends[partition] = self.ends.get(partition, 0) + records
        self.publisher.moved(partition)

    def drop(self, partition: TopicPartition) -> None:
        self.ends.pop(partition, None)
        self.publisher.dropped(partition)

    def run_due(self, cost_ms: int = 0) -> bool:
        """What the broker's loop does; whether a publish was tried."""
        if not self.publisher.due(self.clock.monotonic_ms()):
            return False
        return self.run(cost_ms)

    def run(self, cost_ms: int = 0) -> bool:
        state = self.publisher.take(self.clock.monotonic_ms(), self.clock.now_ms())
        if state is None:
            return False
        self.publishes.append(state)
        self.clock.advance(cost_ms)
        try:
            self.store.publish(state)
        except KafkaStorageError as error:
            self.publisher.failed(self.clock.monotonic_ms(), error)
        else:
            self.publisher.succeeded(self.clock.monotonic_ms())
        return True

    def run_for(self, duration_ms: int, cost_ms: int = 0) -> int:
        """Run the loop every 10 ms; how often it published."""
        until = self.clock.monotonic_ms() + duration_ms
        count = len(self.publishes)
        while self.clock.monotonic_ms() < until:
            self.run_due(cost_ms)
            self.clock.advance(10)
        return len(self.publishes) - count


# When.


def test_nothing_moved_means_no_commit() -> None:
    broker = Broker()
    assert broker.run_for(60_000) == 0
    assert broker.publisher.next_due_ms() is None
    assert not broker.run()


def test_the_first_movement_is_published_at_once_and_further_ones_after_the_interval() -> None:
    broker = Broker()
    broker.append()
    assert broker.run_due()
    broker.append()
    assert broker.publisher.next_due_ms() == NOW_MS + INTERVAL_MS
    broker.clock.advance(INTERVAL_MS - 1)
    assert not broker.run_due()
    broker.clock.advance(1)
    assert broker.run_due()
    assert [row.high_watermark for row in broker.store.load_partitions()] == [2]


def test_a_busy_broker_publishes_once_per_interval() -> None:
    broker = Broker()
    count = 0
    for _ in range(1_000):
        broker.append()
        count += broker.run_for(10)
    assert count == 10


def test_after_a_busy_time_the_last_positions_are_published_and_then_it_is_quiet() -> None:
    broker = Broker()
    for _ in range(100):
        broker.append()
        broker.run_for(10)
    assert broker.run_for(60_000) == 1
    assert [row.high_watermark for row in broker.store.load_partitions()] == [100]


def test_a_move_that_ends_where_it_began_is_no_commit() -> None:
    broker = Broker()
    broker.append()
    broker.run_due()
    broker.publisher.moved(CLICKS_0)
    assert broker.run_for(5_000) == 0


def test_a_sealed_segment_does_not_wait_for_the_interval() -> None:
    broker = Broker()
    broker.append()
    broker.run_due()
    broker.publisher.sealed(segment_row(base=0))
    assert broker.publisher.next_due_ms() == NOW_MS + ROLL_GAP_MS
    broker.clock.advance(ROLL_GAP_MS)
    assert broker.run_due()
    assert broker.store.load_segments() == [segment_row(base=0)]


def test_thousands_of_rolls_make_few_commits() -> None:
    broker = Broker()
    for number in range(5_000):
        broker.publisher.sealed(segment_row(base=number * 100))
        if number % 50 == 0:
            broker.run_for(10)
    broker.run_for(1_000)
    assert len(broker.publishes) <= 1_000 // ROLL_GAP_MS + 2
    assert len(broker.store.load_segments()) == 5_000


@pytest.mark.parametrize(
    ("cost_ms", "pause_ms"), [(10, COST_SHARE * 10), (200, COST_SHARE * 200), (60_000, COST_PAUSE_MS_MAX)]
)
def test_commits_that_take_long_are_made_less_often(cost_ms: int, pause_ms: int) -> None:
    broker = Broker()
    broker.publisher.sealed(segment_row(base=0))
    broker.run_due(cost_ms)
    broker.publisher.sealed(segment_row(base=100))
    assert broker.publisher.next_due_ms() == NOW_MS + cost_ms + pause_ms


def test_while_a_publish_is_under_way_none_is_due() -> None:
    broker = Broker()
    broker.append()
    state = broker.publisher.take(broker.clock.monotonic_ms(), NOW_MS)
    assert state is not None
    broker.append()
    broker.clock.advance(60_000)
    assert not broker.publisher.due(broker.clock.monotonic_ms())
    broker.store.publish(state)
    broker.publisher.succeeded(broker.clock.monotonic_ms())
    assert broker.publisher.pending


# What.


def test_a_publish_holds_all_partitions_and_what_was_sealed_and_removed() -> None:
    broker = Broker()
    broker.append(CLICKS_0)
    broker.append(CLICKS_1)
    broker.run()
    broker.append(CLICKS_1, 5)
    broker.publisher.sealed(segment_row(partition=1))
    broker.publisher.removed(segment_row(base=900).key)
    broker.clock.advance(INTERVAL_MS)
    broker.run()
    state = broker.publishes[-1]
    assert sorted((row.partition, row.high_watermark) for row in state.partitions) == [(0, 1), (1, 6)]
    assert (list(state.sealed), list(state.removed)) == ([segment_row(partition=1)], [segment_row(base=900).key])
    assert (state.leader, state.app_id) == (0, application_id(0))
    assert state.published_at_ms == NOW_MS + INTERVAL_MS


@pytest.mark.parametrize(("last_version", "first"), [(None, 0), (0, 1), (41, 42)])
def test_versions_go_on_where_the_last_publish_stopped(last_version: int | None, first: int) -> None:
    broker = Broker(last_version)
    for number in range(3):
        broker.append()
        broker.run()
        assert broker.publishes[number].version == first + number


def test_a_dropped_partition_disappears() -> None:
    broker = Broker()
    broker.append(CLICKS_0)
    broker.append(CLICKS_1)
    broker.run()
    broker.drop(CLICKS_1)
    broker.run_for(INTERVAL_MS)
    assert [row.partition for row in broker.store.load_partitions()] == [0]


def test_a_partition_that_was_never_published_is_dropped_without_a_commit() -> None:
    broker = Broker()
    broker.append()
    broker.drop(CLICKS_0)
    assert not broker.publisher.pending
    assert broker.run_for(5_000) == 0


def test_a_partition_that_is_gone_when_it_is_described_disappears() -> None:
    broker = Broker()
    broker.append(CLICKS_0)
    broker.run()
    del broker.ends[CLICKS_0]
    broker.publisher.moved(CLICKS_0)
    broker.run()
    assert broker.store.load_partitions() == []


def test_a_segment_that_is_removed_before_it_was_published_is_never_published() -> None:
    broker = Broker()
    broker.publisher.sealed(segment_row())
    broker.publisher.removed(segment_row().key)
    broker.run()
    assert broker.store.load_segments() == []
    assert broker.publishes[0].sealed == ()


# Failures.


def test_what_failed_is_published_later_with_what_came_since(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    broker.store.fail_next = [FULL_DISK]
    broker.append(CLICKS_0)
    broker.publisher.sealed(segment_row(base=0))
    with caplog.at_level(logging.INFO):
        broker.run()
        assert broker.store.load_partitions() == []
        broker.publisher.sealed(segment_row(base=100))
        broker.run_for(BACKOFF_MS_MIN + 10)
    assert broker.store.load_segments() == [segment_row(base=0), segment_row(base=100)]
    assert [row.high_watermark for row in broker.store.load_partitions()] == [1]
    assert [state.version for state in broker.publishes] == [0, 1]
    assert "no space left on device" in caplog.text
    assert "works again after 1 failures" in caplog.text


def test_rows_that_failed_are_published_even_if_nothing_moves_any_more() -> None:
    broker = Broker()
    broker.store.fail_next = [FULL_DISK]
    broker.append()
    broker.run()
    assert broker.run_for(INTERVAL_MS + BACKOFF_MS_MIN) == 1
    assert [row.high_watermark for row in broker.store.load_partitions()] == [1]


def test_failures_are_tried_again_with_a_growing_pause_that_has_a_bound() -> None:
    broker = Broker()
    broker.store.fail_next = [FULL_DISK] * 12
    broker.append()
    pauses = []
    for _ in range(12):
        assert broker.run()
        due = broker.publisher.next_due_ms()
        assert due is not None
        pauses.append(due - broker.clock.monotonic_ms())
        broker.clock.advance(pauses[-1])
    expected = [max(INTERVAL_MS if n == 0 else 0, min(BACKOFF_MS_MIN * 2**n, BACKOFF_MS_MAX)) for n in range(12)]
    assert pauses[3:] == expected[3:]
    assert pauses[-1] == BACKOFF_MS_MAX
    assert broker.run()
    assert len(broker.store.load_partitions()) == 1


def test_a_segment_removed_while_its_publish_failed_stays_removed() -> None:
    broker = Broker()
    broker.store.fail_next = [FULL_DISK]
    broker.publisher.sealed(segment_row())
    state = broker.publisher.take(NOW_MS, NOW_MS)
    assert state is not None
    broker.publisher.removed(segment_row().key)
    broker.publisher.failed(NOW_MS, FULL_DISK)
    broker.run()
    assert broker.store.load_segments() == []


def test_a_segment_sealed_again_while_its_removal_failed_stays() -> None:
    broker = Broker()
    broker.publisher.sealed(segment_row())
    broker.run()
    broker.publisher.removed(segment_row().key)
    assert broker.publisher.take(NOW_MS, NOW_MS) is not None
    broker.publisher.sealed(segment_row(size=60))
    broker.publisher.failed(NOW_MS, FULL_DISK)
    broker.run()
    assert broker.store.load_segments() == [segment_row(size=60)]


_partitions = st.sampled_from([CLICKS_0, CLICKS_1])
_events = st.lists(
    st.one_of(
        st.tuples(st.just("append"), _partitions),
        st.tuples(st.just("drop"), _partitions),
        st.tuples(st.just("seal"), st.integers(0, 4)),
        st.tuples(st.just("remove"), st.integers(0, 4)),
        st.tuples(st.just("wait"), st.sampled_from([10, 150, 1_000, 40_000])),
        st.tuples(st.just("fail"), st.just(0)),
    ),
    max_size=40,
)


@given(events=_events)
def test_whatever_happens_the_table_ends_up_equal_to_the_log(events: list[tuple[str, int | TopicPartition]]) -> None:
    broker = Broker()
    segments: set[int] = set()
    for event, argument in events:
        if event == "append" and isinstance(argument, tuple):
            broker.append(argument)
        elif event == "drop" and isinstance(argument, tuple):
            broker.drop(argument)
        elif event == "seal":
            segments.add(int(argument))
            broker.publisher.sealed(segment_row(base=int(argument) * 100))
        elif event == "remove":
            segments.discard(int(argument))
            broker.publisher.removed(segment_row(base=int(argument) * 100).key)
        elif event == "fail":
            broker.store.fail_next.append(FULL_DISK)
        else:
            broker.run_for(int(argument))
    broker.store.fail_next = []
    broker.run_for(2 * BACKOFF_MS_MAX)
    published = {(row.partition, row.high_watermark) for row in broker.store.load_partitions()}
    assert published == {(index, end) for (_, index), end in broker.ends.items()}
    assert [row.base_offset for row in broker.store.load_segments()] == [base * 100 for base in sorted(segments)]
    assert broker.run_for(5_000) == 0
