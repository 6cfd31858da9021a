"""A follower's log: the leader's messages and segments, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from manual_clock import ManualClock
from partition_logs import append, open_log
from record_batches import simple_batch
from replica_logs import assert_same, copied, data_of, open_follower, reads_of, written


def test_a_copied_log_has_the_files_and_the_state_of_its_leader(memory_path: Path) -> None:
    clock = ManualClock()
    leader, follower = written(memory_path / "leader", clock), open_follower(memory_path / "follower", clock)
    copied(leader, follower)
    assert len(leader.sealed_base_offsets) > 5
    assert_same(leader, follower)


def test_a_closed_follower_goes_on_in_the_segment_of_its_leader(memory_path: Path) -> None:
    clock = ManualClock()
    leader, follower = open_log(memory_path / "leader", clock), open_follower(memory_path / "follower", clock)
    for number in range(5):
        append(leader, simple_batch([b"%d" % number] * 3))
        copied(leader, follower)
        follower.close()
        follower = open_follower(memory_path / "follower", clock)
        assert follower.log_end_offset == leader.log_end_offset
    append(leader, simple_batch([b"last"]))
    copied(leader, follower)
    assert_same(leader, follower)
    assert len(data_of(memory_path / "follower")) == 1


@pytest.mark.exhaustive
def test_a_follower_is_truncated_below_its_watermark_and_copies_on(memory_path: Path) -> None:
    clock = ManualClock()
    leader, follower = written(memory_path / "leader", clock), open_follower(memory_path / "follower", clock)
    copied(leader, follower)
    for offset in sorted({read.first_offset for read in reads_of(leader)}, reverse=True):
        follower.truncate_to(offset, below_high_watermark=True)
        assert follower.log_end_offset == follower.high_watermark == offset
    copied(leader, follower)
    assert_same(leader, follower)
    follower.restart_at(1_000)
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (1_000, 1_000, 1_000)
    assert follower.producers() == [] and follower.latest_epoch == -1
    follower.restart_at(leader.replica_start_offset)
    copied(leader, follower)
    assert_same(leader, follower)


def test_a_follower_raises_its_log_start_and_keeps_the_segment_that_the_leader_appends_to(memory_path: Path) -> None:
    clock = ManualClock()
    leader, follower = written(memory_path / "leader", clock), open_follower(memory_path / "follower", clock)
    copied(leader, follower)
    for start in (leader.sealed_base_offsets[2] + 1, leader.log_end_offset):
        follower.raise_start(start + 1_000 if start == leader.log_end_offset else start)
        assert follower.log_start_offset == start
        assert follower.replica_start_offset <= start
    append(leader, simple_batch([b"more"]), epoch=leader.latest_epoch)
    copied(leader, follower)
    assert follower.log_end_offset == leader.log_end_offset
    leader.delete_records_before(start)
    assert_same(leader, follower)
