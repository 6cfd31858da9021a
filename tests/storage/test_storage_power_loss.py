"""The machine stops: what was forced to the disk is served as it was, the rest is as it was, gone or refused, never wrong."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from faulty_files import FaultyFiles
from long_runs import first_of
from manual_clock import ManualClock
from partition_logs import append, open_log
from power_loss import ForgetfulFiles
from record_batches import Row, rows_of, simple_batch

from kafkalake.errors import CorruptSegmentError, KafkaError, KafkaStorageError
from kafkalake.record import layout as at
from kafkalake.storage import log_segments, recovery
from kafkalake.storage.append_group import AppendResult
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import ABORT, EndMarker
from kafkalake.storage.state import read_state
from kafkalake.storage.verify import verify_partition

TOPIC_ID = UUID(int=7)


def work(log: Log, random: Random, rows: dict[int, Row], sequence: int) -> tuple[int, int, int]:
    """Some appends, rolls, flushes, deletions; the next sequence, the offset up to which all is on the disk, the one deleted to."""
    flushed, deleted_to = log.recovery_point, 0
    for _ in range(random.randrange(1, 30)):
        action = random.random()
        if action < 0.8:
            values = [random.randbytes(random.randrange(80)) for _ in range(random.randrange(1, 4))]
            batch = simple_batch(values, timestamp=random.randrange(1_000), producer_id=4, epoch=0, sequence=sequence)
            answer = log.append([batch], 0)[0]
            if isinstance(answer, KafkaError):
                break  # the producer's last batches were lost with the power: a real one starts a new epoch
            assert isinstance(answer, AppendResult)
            first = int(batch.header[7])
            rows.update({answer.base_offset + n: (first + n, None, value, []) for n, value in enumerate(values)})
            sequence += len(values)
            log.advance_high_watermark(log.log_end_offset)
        elif action < 0.88:
            log.roll()
        elif action < 0.94:
            log.flush()
            flushed = log.log_end_offset
        elif action < 0.97:
            log.flush_sealed()
            flushed = max(flushed, log.recovery_point)
        else:
            to, before = random.randrange(log.log_start_offset, log.high_watermark + 1), log.log_start_offset
            log.delete_records_before(to)
            deleted_to = to if to > before else deleted_to
    return sequence, flushed, deleted_to


def boot_into(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """From now on the kernel says that it was started another time."""
    for module in (recovery, log_segments):
        monkeypatch.setattr(module, "boot_id", lambda: bytes([number + 1] * 16))


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", first_of(range(80), 40))
def test_a_power_failure_makes_nothing_wrong(memory_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    rows: dict[int, Row] = {}
    files, sequence, first = ForgetfulFiles(), 0, 0
    directory = memory_path / "logs" / "t-0"  # made by the log, as for a new topic
    known_lost: set[int] = set()
    boot_into(monkeypatch, 0)
    for boot in range(1, 5):
        log = open_log(directory, ManualClock(), files, TOPIC_ID, segment_bytes=5_000, index_interval_bytes=500)
        known = [batch.last_sequence for _, producer in log.producers() for batch in producer.batches]
        sequence = (known[-1] + 1) if known else 0
        sequence, flushed, deleted_to = work(log, random, rows, sequence)
        first = max(first, deleted_to)
        if random.random() < 0.2:
            log.close()
            flushed = log.log_end_offset
        start = log.log_start_offset
        files.lose_power(random)
        boot_into(monkeypatch, boot)
        files = ForgetfulFiles()
        log = open_log(directory, ManualClock(), files, TOPIC_ID, segment_bytes=5_000, index_interval_bytes=500)
        assert log.log_end_offset >= flushed
        assert log.log_start_offset >= first, "the log start has gone back"
        first = log.log_start_offset
        served = set()
        for offset in range(log.log_start_offset, log.log_end_offset):
            with contextlib.suppress(CorruptSegmentError):
                for at, row in rows_of(log.read(offset, 1, log.log_end_offset)):
                    assert rows[at] == row
                    served.add(at)
        lost = {offset for offset in range(start, flushed) if offset not in served | known_lost}
        assert not lost, f"boot {boot}: {sorted(lost)} were on the disk"
        known_lost = {offset for offset in rows if offset not in served}
        log.advance_high_watermark(log.log_end_offset)
        verify_partition(directory)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(30))
def test_aborted_records_are_never_shown_after_a_power_failure(
    memory_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    files = ForgetfulFiles()
    log = open_log(memory_path, ManualClock(), files)
    for sequence in range(6):
        append(log, simple_batch([b"x"], producer_id=4, epoch=0, sequence=sequence, transactional=True))
        log.append_control(EndMarker(4, 0, ABORT, 0), 0)
        log.advance_high_watermark(log.log_end_offset)
        if random.random() < 0.5:
            log.roll()
        if random.random() < 0.3:
            log.flush_sealed()
    files.lose_power(random)
    boot_into(monkeypatch, 1)
    log = open_log(memory_path)
    log.advance_high_watermark(log.log_end_offset)
    aborted = {
        offset
        for entry in log.aborted_transactions(0, log.log_end_offset)
        for offset in range(entry.first_offset, entry.last_offset)
    }
    for offset in range(log.log_start_offset, log.last_stable_offset):
        try:
            found = [at for at, _ in rows_of(log.read(offset, 1, log.last_stable_offset))]
        except CorruptSegmentError:
            continue
        assert set(found) <= aborted


@pytest.mark.parametrize("seed", range(12))
def test_what_was_sealed_after_its_records_were_forced_is_forced_by_the_next_process(
    memory_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill comes between the seal, which writes a footer and ends the indexes, and the loss of power."""
    files = ForgetfulFiles()
    log = open_log(memory_path, ManualClock(), files)
    aborted = range(12)  # the end of their index crosses the border of a sector
    for sequence in aborted:
        append(log, simple_batch([b"x"], producer_id=4, epoch=0, sequence=sequence, transactional=True))
        log.append_control(EndMarker(4, 0, ABORT, 0), 0)
    log.advance_high_watermark(log.log_end_offset)
    log.flush()
    log.roll()
    log.discard()
    log = open_log(memory_path, ManualClock(), files)
    for _ in range(2):
        append(log, simple_batch([b"y"]))
        log.flush()
    files.sync(files.open(f"{memory_path}/state", write=True))
    files.lose_power(Random(seed))
    boot_into(monkeypatch, 1)
    log = open_log(memory_path)
    assert [entry.first_offset for entry in log.aborted_transactions(0, log.log_end_offset)] == [
        2 * each for each in aborted
    ]
    damaged = {Path(problem.file).suffix for problem in verify_partition(memory_path)}
    assert not damaged & {".arrow", ".txnindex"}
    assert all(rows_of(log.read(offset, 1, log.log_end_offset)) for offset in range(0, log.log_end_offset, 2))


@pytest.mark.parametrize("seed", range(12))
def test_deleted_records_stay_deleted_where_nothing_else_was_forced(
    memory_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new log start stands in a file that was just made."""
    files, directory = ForgetfulFiles(), memory_path / "logs" / "t-0"
    log = open_log(directory, files=files, topic_id=TOPIC_ID)
    for number in range(5):
        append(log, simple_batch([b"%d" % number]))
    log.delete_records_before(3)
    files.lose_power(Random(seed))
    boot_into(monkeypatch, 1)
    log = open_log(directory, topic_id=TOPIC_ID)
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)


@pytest.mark.parametrize("seed", range(12))
def test_a_log_start_that_a_loss_has_raised_does_not_go_back_with_the_next_one(
    memory_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that were told where the log starts would be told of records before it."""
    random, directory = Random(seed), memory_path / "logs" / "t-0"
    files = ForgetfulFiles()
    log = open_log(directory, files=files, topic_id=TOPIC_ID)
    append(log, simple_batch([b"lost"] * 5))
    for segment in directory.glob("*.arrow"):
        files.unlink(str(segment))  # its name was not forced
    boot_into(monkeypatch, 1)
    log = open_log(directory, files=files, topic_id=TOPIC_ID)
    raised = log.log_start_offset
    append(log, simple_batch([b"next"] * 3))
    files.lose_power(random)
    boot_into(monkeypatch, 2)
    log = open_log(directory, topic_id=TOPIC_ID)
    assert log.log_start_offset >= raised == 5


class CountedSyncs(ForgetfulFiles):
    """Counts what is forced to the disk."""

    syncs = 0

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        super().sync(descriptor)

    def sync_directory(self, path: str) -> None:
        self.syncs += 1
        super().sync_directory(path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("ends", ["power", "kill"])
@pytest.mark.parametrize("seed", range(12))
def test_takeovers_force_nothing_and_the_epoch_of_each_record_is_known_afterwards(
    memory_path: Path, seed: int, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, files, epoch, end = Random(seed), CountedSyncs(), 0, 0
    settings = {"segment_bytes": 3_000, "is_replicated": ends == "power" or seed % 2 == 0}
    boot_into(monkeypatch, 0)
    for boot in range(5):
        log = open_log(memory_path / "t-0", ManualClock(), files, TOPIC_ID, **settings)
        assert {offset: log.epoch_for_offset(offset) for offset in epochs_in(log)} == epochs_in(log)
        assert ends == "power" or log.log_end_offset == end
        for _ in range(random.randrange(1, 4)):
            epoch += 1
            before = files.syncs
            log.take_over(epoch)
            assert files.syncs == before
            state = read_state(log.directory)
            assert (state.leader_epoch, log.latest_epoch) == (epoch, epoch)
            assert state.takeover_offset == (log.log_end_offset if log.high_watermark < log.log_end_offset else 0)
            for _ in range(random.choice((0, 0, 3, 12))):
                log.append([simple_batch([random.randbytes(300)])], epoch)
                if random.random() < 0.5:
                    log.advance_high_watermark(log.log_end_offset)
            if random.random() < 0.2:
                log.flush()
        end = log.log_end_offset
        if ends == "power":
            files.lose_power(random)
            files = CountedSyncs()
            boot_into(monkeypatch, boot + 1)
        else:
            log.close() if random.random() < 0.3 else log.discard()


def epochs_in(log: Log) -> dict[int, int]:
    """The leader epoch in the header of each record."""
    found, offset = {}, log.log_start_offset
    while offset < log.log_end_offset:
        messages = log.read(offset, 1, log.log_end_offset)
        for header in messages.headers.tolist():
            found[header[at.BASE_OFFSET]] = header[at.LEADER_EPOCH]
        offset = messages.next_offset
    return found


class _DroppingFiles(ForgetfulFiles):
    """The next sync fails, and the kernel drops the pages: a later one succeeds without them."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.dropped: dict[str, tuple[int, int]] = {}

    def sync(self, descriptor: int) -> None:
        if self.fails:
            self.fails = False
            number, path = os.fstat(descriptor).st_ino, os.readlink(f"/proc/self/fd/{descriptor}")
            self.dropped[path] = len(self._contents.get(number, self._content(number))), self.size(descriptor)
            raise OSError(errno.EIO, "fsync fails on purpose")
        super().sync(descriptor)

    def lose_dropped(self) -> None:
        """Zeros are where the pages never were written."""
        for path, (begin, end) in self.dropped.items():
            with open(path, "r+b") as file:
                file.seek(begin)
                file.write(bytes(end - begin))


def _fill(log: Log, records: int) -> None:
    for _ in range(records):
        append(log, simple_batch([b"x" * 100]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("is_kept", [False, True], ids=["again", "restarts"])
@pytest.mark.parametrize("forces", [Log.flush_sealed, Log.flush], ids=["sealed", "all"])
@pytest.mark.parametrize("is_replicated", [False, True])
def test_what_a_failed_fsync_has_not_forced_is_verified_after_a_loss_of_power(
    memory_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_replicated: bool,
    forces: Callable[[Log], None],
    is_kept: bool,
) -> None:
    """Although the next fsync succeeded: the recovery point moved, and the next boot trusted segments with holes."""
    files = _DroppingFiles()
    log = open_log(memory_path, ManualClock(), files, is_replicated=is_replicated, segment_bytes=4_000)
    _fill(log, 1)
    log.flush()
    _fill(log, 20)
    recovery_point, files.fails = log.recovery_point, True
    with pytest.raises(KafkaStorageError):
        forces(log)
    assert files.dropped
    if is_kept:
        log.discard()
        log = open_log(memory_path, ManualClock(), files, is_replicated=is_replicated, segment_bytes=4_000)
    forces(log)
    assert log.recovery_point == recovery_point
    if is_kept:
        log.close()
        log = open_log(memory_path, ManualClock(), files, is_replicated=is_replicated, segment_bytes=4_000)
    _fill(log, 20)
    end = log.log_end_offset
    log.flush()
    log.discard()
    files.lose_dropped()
    boot_into(monkeypatch, 1)
    log = open_log(memory_path, is_replicated=is_replicated, segment_bytes=4_000)
    if is_replicated:
        assert log.was_cut and recovery_point <= log.log_end_offset < 21, "what is behind is fetched again"
        assert verify_partition(memory_path) == []
    else:
        assert log.log_end_offset == end
        assert log.read(end - 1, 1, end).next_offset == end
    _fill(log, 20)
    log.flush()
    assert log.recovery_point == log.log_end_offset, "this boot has not failed"


def test_the_recovery_point_moves_again_once_what_was_not_forced_is_gone(tmp_path: Path) -> None:
    files = FaultyFiles()
    log = open_log(tmp_path, ManualClock(), files, segment_bytes=4_000)
    _fill(log, 1)
    log.flush()
    _fill(log, 19)
    files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        log.flush_sealed()
    first_unsealed = log._segments.sealed_end
    _fill(log, 20)
    log.flush()
    assert log.recovery_point == 1
    log.delete_records_before(first_unsealed - 1)
    log.flush()
    assert log.recovery_point == 1
    log.delete_records_before(first_unsealed)
    log.flush()
    assert log.recovery_point == 40
