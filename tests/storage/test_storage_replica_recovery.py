"""A replica's log after a kill or a loss of power: cut where a record is missing or damaged, and copied again."""

from __future__ import annotations

from pathlib import Path

import pytest
from faulty_files import FaultyFiles
from long_runs import first_of
from manual_clock import ManualClock
from partition_logs import append, open_log
from record_batches import simple_batch
from replica_logs import assert_same, copied, copied_once, epochs_of, open_follower, reads_of, written

from kafkalake.errors import KafkaStorageError
from kafkalake.storage import log_segments, recovery
from kafkalake.storage.leader_epochs import LEADER_EPOCHS_FILE
from kafkalake.storage.log import Log
from kafkalake.storage.lost_records import LOST_SEGMENT_BYTES
from kafkalake.storage.state import STATE_FILE, read_state


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def leader(memory_path: Path, clock: ManualClock) -> Log:
    return written(memory_path / "leader", clock)


@pytest.fixture
def here(memory_path: Path, leader: Log, clock: ManualClock) -> Path:
    """The directory of a follower that has copied all and was killed."""
    follower = open_follower(memory_path / "follower", clock)
    copied(leader, follower)
    follower.discard()
    return memory_path / "follower"


def restart_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (recovery, log_segments):
        monkeypatch.setattr(module, "boot_id", lambda: bytes([7] * 16))


def last_data(directory: Path) -> Path:
    return max(path for path in directory.iterdir() if path.suffix == ".arrow")


def assert_copied_again(leader: Log, here: Path, clock: ManualClock, end: int) -> None:
    """Assert that the log is cut at `end`, says so until that is known, at the next opening too, and is then copied on."""
    for _ in range(2):
        follower = open_follower(here, clock)
        assert follower.was_cut
        assert follower.log_end_offset == end
        assert follower.high_watermark <= end
        follower.discard()
    follower = open_follower(here, clock)
    follower.forget_cut()
    assert not follower.was_cut
    follower.discard()
    follower = open_follower(here, clock)
    assert follower.log_end_offset == end
    assert not follower.was_cut, "what is missing is known by now"
    copied(leader, follower)
    assert_same(leader, follower)
    assert not any(path.stat().st_size == LOST_SEGMENT_BYTES for path in here.iterdir())


def test_a_killed_follower_was_not_cut(leader: Log, here: Path, clock: ManualClock) -> None:
    follower = open_follower(here, clock)
    assert not follower.was_cut
    assert_same(leader, follower)


def test_a_write_that_the_kill_interrupted_was_not_acknowledged(leader: Log, here: Path, clock: ManualClock) -> None:
    append(leader, simple_batch([b"more"], producer_id=4, epoch=0, sequence=200), epoch=leader.latest_epoch)
    read = leader.read_replica(read_state(here).log_end_offset, 1)
    for length in (1, 700, len(read.messages) - 1):
        with last_data(here).open("ab") as file:
            file.write(read.messages[:length])
        follower = open_follower(here, clock)
        assert not follower.was_cut
        follower.discard()
    follower = open_follower(here, clock)
    copied(leader, follower)
    assert_same(leader, follower)


def test_a_tail_that_power_took_is_copied_again(
    leader: Log, here: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart_machine(monkeypatch)
    last = reads_of(leader)[-1]
    data = last_data(here).read_bytes()
    last_data(here).write_bytes(data[: -len(last.messages) // 2])
    assert_copied_again(leader, here, clock, last.first_offset)


def test_a_damaged_message_is_copied_again(leader: Log, here: Path, clock: ManualClock) -> None:
    data = bytearray(last_data(here).read_bytes())
    data[1_200] ^= 1
    last_data(here).write_bytes(data)
    assert_copied_again(leader, here, clock, reads_of(leader)[-1].segment_base_offset)


def test_segments_behind_lost_records_are_copied_again(
    leader: Log, here: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    restart_machine(monkeypatch)
    base = leader.sealed_base_offsets[3]
    path = here / f"{base:020d}.arrow"
    path.write_bytes(path.read_bytes()[:1_500])
    end = next(read.next_offset for read in reads_of(leader) if read.segment_base_offset == base)
    assert_copied_again(leader, here, clock, end)


def test_without_its_segments_a_replica_begins_at_its_log_start(leader: Log, here: Path, clock: ManualClock) -> None:
    for path in here.glob("0*"):
        path.unlink()
    assert_copied_again(leader, here, clock, 0)


@pytest.mark.parametrize("has_state", [True, False])
def test_without_its_first_segment_a_replica_has_nothing(
    leader: Log, here: Path, clock: ManualClock, has_state: bool
) -> None:
    """It would serve the rest as the leader, and no epoch would tell that the first records are missing."""
    (here / f"{0:020d}.arrow").unlink()
    if not has_state:
        (here / STATE_FILE).unlink()
    assert_copied_again(leader, here, clock, 0)


def test_without_its_state_a_replica_shows_nothing_before_it_is_told(
    leader: Log, here: Path, clock: ManualClock
) -> None:
    (here / STATE_FILE).unlink()
    follower = open_follower(here, clock)
    assert follower.was_cut
    assert (follower.high_watermark, follower.log_end_offset) == (0, leader.log_end_offset)
    copied(leader, follower)
    assert_same(leader, follower)


@pytest.mark.exhaustive
@pytest.mark.parametrize("data", [None, b"", b"KLLE damaged"])
@pytest.mark.parametrize("ends", ["close", "discard"])
def test_leader_epochs_are_found_in_the_segments(
    leader: Log, here: Path, clock: ManualClock, data: bytes | None, ends: str
) -> None:
    getattr(open_follower(here, clock), ends)()
    (here / LEADER_EPOCHS_FILE).unlink()
    if data is not None:
        (here / LEADER_EPOCHS_FILE).write_bytes(data)
    follower = open_follower(here, clock)
    assert epochs_of(follower) == epochs_of(leader)


def test_epochs_of_removed_records_do_not_come_back(leader: Log, here: Path, clock: ManualClock) -> None:
    """The list of epochs is replaced without a sync, so an earlier one may be there after a loss of power."""
    before = (here / LEADER_EPOCHS_FILE).read_bytes()
    follower = open_follower(here, clock)
    follower.truncate_to(leader.end_offset_for_epoch(14)[1], below_high_watermark=True)
    follower.discard()
    (here / LEADER_EPOCHS_FILE).write_bytes(before)
    follower = open_follower(here, clock)
    assert follower.latest_epoch == 14


@pytest.mark.parametrize("failures", [0, 1, 2])
def test_a_closed_follower_that_goes_on_in_a_damaged_segment_was_cut(
    memory_path: Path, clock: ManualClock, failures: int
) -> None:
    """The leader's next messages belong behind what is missing, also if the disk failed before the damage was found."""
    leader, files = open_log(memory_path / "leader", clock), FaultyFiles()
    for number in range(5):
        append(leader, simple_batch([b"%d" % number] * 3))
    follower = open_follower(memory_path / "follower", clock)
    copied(leader, follower)
    follower.close()
    damaged = bytearray(last_data(memory_path / "follower").read_bytes())
    damaged[2_200] ^= 1
    last_data(memory_path / "follower").write_bytes(damaged)
    follower = open_follower(memory_path / "follower", clock, files)
    append(leader, simple_batch([b"last"]))
    read = leader.read_replica(follower.log_end_offset, 3_000)
    for _ in range(failures):
        files.fail_at_call = files.calls + 1
        with pytest.raises(KafkaStorageError):
            follower.append_replica(read.messages, read.segment_base_offset)
    files.fail_at_call = None
    with pytest.raises(KafkaStorageError, match="are lost"):
        follower.append_replica(read.messages, read.segment_base_offset)
    follower.discard()
    assert_copied_again(leader, memory_path / "follower", clock, 3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_unclean", [False, True])
@pytest.mark.parametrize("read", first_of([11, -2, 3, 26], 2))
def test_a_truncation_that_fails_in_its_middle_has_lost_no_record(
    leader: Log, memory_path: Path, clock: ManualClock, read: int, is_unclean: bool
) -> None:
    """It is to remove them. Told as lost, they took a replica that had caught up meanwhile out of the ISR."""
    offset, failed_at, fails = reads_of(leader)[read].first_offset, 0, True
    while fails:
        failed_at += 1
        here, files = memory_path / str(failed_at), FaultyFiles()
        follower = open_follower(here, clock, files)
        while copied_once(leader, follower, 3_000):
            pass
        follower.advance_high_watermark(leader.log_end_offset if is_unclean else offset)
        files.fail_at_call = files.calls + failed_at
        try:
            follower.truncate_to(offset, below_high_watermark=is_unclean)
            fails, files.fail_at_call = False, None
        except KafkaStorageError:
            follower.discard()
            follower = open_follower(here, clock)
        assert (follower.was_cut, follower.log_end_offset >= offset) == (False, True), failed_at
        follower.truncate_to(offset, below_high_watermark=is_unclean)
        copied(leader, follower)
        assert_same(leader, follower)
    assert failed_at > 3
