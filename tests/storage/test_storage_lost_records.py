"""Acknowledged records that a power failure took: the log says so, can be read past them, and never gives their offsets again."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from faulty_files import FaultyFiles
from partition_logs import append, open_log, read_all
from record_batches import simple_batch

from kafkalake.errors import CorruptSegmentError, KafkaStorageError
from kafkalake.storage import log_segments, recovery
from kafkalake.storage.log import Log
from kafkalake.storage.lost_records import LOST_SEGMENT_BYTES, lost_range
from kafkalake.storage.verify import verify_partition

FIRST = f"{0:020d}.arrow"


def written(directory: Path, batches: int = 10, **config: object) -> list[int]:
    """A log of ten records a batch whose broker was killed; where each batch ends in the file."""
    log = open_log(directory, **config)
    ends = []
    for number in range(batches):
        append(log, simple_batch([b"%d" % (10 * number + n) for n in range(10)]))
        ends.append((directory / FIRST).stat().st_size)
    return ends


def offsets(log: Log, start: int = 0) -> list[int]:
    return [offset for offset, _ in read_all(log, start)]


def lost_in(directory: Path) -> list[range]:
    found = [lost_range(path, path.stat().st_size) for path in sorted(directory.glob("*.arrow"))]
    return [each for each in found if each is not None]


def boot_again(monkeypatch: pytest.MonkeyPatch, number: int = 9) -> None:
    for module in (recovery, log_segments):
        monkeypatch.setattr(module, "boot_id", lambda: bytes([number] * 16))


@pytest.mark.parametrize("short_by", [0, 1, 100])
def test_a_log_without_its_tail_is_read_past_the_loss(tmp_path: Path, short_by: int) -> None:
    """The file is shorter than `state` says, by a whole message or a part of one."""
    ends = written(tmp_path)
    os.truncate(tmp_path / FIRST, (ends[8] if not short_by else ends[9] - short_by))
    for turn in range(3):  # the second start finds nothing to do, whether the first was stopped or killed
        log = open_log(tmp_path)
        assert (log.high_watermark, log.log_end_offset) == (100 + turn, 100 + turn)
        assert offsets(log) == [*range(90), *range(100, 100 + turn)]
        assert offsets(log, 95) == list(range(100, 100 + turn))
        append(log, simple_batch([b"later"]))
        assert lost_in(tmp_path) == [range(90, 100)]
        if turn == 1:
            log.close()
    log.close()
    (problem,) = verify_partition(tmp_path)
    assert "90 to 99" in problem.what and "lost" in problem.what


def test_zeros_and_rubbish_after_another_boot_are_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, tail in enumerate((bytes(200), b"\x07" * 200)):
        directory = tmp_path / str(number)
        ends = written(directory)
        with (directory / FIRST).open("r+b") as file:
            file.seek(ends[8] + 40)
            file.write(tail)
        boot_again(monkeypatch, number + 1)
        log = open_log(directory)
        assert offsets(log) == list(range(90))
        assert lost_in(directory) == [range(90, 100)]
        append(log, simple_batch([b"later"]))
        assert offsets(log) == [*range(90), 100]


def test_a_flipped_bit_is_no_loss(tmp_path: Path) -> None:
    ends = written(tmp_path)
    data = bytearray((tmp_path / FIRST).read_bytes())
    data[ends[9] - 20] ^= 1
    (tmp_path / FIRST).write_bytes(data)
    log = open_log(tmp_path)
    append(log, simple_batch([b"later"]))
    with pytest.raises(CorruptSegmentError):
        log.read(90, 1000)
    assert offsets(log, 100) == [100]
    assert lost_in(tmp_path) == []


def test_a_segment_of_which_nothing_is_left_becomes_the_loss(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, simple_batch([b"a"]))
    log.roll()
    append(log, simple_batch([b"b"]))
    append(log, simple_batch([b"c"]))
    os.truncate(tmp_path / f"{1:020d}.arrow", 0)
    log = open_log(tmp_path)
    append(log, simple_batch([b"d"]))
    assert offsets(log) == [0, 3]
    assert lost_in(tmp_path) == [range(1, 3)]


def test_a_segment_whose_name_is_lost_becomes_the_loss(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, simple_batch([b"a"]))
    log.roll()
    append(log, simple_batch([b"b"]))
    (tmp_path / f"{1:020d}.arrow").unlink()
    log = open_log(tmp_path)
    append(log, simple_batch([b"c"]))
    assert offsets(log) == [0, 2]
    assert lost_in(tmp_path) == [range(1, 2)]


def test_a_loss_in_an_earlier_segment_is_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        for number in range(3):
            append(log, simple_batch([b"%d" % number]))
        log.roll()
    append(log, simple_batch([b"last"]))
    path = tmp_path / f"{3:020d}.arrow"
    whole = (path.stat().st_size - 488) // 3
    os.truncate(path, 488 + whole + 100)
    boot_again(monkeypatch)
    log = open_log(tmp_path)
    assert offsets(log) == [0, 1, 2, 3, 6, 7, 8, 9]
    assert lost_in(tmp_path) == [range(4, 6)]
    append(log, simple_batch([b"more"]))
    assert offsets(log, 4) == [6, 7, 8, 9, 10]
    assert [(each.base_offset, each.next_offset) for each in log.sealed_segments()] == [(0, 3), (3, 4), (4, 6), (6, 9)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("call", range(1, 25))
def test_a_crash_while_it_is_written_down_leaves_what_recovers_to_the_same(tmp_path: Path, call: int) -> None:
    ends = written(tmp_path)
    os.truncate(tmp_path / FIRST, ends[9] - 100)
    files = FaultyFiles()
    files.fail_at_call = call
    with contextlib.suppress(KafkaStorageError):
        open_log(tmp_path, files=files)
    log = open_log(tmp_path)
    append(log, simple_batch([b"later"]))
    assert offsets(log) == [*range(90), 100]
    assert lost_in(tmp_path) == [range(90, 100)]


def test_the_size_of_such_a_segment_is_known(tmp_path: Path) -> None:
    ends = written(tmp_path)
    os.truncate(tmp_path / FIRST, ends[0])
    open_log(tmp_path)
    assert (tmp_path / f"{10:020d}.arrow").stat().st_size == LOST_SEGMENT_BYTES
