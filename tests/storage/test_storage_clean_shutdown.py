"""The note of a clean shutdown: read once, gone durably before a log is opened."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from faulty_files import FaultyFiles
from power_loss import ForgetfulFiles

from kafkalake.storage.clean_shutdown import CLEAN_SHUTDOWN_FILE, note_clean_shutdown, take_clean_shutdown
from kafkalake.storage.files import REAL_FILES


def test_a_note_is_taken_once(tmp_path: Path) -> None:
    assert take_clean_shutdown(REAL_FILES, str(tmp_path)) == -1
    note_clean_shutdown(REAL_FILES, str(tmp_path), 7)
    note_clean_shutdown(REAL_FILES, str(tmp_path), 8)
    assert take_clean_shutdown(REAL_FILES, str(tmp_path)) == 8
    assert take_clean_shutdown(REAL_FILES, str(tmp_path)) == -1
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_note_proves_nothing(tmp_path: Path) -> None:
    note_clean_shutdown(REAL_FILES, str(tmp_path), 7)
    whole = (tmp_path / CLEAN_SHUTDOWN_FILE).read_bytes()
    damaged = [whole[:n] for n in range(len(whole))]
    damaged += [whole[:n] + bytes([whole[n] ^ 1]) + whole[n + 1 :] for n in range(len(whole))]
    for data in damaged:
        (tmp_path / CLEAN_SHUTDOWN_FILE).write_bytes(data)
        assert take_clean_shutdown(REAL_FILES, str(tmp_path)) == -1


def test_a_note_that_was_taken_does_not_come_back(tmp_path: Path) -> None:
    for seed in range(20):
        files = ForgetfulFiles()
        note_clean_shutdown(files, str(tmp_path), seed)
        files.lose_power(Random(seed))
        assert take_clean_shutdown(files, str(tmp_path)) == seed, "it was durable"
        files.lose_power(Random(seed))
        assert take_clean_shutdown(files, str(tmp_path)) == -1


def test_a_note_that_cannot_be_removed_stops_the_start(tmp_path: Path) -> None:
    files = FaultyFiles()
    note_clean_shutdown(files, str(tmp_path), 7)
    for _ in range(2):
        files.fail_at_call = files.calls + 1
        with pytest.raises(OSError, match="on purpose"):
            take_clean_shutdown(files, str(tmp_path))
    files.fail_at_call = None
    assert take_clean_shutdown(files, str(tmp_path)) == 7


def test_a_note_that_cannot_be_written_leaves_none_or_the_old_one(tmp_path: Path) -> None:
    files = FaultyFiles()
    note_clean_shutdown(files, str(tmp_path), 1)
    for call in range(1, 5):
        files.fail_at_call = files.calls + call
        with pytest.raises(OSError, match="on purpose"):
            note_clean_shutdown(files, str(tmp_path), 2)
        files.fail_at_call = None
    note_clean_shutdown(files, str(tmp_path), 3)
    assert take_clean_shutdown(files, str(tmp_path)) == 3
