"""What a log loses to retention: what Kafka's rules say of its segments, the active one too, and what comes meanwhile stays."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random
from typing import Any

import pytest
from manual_clock import ManualClock
from partition_logs import SegmentsSeen, append, open_log, read_all
from record_batches import simple_batch
from replica_logs import rewritten
from replica_logs import written as written_by_leader
from retention_model import taken

from kafkalake.errors import KafkaStorageError
from kafkalake.storage import log_start
from kafkalake.storage.files import RealFiles
from kafkalake.storage.log import Log
from kafkalake.storage.retention import BLOCK, RetentionRule, SealedRange
from kafkalake.storage.verify import verify_partition

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000


def rule(policy: str = "delete", ms: int = -1, size: int = -1, guard: str = "off") -> RetentionRule:
    return RetentionRule("delete" in policy, ms, size, guard)


def write(log: Log, *timestamps: int) -> None:
    """A segment of one record each; the last stays active."""
    for number, timestamp in enumerate(timestamps):
        if number:
            log.roll()
        append(log, simple_batch([b"value"], timestamp=timestamp))


def files(directory: Path) -> list[str]:
    return sorted(name.removesuffix(".arrow") for name in os.listdir(directory) if name.endswith(".arrow"))


def test_expired_segments_go_and_the_active_one_is_rolled_first(memory_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    seen = SegmentsSeen()
    log = open_log(memory_path, clock, events=seen)
    write(log, NOW_MS - 3 * HOUR_MS, NOW_MS - 2 * HOUR_MS, NOW_MS)
    assert log.enforce_retention(rule(ms=HOUR_MS), {}).log_start_offset == 2
    assert (log.log_start_offset, seen.removed) == (2, [0, 1])
    assert not log.enforce_retention(rule(ms=HOUR_MS), {}).segments
    clock.advance(2 * HOUR_MS)
    assert len(log.enforce_retention(rule(ms=HOUR_MS), {}).segments) == 1
    assert (log.log_start_offset, log.log_end_offset, files(memory_path)) == (3, 3, [])
    append(log, simple_batch([b"next"], timestamp=NOW_MS))
    assert [offset for offset, _ in read_all(log)] == [3]
    log.close()
    verify_partition(memory_path)
    assert open_log(memory_path, clock).log_start_offset == 3


@pytest.mark.parametrize("cut", [1, 0])
def test_a_segment_that_was_cut_is_looked_at_again(memory_path: Path, cut: int) -> None:
    """As its file has the same name, what it was before counted: what came behind the cut went with it, long before its time."""
    clock = ManualClock(NOW_MS)
    log = open_log(memory_path, clock)
    for _ in range(2):
        log.append([simple_batch([b"old"], timestamp=NOW_MS - 3 * HOUR_MS)], 0)
    log.roll()
    assert not log.enforce_retention(rule(ms=4 * HOUR_MS), {}).segments
    log.truncate_to(cut)
    log.take_over(1)
    append(log, simple_batch([b"new"], timestamp=NOW_MS), epoch=1)
    append(log, simple_batch([b"new"], timestamp=NOW_MS), epoch=1)
    log.roll()
    assert log.enforce_retention(rule(ms=HOUR_MS), {}).log_start_offset == cut
    assert [offset for offset, _ in read_all(log)] == [cut, cut + 1]


def test_records_of_1970_are_expired_as_in_kafka_and_kept_for_ever_where_a_topic_says_so(memory_path: Path) -> None:
    log = open_log(memory_path, ManualClock(NOW_MS))
    write(log, 1_000, 2_000)
    assert not log.enforce_retention(rule(ms=-1), {}).segments
    assert len(log.enforce_retention(rule(ms=7 * 24 * HOUR_MS), {}).segments) == 2


@pytest.mark.parametrize(("policy", "gone"), [("delete", 2), ("compact,delete", 2), ("compact", 0), ("", 0)])
def test_the_policy_says_whether_anything_goes(memory_path: Path, policy: str, gone: int) -> None:
    log = open_log(memory_path, ManualClock(NOW_MS))
    write(log, 1_000, 2_000)
    assert len(log.enforce_retention(rule(policy, ms=0, size=0), {}).segments) == gone


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("is_adopted", [False, True])
def test_what_a_job_wrote_goes_at_the_next_start_if_the_log_begins_behind_it(
    memory_path: Path, is_adopted: bool, is_closed: bool
) -> None:
    """Delta names it no more, or never did as the job was killed: it stayed on the disk for ever."""
    log = written_by_leader(memory_path, ManualClock())
    first, second, third, fourth, fifth, *_ = log.sealed_base_offsets
    new = rewritten(log, [second, third])
    log.discard()
    log = open_log(memory_path, swapped=[new] if is_adopted else [], file_delete_delay_ms=60_000)
    assert log.sealed_base_offsets[:2] == [first, second]
    log.delete_records_before(fifth)
    (log.close if is_closed else log.discard)()
    clock = ManualClock()
    log = open_log(memory_path, clock, file_delete_delay_ms=60_000)
    assert {first, second, fourth} <= {int(name[:20]) for name in files(memory_path)}, "a query may still read them"
    clock.advance(60_000)
    log.remove_deleted_files()
    assert [name for name in os.listdir(memory_path) if name[:20].isdigit() and int(name[:20]) < fifth] == []


def test_what_a_job_commits_after_a_start_stays_although_the_log_begins_in_it(memory_path: Path) -> None:
    """When the log was opened, nothing told the file from one that a killed job has left."""
    log = written_by_leader(memory_path, ManualClock())
    first, second, third, *_ = log.sealed_base_offsets
    new = rewritten(log, [first, second])
    log.delete_records_before(second)
    log.discard()
    clock = ManualClock()
    log = open_log(memory_path, clock, file_delete_delay_ms=60_000)
    assert log.sealed_base_offsets[:2] == [second, third]
    assert log.adopt_rewritten([new]) == []
    assert log.sealed_base_offsets[:2] == [first, third]
    clock.advance(60_000)
    log.remove_deleted_files()
    assert files(memory_path)[0] == f"{first:020d}-1"
    assert [offset for offset, _ in read_all(log, second)]


@pytest.mark.parametrize("error", [errno.EIO, errno.EPERM])
def test_a_file_that_cannot_be_unlinked_goes_later(memory_path: Path, error: int) -> None:
    """It stayed until the next start, which may be months away."""

    class Kept(RealFiles):
        failures = 2

        def unlink(self, path: str) -> None:
            if self.failures and path.endswith("0.arrow"):
                self.failures -= 1
                raise OSError(error, "it fails on purpose", path)
            super().unlink(path)

    clock, disk = ManualClock(NOW_MS), Kept()
    log = open_log(memory_path, clock, disk)
    write(log, *[NOW_MS - 2 * HOUR_MS] * 3, NOW_MS)
    log.enforce_retention(rule(ms=HOUR_MS), {})
    for _ in range(2):
        assert files(memory_path) == ["0" * 20, f"{3:020d}"]
        log.remove_deleted_files()
        clock.advance(60_000)
        log.remove_deleted_files()
    assert (files(memory_path), disk.failures) == ([f"{3:020d}"], 0)


def test_nothing_above_the_high_watermark_goes(memory_path: Path) -> None:
    log = open_log(memory_path, ManualClock(NOW_MS))
    write(log, 1_000, 2_000)
    log.append([simple_batch([b"not shown yet"], timestamp=3_000)], 0)
    assert [each.base_offset for each in log.enforce_retention(rule(ms=0), {}).segments] == [0]


def test_a_group_keeps_what_it_has_not_read_only_where_the_topic_says_so(memory_path: Path) -> None:
    log = open_log(memory_path, ManualClock(NOW_MS))
    write(log, 1_000, 2_000, 3_000)
    assert len(log.enforce_retention(rule(ms=0, guard=BLOCK), {"slow": 1}).segments) == 1
    assert len(log.enforce_retention(rule(ms=0), {"slow": 1}).segments) == 2


def test_a_segment_without_timestamps_is_as_old_as_its_file(memory_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    log = open_log(memory_path, clock)
    write(log, -1)
    os.utime(memory_path / f"{0:020}.arrow", (NOW_MS / 1000, NOW_MS / 1000))
    clock.advance(HOUR_MS - 1)
    assert not log.enforce_retention(rule(ms=HOUR_MS), {}).segments
    clock.advance(2)
    assert len(log.enforce_retention(rule(ms=HOUR_MS), {}).segments) == 1


@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_a_lost_time_index_costs_a_scan(memory_path: Path, damage: str) -> None:
    log = open_log(memory_path, ManualClock(NOW_MS))
    write(log, NOW_MS - 2 * HOUR_MS, NOW_MS)
    log.close()
    index = memory_path / f"{0:020}.timeindex"
    log = open_log(memory_path, ManualClock(NOW_MS))
    if damage == "removed":
        index.unlink()
    else:
        os.truncate(index, 16)
    assert not log.enforce_retention(rule(ms=3 * HOUR_MS), {}).segments
    assert [each.base_offset for each in log.enforce_retention(rule(ms=HOUR_MS), {}).segments] == [0]


def test_what_is_appended_while_it_is_decided_stays(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(memory_path, ManualClock(NOW_MS))
    write(log, 1_000, 2_000)
    original = log_start.decide_retention

    def decide(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(log_start, "decide_retention", original)
        append(log, simple_batch([b"new"], timestamp=NOW_MS))
        return original(*arguments, **named)

    monkeypatch.setattr(log_start, "decide_retention", decide)
    assert [each.base_offset for each in log.enforce_retention(rule(ms=0), {}).segments] == [0]
    assert [offset for offset, _ in read_all(log)] == [1, 2]


def test_a_closed_log_loses_nothing(memory_path: Path) -> None:
    log = open_log(memory_path, ManualClock(NOW_MS))
    write(log, 1_000, 2_000)
    log.close()
    with pytest.raises(KafkaStorageError, match="closed"):
        log.enforce_retention(rule(ms=0), {})
    assert len(files(memory_path)) == 2


@pytest.mark.parametrize("seed", range(20))
def test_a_log_loses_what_kafka_would_take_one_by_one(memory_path: Path, seed: int) -> None:
    random = Random(seed)
    log = open_log(memory_path, ManualClock(NOW_MS), segment_bytes=2_000)
    ranges: list[SealedRange] = []
    for _ in range(random.randrange(1, 8)):
        base, timestamp = log.log_end_offset, NOW_MS - random.randrange(10)
        append(log, simple_batch([random.randbytes(random.randrange(1, 400))], timestamp=timestamp))
        size = os.path.getsize(memory_path / f"{base:020}.arrow")
        ranges.append(SealedRange(base, log.log_end_offset, size, timestamp))
        if random.random() < 0.9:
            log.roll()
            sealed = os.path.getsize(memory_path / f"{base:020}.arrow")
            ranges[-1] = SealedRange(base, log.log_end_offset, sealed, timestamp)
        else:
            break
    asked = rule(random.choice(("delete", "compact")), random.randrange(-1, 12), random.randrange(-1, 8_000), BLOCK)
    committed = {"group": random.randrange(8)} if random.random() < 0.3 else {}
    expected = taken(
        ranges, asked, committed, now_ms=NOW_MS, log_start=0, end_offset=log.high_watermark, active_bytes=0
    )
    assert list(log.enforce_retention(asked, committed).segments) == expected
    assert log.log_start_offset == (expected[-1].next_offset if expected else 0)
    assert [offset for offset, _ in read_all(log)] == list(range(log.log_start_offset, log.log_end_offset))
