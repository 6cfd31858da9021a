"""Every step of a follower's changes fails once and life goes on, then again, then the process or the machine stops there."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from faulty_files import FaultyFiles
from long_runs import first_of
from manual_clock import ManualClock
from partition_logs import append, open_log
from power_loss import ForgetfulFiles
from record_batches import simple_batch
from replica_logs import (
    SEGMENT_BYTES,
    assert_same,
    compact,
    copied,
    copied_once,
    data_of,
    downloaded,
    open_follower,
    reads_of,
    written,
)

from kafkalake.errors import DivergedLogError, KafkaStorageError
from kafkalake.storage import log_segments, recovery
from kafkalake.storage.files import Files
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log
from kafkalake.storage.segment_names import file_name
from kafkalake.storage.state import read_state

pytestmark = pytest.mark.exhaustive

Change = Callable[[Log, Log], None]


def copy_with_rolls(leader: Log, follower: Log) -> None:
    for _ in range(4):
        copied_once(leader, follower, 3_000)
    follower.advance_high_watermark(min(leader.high_watermark, follower.log_end_offset))


def truncate(leader: Log, follower: Log) -> None:
    follower.truncate_to(reads_of(leader)[9].first_offset, below_high_watermark=True)


def start_anew(leader: Log, follower: Log) -> None:
    follower.restart_at(1_000)


def take_over(leader: Log, follower: Log) -> None:
    follower.take_over(50)


def raise_start(leader: Log, follower: Log) -> None:
    follower.raise_start(leader.sealed_base_offsets[3])


def extend(leader: Log, follower: Log) -> None:
    copied_once(leader, follower, 3_000, 1)
    follower.advance_high_watermark(min(leader.high_watermark, follower.log_end_offset))


def install(leader: Log, follower: Log) -> None:
    ref = leader.read_replica(leader.sealed_base_offsets[1], 1).whole
    assert ref is not None
    path = downloaded(leader, Path(follower.directory), ref, 1 << 20)
    follower.install_segment(ref, str(path))


CHANGES: dict[str, Change] = {
    each.__name__: each for each in (copy_with_rolls, truncate, start_anew, take_over, raise_start, extend, install)
}


def prepared(memory_path: Path, name: str) -> tuple[Log, Path]:
    """A leader, and the directory of a follower in the state that the change needs."""
    clock = ManualClock()
    leader, follower = written(memory_path / "leader", clock), open_follower(memory_path / "template", clock)
    if name == "copy_with_rolls":
        for _ in range(3):
            copied_once(leader, follower, 3_000)
    elif name == "extend":
        while follower.log_end_offset < leader.sealed_base_offsets[2]:
            copied_once(leader, follower, 1 << 20)
    else:
        copied(leader, follower)
    if name == "install":
        compact(leader, leader.sealed_base_offsets[1:4])
    follower.discard()
    return leader, memory_path / "template"


def swapped_of(leader: Log, name: str) -> tuple[object, ...]:
    """What Delta names of rewritten segments."""
    if name != "install":
        return ()
    base = leader.sealed_base_offsets[1]
    ref = leader.read_replica(base, 1).whole
    assert ref is not None
    return (RewrittenSegment(ref.base_offset, ref.next_offset, ref.generation),)


def reopened(directory: Path, leader: Log, name: str, files: Files | None = None) -> Log:
    settings = {"is_replicated": True, "segment_bytes": SEGMENT_BYTES, "swapped": swapped_of(leader, name)}
    return open_log(directory, ManualClock(), *([files] if files is not None else []), **settings)  # type: ignore[arg-type]


def caught_up(leader: Log, follower: Log) -> None:
    """Copy on, from the start of the leader's log where nothing else helps, as a follower does."""
    if not leader.replica_start_offset <= follower.log_end_offset <= leader.log_end_offset:
        follower.restart_at(leader.replica_start_offset)
    epoch, end = leader.end_offset_for_epoch(follower.latest_epoch)
    if epoch != follower.latest_epoch or end < follower.log_end_offset:
        follower.truncate_to(min(follower.log_end_offset, end if epoch >= 0 else 0), below_high_watermark=True)
    try:
        copied(leader, follower)
    except DivergedLogError:
        follower.restart_at(leader.replica_start_offset)
        copied(leader, follower)
    if follower.generations != leader.generations:
        install(leader, follower)


def assert_caught_up(leader: Log, follower: Log) -> None:
    state = read_state(follower.directory)
    assert state.high_watermark <= follower.log_end_offset
    caught_up(leader, follower)
    append(leader, simple_batch([b"later"]), epoch=leader.latest_epoch)
    caught_up(leader, follower)
    follower.remove_deleted_files()
    leader.remove_deleted_files()
    ours, theirs = data_of(Path(follower.directory)), data_of(Path(leader.directory))
    bases = [base for base in leader.sealed_base_offsets if base >= follower.replica_start_offset]
    names = [file_name(base, generation=leader.generation_of(base)) for base in bases]
    assert [ours[name] for name in names] == [theirs[name] for name in names]
    assert follower.sealed_base_offsets == bases
    assert max(ours) == max(theirs) and ours[max(ours)] == theirs[max(theirs)]
    assert follower.log_end_offset == leader.log_end_offset


def calls_of(directory: Path, memory_path: Path, leader: Log, name: str) -> int:
    """The number of changing calls that the change makes."""
    files, here = FaultyFiles(), memory_path / "counted"
    shutil.copytree(directory, here)
    follower = reopened(here, leader, name, files)
    before = files.calls
    CHANGES[name](leader, follower)
    return files.calls - before


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("times", first_of([2, 1], 1))
def test_a_step_that_fails_is_repeated(memory_path: Path, name: str, times: int) -> None:
    leader, template = prepared(memory_path, name)
    for call in range(1, calls_of(template, memory_path, leader, name) + 1):
        here, files = memory_path / "follower", FaultyFiles()
        shutil.copytree(template, here)
        follower = reopened(here, leader, name, files)
        for _ in range(times):
            files.fail_at_call = files.calls + call
            with contextlib.suppress(
                KafkaStorageError
            ):  # an index entry or an old snapshot that is not written is no error
                CHANGES[name](leader, follower)
            files.fail_at_call = None
        with contextlib.suppress(DivergedLogError):
            CHANGES[name](leader, follower)
        assert_caught_up(leader, follower)
        follower.discard()
        shutil.rmtree(here)


def test_messages_follow_a_copied_segment_at_any_step_of_which_the_disk_failed(memory_path: Path) -> None:
    leader, template = prepared(memory_path, "extend")
    for call in range(1, calls_of(template, memory_path, leader, "extend") + 1):
        here, files = memory_path / "follower", FaultyFiles()
        shutil.copytree(template, here)
        follower = reopened(here, leader, "extend", files)
        files.fail_at_call = files.calls + call
        with pytest.raises(KafkaStorageError):
            extend(leader, follower)
        files.fail_at_call = None
        for _ in range(2):
            copied(leader, follower)
            assert_same(leader, follower)
            assert follower.generations == {}
            follower.discard()
            follower = reopened(here, leader, "extend")
        follower.discard()
        shutil.rmtree(here)


@pytest.mark.parametrize("name", CHANGES)
def test_a_kill_at_any_step_leaves_a_log_that_goes_on(memory_path: Path, name: str) -> None:
    leader, template = prepared(memory_path, name)
    for call in range(1, calls_of(template, memory_path, leader, name) + 1):
        here, files = memory_path / "follower", FaultyFiles()
        shutil.copytree(template, here)
        follower = reopened(here, leader, name, files)
        files.fail_at_call = files.calls + call
        with contextlib.suppress(KafkaStorageError):
            CHANGES[name](leader, follower)
        follower.discard()
        assert_caught_up(leader, reopened(here, leader, name))
        shutil.rmtree(here)


@pytest.mark.parametrize("name", CHANGES)
def test_power_that_fails_at_any_step_leaves_a_log_that_goes_on(
    memory_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, template = prepared(memory_path, name)
    calls = calls_of(template, memory_path, leader, name)
    for seed in range(12):
        random, files = Random(seed), StoppingFiles()
        here = memory_path / "follower"
        shutil.copytree(template, here)
        for module in (recovery, log_segments):
            monkeypatch.setattr(module, "boot_id", lambda: bytes([1] * 16))
        follower = reopened(here, leader, name, files)
        files.calls_left = random.randrange(1, calls + 1)
        with contextlib.suppress(KafkaStorageError):
            CHANGES[name](leader, follower)
        follower.discard()
        files.lose_power(random)
        for module in (recovery, log_segments):
            monkeypatch.setattr(module, "boot_id", lambda seed=seed: bytes([2 + seed] * 16))
        assert_caught_up(leader, reopened(here, leader, name))
        shutil.rmtree(here)


class StoppingFiles(ForgetfulFiles):
    """A disk that takes so many changes and then none."""

    calls_left = 1 << 60

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise OSError(5, "the power fails on purpose")

    def write(self, descriptor: int, data: object, position: int) -> int:
        self._count()
        return super().write(descriptor, data, position)

    def truncate(self, descriptor: int, size: int) -> None:
        self._count()
        super().truncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        self._count()
        super().sync(descriptor)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._count()
        super().unlink(path)

    def sync_directory(self, path: str) -> None:
        self._count()
        super().sync_directory(path)


def test_a_log_whose_truncation_failed_takes_no_messages(memory_path: Path) -> None:
    leader, template = prepared(memory_path, "truncate")
    files = FaultyFiles()
    follower = reopened(template, leader, "truncate", files)
    last = reads_of(leader)[-1]
    files.fail_at_call = files.calls + 1
    for _ in range(2):
        with pytest.raises(KafkaStorageError):
            truncate(leader, follower)
        with pytest.raises(KafkaStorageError, match="must be repeated"):
            follower.append_replica(last.messages, last.segment_base_offset)
    files.fail_at_call = None
    truncate(leader, follower)
    copied(leader, follower)
    assert_same(leader, follower)


def test_a_replica_that_leads_after_a_truncation_that_failed_has_all_records_of_its_log(memory_path: Path) -> None:
    """At whatever step the disk failed, nothing is missing before the first record of the new epoch."""
    step, has_failed = 0, True
    while has_failed:
        step += 1
        files, clock = FaultyFiles(), ManualClock()
        log = open_log(memory_path / f"{step}", clock, files, is_replicated=True)
        for value in (b"a", b"b", b"c", b"d"):
            log.append([simple_batch([value])], 1)
        files.fail_at_call = files.calls + step
        has_failed = False
        try:
            log.truncate_to(2)
        except KafkaStorageError:
            has_failed = True
        files.fail_at_call = None
        log.take_over(2)
        append(log, simple_batch([b"new"]), epoch=2)
        other = open_follower(memory_path / f"{step} again", clock)
        copied(log, other)
        other.advance_high_watermark(log.high_watermark)
        assert_same(log, other)
    assert step > 5


def test_all_equal_after_all(memory_path: Path) -> None:
    """The helpers above copy a whole log."""
    leader, template = prepared(memory_path, "truncate")
    follower = open_follower(template, ManualClock())
    caught_up(leader, follower)
    assert_same(leader, follower)
