"""Produce requests to a partition with followers: who is answered when, and with what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from contract.wire_client import batch
from leaderships import LedPartition

from kafkalake.broker.partitions.fetched import Isolation
from kafkalake.broker.partitions.offsets import EARLIEST, LATEST, list_offset
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.cluster.image import PartitionRegistration
from kafkalake.errors import KafkaStorageError, OffsetNotAvailableError
from kafkalake.storage.producer_state import COMMIT, EndMarker
from kafkalake.wire.record_batch import decode_produced


@pytest.fixture
def led(tmp_path: Path) -> LedPartition:
    return LedPartition(tmp_path)


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_zero_and_one_are_answered_when_the_leader_has_the_records(led: LedPartition, acks: int) -> None:
    assert led.produce(b"a", acks=acks) == [0]
    assert (led.log.log_end_offset, led.log.high_watermark) == (1, 0)


def test_acks_all_is_answered_when_the_last_replica_of_the_isr_has_the_records(led: LedPartition) -> None:
    first, second = led.produce(b"a", b"b"), led.produce(b"c")
    led.fetch(1, 3)
    assert (first, second, led.log.high_watermark) == ([], [], 0)
    led.fetch(2, 2)
    assert (first, second, led.log.high_watermark) == ([0], [], 2)
    led.fetch(2, 3)
    assert second == [2]


def test_a_replica_that_leaves_the_isr_is_not_waited_for(led: LedPartition) -> None:
    answers = led.produce(b"a")
    led.fetch(1, 1)
    led.set_isr(0, 1)
    assert answers == [0]


def test_too_few_replicas_refuse_acks_all_alone_and_hold_the_watermark(led: LedPartition) -> None:
    led.set_isr(0)
    assert led.produce(b"a") == ["NOT_ENOUGH_REPLICAS"]
    assert led.log.log_end_offset == 0
    assert led.produce(b"b", acks=1) == [0]
    assert led.log.high_watermark == 0
    led.set_isr(0, 1)
    led.fetch(1, 1)
    assert led.log.high_watermark == 1
    answers = led.produce(b"c")
    led.fetch(1, 2)
    assert answers == [1], "and life goes on"


def test_an_isr_that_shrinks_while_a_batch_waits_leaves_it_to_its_timeout(led: LedPartition) -> None:
    answers = led.produce(b"a", timeout_ms=1_000)
    led.set_isr(0)
    led.pass_time(999)
    assert answers == []
    led.pass_time(2)
    assert answers == ["REQUEST_TIMED_OUT"]
    assert led.log.log_end_offset == 1, "it may be committed yet"


def test_each_batch_has_the_timeout_of_its_request(led: LedPartition) -> None:
    long, short = led.produce(b"a", timeout_ms=5_000), led.produce(b"b", timeout_ms=100)
    led.pass_time(101)
    assert (long, short) == ([], ["REQUEST_TIMED_OUT"])
    led.fetch(1, 1)
    led.fetch(2, 1)
    assert long == [0]
    later = led.produce(b"c", timeout_ms=200)
    led.pass_time(10_000)
    assert later == ["REQUEST_TIMED_OUT"]


def test_a_watermark_that_passes_while_too_few_replicas_are_left_is_said_so(led: LedPartition) -> None:
    """The records are committed then, but not on as many replicas as `min.insync.replicas` asks for."""
    answers = led.produce(b"a")
    led.log.advance_high_watermark(1)
    led.set_isr(0)
    assert answers == ["NOT_ENOUGH_REPLICAS_AFTER_APPEND"]


def test_a_leader_that_resigns_refuses_what_waits(led: LedPartition) -> None:
    waiting = [led.produce(b"a"), led.produce(b"b")]
    led.partition.resign()
    led.queue.leave(led.partition)
    assert waiting == [["NOT_LEADER_OR_FOLLOWER"], ["NOT_LEADER_OR_FOLLOWER"]]
    assert led.produce(b"c") == ["NOT_LEADER_OR_FOLLOWER"]
    led.pass_time(60_000)


def test_a_leader_that_resigns_while_its_disk_is_forced_refuses_what_that_was_for(tmp_path: Path) -> None:
    """Not only after the timeout of the request: its producer is to ask the next leader."""
    led = LedPartition(tmp_path, flush_messages=1)

    async def run() -> None:
        waiting = led.produce(b"a")
        led.partition.resign()
        led.queue.leave(led.partition)
        later = led.produce(b"b")
        assert waiting == later == []
        while led.partition.syncing or not later:
            await asyncio.sleep(0)
            led.turn()
        assert (waiting, later) == (["NOT_LEADER_OR_FOLLOWER"], ["NOT_LEADER_OR_FOLLOWER"])

    asyncio.run(run())


def test_a_batch_sent_again_waits_with_the_first_one_and_others_pass_it_by(led: LedPartition) -> None:
    first = led.produce(b"a", producer_id=1, epoch=0, sequence=0)
    other = led.produce(b"b")
    again = led.produce(b"a", producer_id=1, epoch=0, sequence=0)
    assert led.log.log_end_offset == 2
    led.fetch(1, 2)
    led.fetch(2, 1)
    assert (first, again, other) == ([0], [0], [])
    assert led.produce(b"a", producer_id=1, epoch=0, sequence=0) == [0], "it is committed now"
    led.fetch(2, 2)
    assert other == [1]


def test_a_marker_waits_for_the_replicas_and_moves_the_last_stable_offset_with_the_watermark(led: LedPartition) -> None:
    led.produce(b"a", producer_id=1, epoch=0, sequence=0, transactional=True)
    led.fetch(1, 1)
    led.fetch(2, 1)
    assert (led.log.high_watermark, led.log.last_stable_offset) == (1, 0)
    written: list[object] = []
    pending = PendingAppend(led.partition, None, None, marker=EndMarker(1, 0, COMMIT, coordinator_epoch=0))
    led.queue.add(pending, lambda: written.append(pending.result))
    led.turn()
    assert (written, led.log.last_stable_offset) == ([], 0)
    led.fetch(1, 2)
    led.fetch(2, 2)
    assert (len(written), led.log.last_stable_offset) == (1, 2)


def test_consumers_see_records_and_offsets_only_below_the_watermark(led: LedPartition) -> None:
    original = batch([(None, b"x")])
    led.queue.add(PendingAppend(led.partition, decode_produced(original), original))
    led.turn()
    partition = led.partition

    def visible() -> tuple[object, int, int, object]:
        found = list_offset(partition, LATEST, Isolation.READ_UNCOMMITTED)
        assert found is not None
        end = led.log.high_watermark
        cached = partition.read_tail(0, end, 1 << 20, first_whole=True)
        in_time = list_offset(partition, 0, Isolation.READ_UNCOMMITTED)
        return cached and len(cached[0]), found.offset, partition.readable_bytes, in_time and in_time.offset

    assert visible() == (0, 0, 0, None)
    assert partition.appended_bytes == len(original)
    led.fetch(1, 1)
    led.fetch(2, 1)
    assert visible() == (1, 1, len(original), 0)


def test_readable_bytes_grow_by_the_share_of_the_offsets_and_reach_what_is_appended(led: LedPartition) -> None:
    led.produce(b"a", acks=1)
    led.produce(b"b", acks=1)
    appended = led.partition.appended_bytes
    led.fetch(1, 1)
    led.fetch(2, 1)
    assert (led.partition.readable_bytes, led.partition.stable_bytes) == (appended // 2, appended // 2)
    led.fetch(1, 2)
    led.fetch(2, 2)
    assert (led.partition.readable_bytes, led.partition.stable_bytes) == (appended, appended)


def test_the_newest_offsets_are_not_known_before_the_followers_have_fetched_after_an_election(tmp_path: Path) -> None:
    before = LedPartition(tmp_path)
    before.produce(b"a", acks=1)
    before.log.close()
    led = LedPartition(tmp_path)
    assert led.partition.is_watermark_behind
    with pytest.raises(OffsetNotAvailableError):
        list_offset(led.partition, LATEST, Isolation.READ_UNCOMMITTED)
    with pytest.raises(OffsetNotAvailableError):
        list_offset(led.partition, 0, Isolation.READ_UNCOMMITTED)
    earliest = list_offset(led.partition, EARLIEST, Isolation.READ_UNCOMMITTED)
    assert earliest is not None and earliest.offset == 0
    led.fetch(1, 1)
    led.fetch(2, 1)
    latest = list_offset(led.partition, LATEST, Isolation.READ_UNCOMMITTED)
    assert latest is not None and latest.offset == 1


@pytest.mark.parametrize("comes", ["a batch", "a fetch"])
def test_a_failed_flush_ends_the_leadership_because_followers_may_have_what_it_discarded(
    led: LedPartition, comes: str
) -> None:
    """Other records at the same offsets, in the same epoch, would make the logs differ without a trace."""
    waiting = led.produce(b"a")
    led.fetch(1, 1)
    led.files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        led.log.flush()
    again = led.produce(b"b") if comes == "a batch" else None
    if comes == "a fetch":
        led.fetch(2, 0)
    assert (waiting, again) == (["KAFKA_STORAGE_ERROR"], ["KAFKA_STORAGE_ERROR"] if again is not None else None)
    assert led.failed[0] is led.partition
    assert led.log.log_end_offset == 0
    assert led.produce(b"c") == ["KAFKA_STORAGE_ERROR"]


@pytest.mark.parametrize("call", ["append", "append_control"])
def test_nothing_is_appended_in_place_of_what_a_flush_in_a_thread_discards_at_that_moment(
    led: LedPartition, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The leader has looked at the log's end before. With as many new records, nothing would be missing afterwards."""
    waiting = led.produce(b"a", producer_id=4, epoch=0, sequence=0, transactional=True)
    led.fetch(1, 1)
    append = getattr(led.log, call)

    def append_after_a_failed_flush(*arguments: object) -> object:
        monkeypatch.undo()
        led.files.failing_syncs = 1
        with pytest.raises(KafkaStorageError):
            led.log.flush()
        return append(*arguments)

    monkeypatch.setattr(led.log, call, append_after_a_failed_flush)
    if call == "append":
        assert led.produce(b"b", b"c") == ["KAFKA_STORAGE_ERROR"]
    else:
        marker = PendingAppend(led.partition, None, None, marker=EndMarker(4, 0, COMMIT, 0))
        led.queue.add(marker)
        led.turn()
        assert isinstance(marker.result, KafkaStorageError)
    assert (waiting, led.failed[:1]) == (["KAFKA_STORAGE_ERROR"], [led.partition])
    assert led.log.log_end_offset == 0


def test_a_failed_flush_of_the_only_replica_costs_the_batches_that_it_discarded(tmp_path: Path) -> None:
    led = LedPartition(tmp_path, PartitionRegistration(0, 5, (0,), (0,)), flush_messages=1)
    led.files.failing_syncs = 1

    async def run() -> None:
        first = led.produce(b"a")
        while not first:
            await asyncio.sleep(0)
        second = led.produce(b"b")
        while not second:
            await asyncio.sleep(0)
        assert (first, second, led.failed) == (["KAFKA_STORAGE_ERROR"], [0], [])

    asyncio.run(run())


def test_a_broker_that_may_have_lost_its_directory_moves_no_watermark(led: LedPartition) -> None:
    waiting = led.produce(b"a")
    led.clock.advance(4_000_000_000)
    led.fetch(1, 1)
    led.fetch(2, 1)
    assert (waiting, led.log.high_watermark) == ([], 0)


def test_a_state_that_cannot_be_written_refuses_nothing_that_waits_and_is_written_by_the_next_fetch(
    led: LedPartition,
) -> None:
    waiting = led.produce(b"a")
    led.fetch(1, 1)
    led.files.fail_at_call = led.files.calls
    led.fetch(2, 1)
    assert (waiting, led.log.high_watermark) == ([], 0)
    led.files.fail_at_call = None
    led.fetch(2, 1)
    assert waiting == [0]


def test_one_replica_answers_at_once_whatever_acks_says(tmp_path: Path) -> None:
    led = LedPartition(tmp_path, PartitionRegistration(0, 5, (0,), (0,)))
    assert [led.produce(b"a", acks=acks) for acks in (0, 1, -1)] == [[0], [1], [2]]
    assert led.log.high_watermark == 3


def test_a_partition_that_is_led_here_no_more_moves_no_watermark(led: LedPartition) -> None:
    """A batch that was admitted late is refused, and the log follows another leader by then."""
    led.set_isr(0)
    led.produce(b"a", acks=1)
    before = led.log.high_watermark
    led.partition.resign()
    led.partition.lead(replace(led.partition.leadership, min_isr=1))
    assert led.produce(b"late") == ["NOT_LEADER_OR_FOLLOWER"]
    assert led.log.high_watermark == before
