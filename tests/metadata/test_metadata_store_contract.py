"""What every `MetadataStore` does: one suite, run against Delta and against the store in memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from manual_clock import ManualClock
from memory_store import MemoryMetadataStore, MetadataStore
from metadata_rows import NOW_MS, broker_row, partition_row, published, segment_row, topic_row

from kafkalake.errors import (
    InconsistentTopicIdError,
    InvalidPartitionsError,
    KafkaStorageError,
    LakeError,
    LeaseHeldError,
    NotControllerError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.paths import table_path
from kafkalake.metadata.store import NONE_PUBLISHED, PublishedPartitions, PublishedState

pytestmark = pytest.mark.exhaustive


class StoreOfTest:
    """A store and the clock that its commits are dated by."""

    def __init__(self, store: MetadataStore, clock: ManualClock, lake: Path | None) -> None:
        self.store = store
        self.clock = clock
        self._lake = lake
        self._date(0)

    def publish(self, state: PublishedState) -> int:
        version = self.store.publish(state)
        self._date(version)
        return version

    def _date(self, version: int) -> None:
        """Delta's time of a version is the time of its file in the log."""
        if self._lake is not None:
            file = table_path(self._lake, "partitions") / "_delta_log" / f"{version:020}.json"
            os.utime(file, ns=(self.clock.now_ms() * 1_000_000,) * 2)


@pytest.fixture(params=["delta", "memory"])
def tested(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreOfTest]:
    clock = ManualClock(NOW_MS)
    if request.param == "memory":
        yield StoreOfTest(MemoryMetadataStore(clock), clock, None)
        return
    store = DeltaMetadataStore(tmp_path / "lake")
    yield StoreOfTest(store, clock, tmp_path / "lake")
    store.close()


# Topics.


def test_a_created_topic_is_loaded_with_all_it_was_given(tested: StoreOfTest) -> None:
    row = topic_row("clicks", partitions=3, **{"cleanup.policy": "delete", "retention.ms": "-1"})
    tested.store.create_topics([row])
    assert tested.store.load_topics() == [row]


def test_topics_are_loaded_in_the_order_of_their_names(tested: StoreOfTest) -> None:
    for name in ("b", "c", "a"):
        tested.store.create_topics([topic_row(name)])
    assert [row.topic for row in tested.store.load_topics()] == ["a", "b", "c"]


def test_a_topic_name_is_given_once(tested: StoreOfTest) -> None:
    tested.store.create_topics([topic_row("clicks", topic_id="first")])
    with pytest.raises(TopicAlreadyExistsError, match="'clicks' already exists"):
        tested.store.create_topics([topic_row("clicks", topic_id="second")])
    assert [row.topic_id for row in tested.store.load_topics()] == ["first"]


def test_a_deleted_topic_is_gone_and_its_name_free(tested: StoreOfTest) -> None:
    tested.store.create_topics([topic_row("clicks", topic_id="first")])
    tested.store.create_topics([topic_row("views")])
    tested.store.delete_topics(["first"])
    assert [row.topic for row in tested.store.load_topics()] == ["views"]
    tested.store.create_topics([topic_row("clicks", topic_id="second")])
    with pytest.raises(UnknownTopicOrPartitionError):
        tested.store.delete_topics(["first"])  # of a broker that does not know yet that it is gone
    assert [row.topic_id for row in tested.store.load_topics()] == ["second", "id-views"]


def test_deleting_a_topic_that_is_not_there_is_an_error(tested: StoreOfTest) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        tested.store.delete_topics(["id-clicks"])


def test_an_altered_topic_has_the_new_partitions_and_settings(tested: StoreOfTest) -> None:
    tested.store.create_topics([topic_row("clicks", partitions=1, **{"retention.ms": "1"})])
    altered = topic_row("clicks", partitions=4, **{"segment.bytes": "2"})
    tested.store.alter_topics([altered])
    assert tested.store.load_topics() == [altered]


def test_a_topic_cannot_be_altered_wrongly(tested: StoreOfTest) -> None:
    row = topic_row("clicks", partitions=2)
    tested.store.create_topics([row])
    with pytest.raises(UnknownTopicOrPartitionError):
        tested.store.alter_topics([topic_row("views")])
    with pytest.raises(InconsistentTopicIdError):
        tested.store.alter_topics([topic_row("clicks", partitions=2, topic_id="another")])
    with pytest.raises(InvalidPartitionsError, match="2 partitions, which cannot become 1"):
        tested.store.alter_topics([topic_row("clicks", partitions=1)])
    assert tested.store.load_topics() == [row]


def test_a_change_of_an_earlier_controller_epoch_is_refused(tested: StoreOfTest) -> None:
    store = tested.store
    store.create_topics([topic_row("clicks")])  # of a version before epochs were noted
    late: list[Callable[[int], None]] = [
        lambda epoch: store.create_topics([topic_row("views")], epoch),
        lambda epoch: store.alter_topics([topic_row("clicks", partitions=9)], epoch),
        lambda epoch: store.delete_topics(["id-clicks"], epoch),
        lambda epoch: store.delete_topics(["id-of-none"], epoch),
        store.claim_topics,
    ]

    def refuse(epoch: int) -> None:
        rows = store.load_topics()
        for change in late:
            with pytest.raises(NotControllerError):
                change(epoch)
        assert store.load_topics() == rows

    store.alter_topics([topic_row("clicks", partitions=2)], 3)
    refuse(2)
    store.claim_topics(4)
    store.claim_topics(4)
    refuse(3)
    with pytest.raises(UnknownTopicOrPartitionError):
        store.delete_topics(["id-of-none"], 5)  # what changes nothing claims nothing
    store.maintain()
    refuse(3)
    for change in late[:3]:
        change(4)
    assert [row.topic for row in store.load_topics()] == ["views"]
    store.alter_topics([topic_row("views", partitions=2)])


# Brokers.


def test_a_free_lease_is_acquired_and_a_held_one_is_not(tested: StoreOfTest) -> None:
    tested.store.acquire_broker(broker_row(0, lease_id="mine"), replacing=None)
    with pytest.raises(LeaseHeldError, match=r"already run by 127.0.0.1:9092 \(pid 4711 on here, since 2023-11-14"):
        tested.store.acquire_broker(broker_row(0, lease_id="other"), replacing=None)
    assert [row.lease_id for row in tested.store.load_brokers()] == ["mine"]


def test_a_lease_is_taken_over_only_from_the_holder_that_was_seen(tested: StoreOfTest) -> None:
    tested.store.acquire_broker(broker_row(0, lease_id="dead"), replacing=None)
    tested.store.acquire_broker(broker_row(0, lease_id="first"), replacing=broker_row(0, lease_id="dead"))
    with pytest.raises(LeaseHeldError):
        tested.store.acquire_broker(broker_row(0, lease_id="second"), replacing=broker_row(0, lease_id="dead"))
    assert [row.lease_id for row in tested.store.load_brokers()] == ["first"]


def test_a_lease_that_was_renewed_meanwhile_is_not_taken_over(tested: StoreOfTest) -> None:
    seen = broker_row(0, lease_id="slow")
    tested.store.acquire_broker(seen, replacing=None)
    tested.store.renew_broker(broker_row(0, lease_id="slow", expires=NOW_MS + 30_000))
    with pytest.raises(LeaseHeldError):
        tested.store.acquire_broker(broker_row(0, lease_id="second"), replacing=seen)
    assert [row.lease_id for row in tested.store.load_brokers()] == ["slow"]


def test_only_the_holder_renews_a_lease(tested: StoreOfTest) -> None:
    tested.store.acquire_broker(broker_row(0, lease_id="mine"), replacing=None)
    renewed = broker_row(0, lease_id="mine", expires=NOW_MS + 30_000)
    tested.store.renew_broker(renewed)
    with pytest.raises(LeaseHeldError, match="already run by"):
        tested.store.renew_broker(broker_row(0, lease_id="other", expires=NOW_MS + 90_000))
    assert tested.store.load_brokers() == [renewed]


def test_a_lease_that_is_gone_is_not_renewed(tested: StoreOfTest) -> None:
    with pytest.raises(LeaseHeldError, match="its row is gone"):
        tested.store.renew_broker(broker_row(0))


def test_only_the_holder_releases_a_lease(tested: StoreOfTest) -> None:
    tested.store.acquire_broker(broker_row(0, lease_id="mine"), replacing=None)
    tested.store.acquire_broker(broker_row(1, lease_id="theirs"), replacing=None)
    tested.store.release_broker(0, "other")
    assert [row.broker_id for row in tested.store.load_brokers()] == [0, 1]
    tested.store.release_broker(0, "mine")
    tested.store.release_broker(0, "mine")
    assert [row.broker_id for row in tested.store.load_brokers()] == [1]


# Publishing.


def test_a_publish_is_loaded_and_stamped(tested: StoreOfTest) -> None:
    tested.publish(published(7, [partition_row(end=42)], [segment_row()]))
    [row] = tested.store.load_partitions()
    assert row.published_at_ms == NOW_MS + 7
    assert replace(row, published_at_ms=-1, segments_version=-1) == partition_row(end=42)
    assert tested.store.load_segments() == [segment_row()]


def test_a_publish_replaces_its_leaders_partitions_and_no_others(tested: StoreOfTest) -> None:
    tested.publish(published(0, [partition_row(partition=0), partition_row(partition=1)], leader=0))
    tested.publish(published(0, [partition_row(partition=2, leader=1)], leader=1))
    tested.publish(published(1, [partition_row(partition=1, end=9)], leader=0))
    rows = [(row.partition, row.leader, row.high_watermark) for row in tested.store.load_partitions()]
    assert rows == [(1, 0, 9), (2, 1, 0)]


def test_a_leader_without_partitions_publishes_none(tested: StoreOfTest) -> None:
    tested.publish(published(0, [partition_row()]))
    tested.publish(published(1, []))
    assert tested.store.load_partitions() == []
    assert tested.store.last_published_version("kafkalake-broker-0") == 1


def test_publishing_the_same_version_again_changes_nothing(tested: StoreOfTest) -> None:
    first = tested.publish(published(3, [partition_row(end=1)], [segment_row(base=0)]))
    again = tested.publish(published(3, [partition_row(end=2)], [segment_row(base=100)]))
    assert first == again
    with pytest.raises(KafkaStorageError, match="is late"):
        tested.publish(published(2, [partition_row(end=2)], [segment_row(base=100)]))
    assert [row.high_watermark for row in tested.store.load_partitions()] == [1]
    assert tested.store.load_segments() == [segment_row(base=0)]


def test_a_publish_follows_the_one_that_it_continues(tested: StoreOfTest) -> None:
    app = "kafkalake-broker-0"
    assert tested.store.load_published(app) == PublishedPartitions([], NONE_PUBLISHED)
    tested.publish(replace(published(3, [partition_row(end=1)]), follows=NONE_PUBLISHED))
    [known] = tested.store.load_published(app).rows
    assert (known.high_watermark, tested.store.load_published(app).version) == (1, 3)
    for follows in (NONE_PUBLISHED, 2):
        with pytest.raises(KafkaStorageError, match=f"follows {follows}, not 3"):
            tested.publish(replace(published(4, [partition_row(end=2)]), follows=follows))
    for _ in range(2):
        tested.publish(replace(published(4, [partition_row(end=2)]), follows=3))  # again, as the answer was lost
    assert tested.store.load_published(app).version == 4


def test_no_offset_of_a_leader_epoch_goes_back(tested: StoreOfTest) -> None:
    def publish(version: int, stable: int) -> int:
        tested.publish(published(version, [replace(partition_row(end=12), last_stable_offset=stable)]))
        [found] = tested.store.load_partitions()
        return found.last_stable_offset

    assert [publish(version, stable) for version, stable in enumerate((2, 7, 4, 9))] == [2, 7, 7, 9]


def test_the_last_published_version_is_known_per_application(tested: StoreOfTest) -> None:
    assert tested.store.last_published_version("kafkalake-broker-0") is None
    tested.publish(published(4, leader=0))
    tested.publish(published(9, leader=1))
    assert tested.store.last_published_version("kafkalake-broker-0") == 4
    assert tested.store.last_published_version("kafkalake-broker-1") == 9


def test_a_segment_is_added_once_however_often_it_is_published(tested: StoreOfTest) -> None:
    for version in range(3):
        tested.publish(published(version, [partition_row()], [segment_row(base=0), segment_row(base=100)]))
    assert tested.store.load_segments() == [segment_row(base=0), segment_row(base=100)]


def test_a_segment_that_was_sealed_again_with_other_content_is_replaced(tested: StoreOfTest) -> None:
    tested.publish(published(0, [], [segment_row(base=0, size=100), segment_row(base=100)]))
    tested.publish(published(1, [], [segment_row(base=0, size=60)]))
    assert tested.store.load_segments() == [segment_row(base=0, size=60), segment_row(base=100)]


def test_removed_segments_go_and_unknown_ones_are_passed_over(tested: StoreOfTest) -> None:
    rows = [segment_row(base=base) for base in (0, 100, 200)]
    tested.publish(published(0, [], rows))
    tested.publish(published(1, [], [], [rows[0].key, segment_row("gone").key]))
    assert tested.store.load_segments() == rows[1:]


def test_a_new_generation_replaces_the_old_in_one_publish(tested: StoreOfTest) -> None:
    old, new = segment_row(generation=0), segment_row(generation=1)
    tested.publish(published(0, [], [old]))
    tested.publish(published(1, [], [new], [old.key]))
    assert tested.store.load_segments() == [new]


def test_a_segment_that_a_job_has_rewritten_is_not_added_again(tested: StoreOfTest) -> None:
    """By a report that is repeated, or by a new leader that has not copied what was rewritten."""
    old, following, other = (
        [segment_row(base=base) for base in (0, 100)],
        segment_row(base=200),
        segment_row(partition=1),
    )
    tested.publish(published(1, [partition_row(end=200)], old))
    rewritten = segment_row(base=0, size=200, generation=1)
    tested.store.swap_segments(old, [rewritten])
    tested.publish(published(2, [partition_row(end=300)], [*old, following, other]))
    tested.publish(published(3, [partition_row(end=300)], old[1:]))
    assert tested.store.load_segments() == [rewritten, following, other]
    again = segment_row(base=0, size=300, generation=2)
    tested.store.swap_segments([rewritten, following], [again])
    tested.publish(published(4, [partition_row(end=300)], [*old, rewritten, following]))
    assert tested.store.load_segments() == [again, other]


@pytest.mark.parametrize("are_together", [True, False])
def test_segments_are_added_again_where_what_was_rewritten_is_refused(tested: StoreOfTest, are_together: bool) -> None:
    old = [segment_row(base=base) for base in (0, 100)]
    tested.publish(published(1, [partition_row(end=200)], old))
    rewritten = segment_row(base=0, size=200, generation=1)
    tested.store.swap_segments(old, [rewritten])
    if not are_together:
        tested.publish(published(2, [partition_row(end=200)], [], [rewritten.key]))
        assert tested.store.load_segments() == []
    tested.publish(published(3, [partition_row(end=200)], old, [rewritten.key]))
    assert tested.store.load_segments() == old


def test_segments_of_one_topic_are_loaded_alone(tested: StoreOfTest) -> None:
    tested.clock.advance(1_000)
    tested.publish(published(0, [partition_row("a"), partition_row("b")], [segment_row("a"), segment_row("b")]))
    assert tested.store.load_segments("b") == [segment_row("b")]
    assert tested.store.load_segments("b", timestamp_ms=tested.clock.now_ms()) == [segment_row("b")]
    assert tested.store.load_segments("none") == []


def test_any_timestamp_that_a_producer_may_send_can_be_published(tested: StoreOfTest) -> None:
    extremes = [(None, None), (-1, 0), (-(2**63), 2**63 - 1)]
    tested.publish(published(0, [], [segment_row(base=i, timestamps=pair) for i, pair in enumerate(extremes)]))
    loaded = [(row.min_timestamp_ms, row.max_timestamp_ms) for row in tested.store.load_segments()]
    assert loaded[:2] == extremes[:2]
    assert loaded[2][0] < -9_000_000_000_000_000 and loaded[2][1] > 9_000_000_000_000_000


@pytest.mark.parametrize("leaders", [(0, 1), (1, 0)])
def test_of_two_leaders_of_a_partition_the_later_epoch_counts(tested: StoreOfTest, leaders: tuple[int, int]) -> None:
    """The later leader has taken the partition over; the earlier one has not published since."""
    earlier, later = leaders
    tested.publish(published(0, [partition_row(leader=earlier, end=90)], [segment_row(broker=0)], leader=earlier))
    tested.publish(published(0, [replace(partition_row(leader=later, end=80), leader_epoch=1)], leader=later))
    snapshot = tested.store.load_snapshot()
    assert [(row.leader, row.high_watermark) for row in snapshot.partitions] == [(later, 80)]
    assert tested.store.load_partitions() == snapshot.partitions
    assert snapshot.segments == [segment_row(broker=0)]


# Time travel.


def test_a_version_of_partitions_comes_with_the_segments_of_that_publish(tested: StoreOfTest) -> None:
    first, second = segment_row(base=0), segment_row(base=100)
    v1 = tested.publish(published(0, [partition_row(end=150)], [first]))
    v2 = tested.publish(published(1, [partition_row(end=180)]))
    v3 = tested.publish(published(2, [partition_row(end=250)], [second]))
    v4 = tested.publish(published(3, [partition_row(end=300)], [], [first.key]))
    seen = {
        version: (
            [row.high_watermark for row in tested.store.load_snapshot(version=version).partitions],
            [row.base_offset for row in tested.store.load_snapshot(version=version).segments],
        )
        for version in (v1, v2, v3, v4)
    }
    assert seen == {v1: ([150], [0]), v2: ([180], [0]), v3: ([250], [0, 100]), v4: ([300], [100])}
    assert tested.store.load_segments(version=v2) == [first]
    assert [row.high_watermark for row in tested.store.load_partitions(version=v2)] == [180]


def test_each_leaders_segments_are_those_of_its_own_publish(tested: StoreOfTest) -> None:
    """Broker 1 published before broker 0 dropped its first segment: broker 0's rows must not see that drop early."""
    zero, one = segment_row("a", broker=0), segment_row("b", broker=1)
    tested.publish(published(0, [partition_row("a", leader=0)], [zero], leader=0))
    v = tested.publish(published(0, [partition_row("b", leader=1)], [one], leader=1))
    tested.publish(published(1, [partition_row("a", leader=0)], [], [zero.key], leader=0))
    assert tested.store.load_snapshot(version=v).segments == [zero, one]
    assert tested.store.load_snapshot().segments == [one]


def test_a_time_finds_the_publish_before_it(tested: StoreOfTest) -> None:
    tested.clock.advance(1_000)
    tested.publish(published(0, [partition_row(end=1)], [segment_row(base=0)]))
    tested.clock.advance(1_000)
    tested.publish(published(1, [partition_row(end=2)], [segment_row(base=100)]))
    tested.clock.advance(1_000)

    def seen(timestamp_ms: int) -> tuple[list[int], list[int]]:
        snapshot = tested.store.load_snapshot(timestamp_ms=timestamp_ms)
        assert tested.store.load_partitions(timestamp_ms=timestamp_ms) == snapshot.partitions
        assert tested.store.load_segments(timestamp_ms=timestamp_ms) == snapshot.segments
        return [row.high_watermark for row in snapshot.partitions], [row.base_offset for row in snapshot.segments]

    assert seen(NOW_MS + 999) == ([], [])
    assert seen(NOW_MS + 1_000) == ([1], [0])
    assert seen(NOW_MS + 1_999) == ([1], [0])
    assert seen(NOW_MS + 2_000) == ([2], [0, 100])
    assert seen(NOW_MS + 9_000) == ([2], [0, 100])


def test_a_time_or_version_that_is_not_there_is_an_error(tested: StoreOfTest) -> None:
    version = tested.publish(published(0, [partition_row()]))
    with pytest.raises(LakeError, match="version 99 of"):
        tested.store.load_snapshot(version=version + 98)
    with pytest.raises(LakeError, match="no version of"):
        tested.store.load_partitions(timestamp_ms=NOW_MS - 1)
    with pytest.raises(LakeError, match="no version of"):
        tested.store.load_segments(timestamp_ms=0)
    with pytest.raises(ValueError, match="cannot both"):
        tested.store.load_partitions(version=version, timestamp_ms=NOW_MS)


def test_a_snapshot_leaves_out_segments_whose_partition_is_gone(tested: StoreOfTest) -> None:
    tested.publish(published(0, [partition_row("a")], [segment_row("a"), segment_row("deleted")]))
    assert tested.store.load_snapshot().segments == [segment_row("a")]


def test_maintenance_changes_nothing_that_is_read(tested: StoreOfTest) -> None:
    tested.clock.jump(time.time_ns() // 1_000_000 - tested.clock.now_ms())  # versions of a day ago would go
    tested.store.create_topics([topic_row()])
    for version in range(5):
        tested.publish(published(version, [partition_row(end=version)], [segment_row(base=version * 100)]))
    before = tested.store.load_snapshot(version=3)
    tested.store.maintain()
    assert tested.store.load_snapshot(version=3) == before
    assert len(tested.store.load_segments()) == 5
    assert tested.store.load_topics() == [topic_row()]
    tested.store.publish(published(5, [partition_row(end=5)]))
    assert [row.high_watermark for row in tested.store.load_partitions()] == [5]


# What jobs say.


def test_a_raised_log_start_stays_raised_whatever_a_broker_publishes(tested: StoreOfTest) -> None:
    store = tested.store
    store.publish(published(1, [partition_row(end=30)]))
    assert store.raised_log_starts(0) == {}
    assert store.raised_log_starts(0) == {}
    raised = {("id-clicks", 0): 10, ("id-other", 0): 5}
    version = store.raise_log_starts(raised)
    assert store.raise_log_starts(raised) == version  # twice by mistake
    store.publish(published(2, [partition_row(end=40)]))  # the broker does not know of it yet
    (row,) = store.load_partitions()
    assert (row.log_start_offset, row.log_end_offset) == (10, 40)
    assert store.raised_log_starts(0) == {("id-clicks", 0): 10}
    assert store.raised_log_starts(0) == {}
    store.publish(published(3, [partition_row(end=50)]))
    assert store.load_partitions()[0].log_start_offset == 10


def test_a_log_that_was_lost_begins_where_its_broker_says(tested: StoreOfTest) -> None:
    tested.store.publish(published(1, [partition_row(end=30)]))
    tested.store.raise_log_starts({("id-clicks", 0): 20})
    tested.store.publish(published(2, [partition_row(end=5)]))
    (row,) = tested.store.load_partitions()
    assert (row.log_start_offset, row.log_end_offset) == (0, 5)
    tested.store.publish(published(3, [partition_row(end=30)]))  # as long as its predecessor by now
    assert tested.store.raised_log_starts(0).get(("id-clicks", 0), 0) == 0
    assert tested.store.load_partitions()[0].log_start_offset == 0


def test_removed_segments_are_gone_and_the_others_stay(tested: StoreOfTest) -> None:
    rows = [segment_row(base=base, size=10) for base in (0, 10, 20)]
    tested.store.publish(published(1, [partition_row(end=30)], sealed=rows))
    version = tested.store.remove_segments([rows[0].key, rows[1].key])
    assert tested.store.remove_segments([rows[0].key]) == version
    assert [row.base_offset for row in tested.store.load_segments()] == [20]
