"""What a crash leaves, at every byte and at every call: acknowledged records stay, the rest goes, and doing it twice
changes nothing."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import pytest
from faulty_files import FaultyFiles
from long_runs import ALL
from manual_clock import ManualClock
from partition_logs import SegmentsSeen, accepted, append, open_log, read_all
from record_batches import Row, record_batch, simple_batch

from kafkalake.errors import CorruptSegmentError, KafkaStorageError
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import ABORT, EndMarker
from kafkalake.storage.state import STATE_FILE, StateFile, boot_id, read_state
from kafkalake.storage.verify import verify_partition

FIRST = f"{0:020d}.arrow"


def batch(number: int) -> ProducerBatch:
    """Batch `number` of an idempotent producer: two records."""
    return record_batch(
        [(100 * number + i, b"k", b"%d-%d" % (number, i), [("h", b"x")]) for i in range(2)],
        producer_id=7,
        epoch=0,
        sequence=2 * number,
    )


def message_ends(log: Log, path: Path, count: int) -> list[int]:
    """Append `count` batches, each its own message; the file's size after each."""
    ends = []
    for n in range(count):
        log.append([batch(n)], 0)
        ends.append(path.stat().st_size)
    return ends


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.exhaustive
def test_a_log_cut_at_any_length_keeps_its_whole_messages(memory_path: Path) -> None:
    """Nothing here was acknowledged: the high watermark never moved."""
    source, victim = memory_path / "source", memory_path / "victim"
    log = open_log(source, index_interval_bytes=0)
    ends = message_ends(log, source / FIRST, 4)
    expected = read_all(log, 0, 8)
    data = (source / FIRST).read_bytes()
    state = (source / STATE_FILE).read_bytes()
    victim.mkdir()
    near_ends = {end + shift for end in ends for shift in (-1, 0, 1)}
    for length in sorted({*range(0, len(data), 1 if ALL else 3), *near_ends} & {*range(len(data) + 1)}):
        for path in victim.iterdir():
            path.unlink()
        (victim / STATE_FILE).write_bytes(state)
        (victim / FIRST).write_bytes(data[:length])
        whole = sum(end <= length for end in ends)
        recovered = open_log(victim, index_interval_bytes=length % 2 * 4096)
        assert recovered.log_end_offset == 2 * whole, length
        assert read_all(recovered, 0, recovered.log_end_offset) == expected[: 2 * whole]
        assert [accepted(a).duplicate for a in recovered.append([batch(n) for n in range(4)], 0)] == [
            n < whole for n in range(4)
        ]
        recovered.advance_high_watermark(8)
        if length % 97 == 0:
            assert read_all(recovered) == expected
            assert read_all(open_log(victim)) == expected
            assert verify_partition(victim) == []


@pytest.mark.exhaustive
def test_any_byte_of_an_unacknowledged_tail_can_be_wrong(memory_path: Path) -> None:
    source, victim = memory_path / "source", memory_path / "victim"
    log = open_log(source, index_interval_bytes=0)
    append(log, batch(0))
    acknowledged = (source / FIRST).stat().st_size
    log.append([batch(1)], 0)
    expected = read_all(log, 0, 4)
    data = (source / FIRST).read_bytes()
    for position in range(acknowledged, len(data), 3):
        shutil.rmtree(victim, ignore_errors=True)
        shutil.copytree(source, victim)
        flipped = data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]
        (victim / FIRST).write_bytes(flipped)
        recovered = open_log(victim, index_interval_bytes=position % 2 * 4096)
        assert recovered.log_end_offset == 2
        assert (victim / FIRST).stat().st_size == acknowledged
        assert read_all(recovered, 0, 2) == expected[:2]


def test_the_torn_tails_size_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path)
    append(log, batch(0))
    with open(tmp_path / FIRST, "ab") as file:
        file.write(b"garbage!" * 13)
    with caplog.at_level(logging.WARNING):
        open_log(tmp_path)
    assert "torn tail" in caplog.text
    assert "bytes=104" in caplog.text


@pytest.mark.parametrize("victim_message", [0, 1, 3])
@pytest.mark.parametrize("where", ["metadata", "body"])
def test_acknowledged_records_that_are_damaged_are_refused_and_the_others_served(
    tmp_path: Path, victim_message: int, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path)
    ends = [488]
    for n in range(4):
        append(log, batch(n))
        ends.append((tmp_path / FIRST).stat().st_size)
    expected = read_all(log)
    data = bytearray((tmp_path / FIRST).read_bytes())
    position = ends[victim_message] + 40 if where == "metadata" else ends[victim_message + 1] - 20
    data[position] ^= 1
    (tmp_path / FIRST).write_bytes(bytes(data))

    for attempt in range(3):
        with caplog.at_level(logging.ERROR):
            log = open_log(tmp_path)
        assert "acknowledged records are damaged" in caplog.text
        assert log.log_end_offset == log.high_watermark == 8
        assert bytes(data) == (tmp_path / FIRST).read_bytes()
        for offset in range(8):
            if offset // 2 == victim_message:
                with pytest.raises(CorruptSegmentError) as caught:
                    log.read(offset, 100)
                assert caught.value.path.endswith(FIRST)
                assert caught.value.position == ends[victim_message]
            else:
                assert read_all(log, offset, offset + 1, 1) == expected[offset : offset + 1], attempt
    if where == "body":
        assert accepted(log.append([batch(3)], 0)[0]).duplicate
    assert accepted(append(log, simple_batch([b"new"]))[0]).base_offset == 8
    assert read_all(open_log(tmp_path), 8)[0][1][2] == b"new"
    assert verify_partition(tmp_path) != []


def test_acknowledged_records_that_are_gone_are_passed_over_and_their_offsets_not_used_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(0))
    whole = (tmp_path / FIRST).stat().st_size
    append(log, batch(1))
    os.truncate(tmp_path / FIRST, whole)
    log = open_log(tmp_path)
    assert (log.high_watermark, log.log_end_offset) == (4, 4)
    assert len(read_all(log, 0, 2)) == 2
    for offset in (2, 3):
        assert read_all(log, offset) == []
    assert accepted(append(log, simple_batch([b"new"]))[0]).base_offset == 4
    log.close()
    log = open_log(tmp_path)
    for offset in (2, 3, 4):
        assert [(at, row[2]) for at, row in read_all(log, offset)] == [(4, b"new")]


def test_damage_before_whole_messages_is_kept_when_the_state_may_be_old(tmp_path: Path) -> None:
    """After a power failure `state` may be older than the data, so what follows the damage may have been acknowledged."""
    log = open_log(tmp_path)
    ends = message_ends(log, tmp_path / FIRST, 3)
    data = bytearray((tmp_path / FIRST).read_bytes())
    data[ends[1] - 20] ^= 1
    (tmp_path / FIRST).write_bytes(bytes(data))
    other_boot = read_state(tmp_path)._replace(boot_id=bytes(range(16)))
    file = StateFile(str(tmp_path / STATE_FILE), OpenFiles(limit=2), sequence=10)
    file.write(other_boot)
    log = open_log(tmp_path)
    assert log.log_end_offset == 6
    assert len(read_all(log, 4, 6)) == 2
    with pytest.raises(CorruptSegmentError):
        log.read(2, 100, 6)


def test_damage_that_was_never_acknowledged_is_cut_off(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    ends = message_ends(log, tmp_path / FIRST, 3)
    data = bytearray((tmp_path / FIRST).read_bytes())
    data[ends[1] - 20] ^= 1
    (tmp_path / FIRST).write_bytes(bytes(data))
    assert boot_id() != bytes(16)
    assert open_log(tmp_path).log_end_offset == 2


def test_a_lost_state_is_made_again_from_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=4_000)
    for n in range(10):
        append(log, batch(n))
    expected = read_all(log)
    for content in (None, b"", bytes(256), b"garbage" * 40):
        (tmp_path / STATE_FILE).unlink()
        if content is not None:
            (tmp_path / STATE_FILE).write_bytes(content)
        log = open_log(tmp_path)
        assert read_all(log) == expected
        assert log.log_start_offset == 0
        assert verify_partition(tmp_path) == []


@pytest.mark.exhaustive
def test_a_torn_footer_is_cut_off_and_appending_goes_on(memory_path: Path) -> None:
    log = open_log(memory_path / "source")
    append(log, batch(0))
    append(log, batch(1))
    expected = read_all(log)
    end = (memory_path / "source" / FIRST).stat().st_size
    log.roll()
    data = (memory_path / "source" / FIRST).read_bytes()
    for length in range(end, len(data) + 1):
        victim = memory_path / "victim"
        shutil.rmtree(victim, ignore_errors=True)
        shutil.copytree(memory_path / "source", victim)
        (victim / FIRST).write_bytes(data[:length])
        log = open_log(victim, index_interval_bytes=length % 2 * 4096)
        assert read_all(log) == expected
        assert log.sealed_base_offsets == ([0] if length == len(data) else [])
        if length % 50 == 0 or length == len(data):
            append(log, batch(2))
            assert [row[0] for row in read_all(log)] == list(range(6))
            log.close()
            assert verify_partition(victim) == []


def test_a_damaged_schema_is_written_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(0))
    data = (tmp_path / FIRST).read_bytes()
    (tmp_path / FIRST).write_bytes(b"\0" * 100 + data[100:])
    assert len(read_all(open_log(tmp_path))) == 2
    assert (tmp_path / FIRST).read_bytes() == data


def test_indexes_are_rebuilt(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=1_000)
    for n in range(200):
        append(log, batch(n))
    log.roll()
    before = {name: data for name, data in files_of(tmp_path).items() if "index" in name}
    os.truncate(tmp_path / FIRST, (tmp_path / FIRST).stat().st_size - 1)
    for name in before:
        (tmp_path / name).write_bytes(b"nonsense" * 7)
    log = open_log(tmp_path, index_interval_bytes=1_000)
    log.roll()
    assert {name: data for name, data in files_of(tmp_path).items() if "index" in name} == before


@pytest.mark.exhaustive
def test_a_segment_larger_than_what_is_read_at_once_is_recovered(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    values = [os.urandom(3 << 20) for _ in range(4)] + [os.urandom(20 << 20), b"end"]
    for value in values:
        append(log, simple_batch([value]))
    log = open_log(tmp_path)
    assert [row[1][2] for row in read_all(log)] == values
    log.close()
    assert verify_partition(tmp_path) == []


def test_producers_and_transactions_survive_without_the_newest_snapshot(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=3_000)
    for n in range(12):
        append(log, batch(n))
    append(log, simple_batch([b"t"], producer_id=8, epoch=0, sequence=0, transactional=True))
    log.append_control(EndMarker(8, 0, ABORT, 0), 0)
    log.advance_high_watermark(log.log_end_offset)
    append(log, simple_batch([b"t"], producer_id=9, epoch=0, sequence=0, transactional=True))
    log.roll()
    end = log.log_end_offset
    for remaining in (2, 1, 0):
        for path in sorted(tmp_path.glob("*.snapshot"))[remaining:]:
            path.unlink()
        (tmp_path / STATE_FILE).unlink()
        log = open_log(tmp_path)
        assert (log.log_end_offset, log.last_stable_offset) == (end, end - 1)
        assert accepted(log.append([batch(11)], 0)[0]).duplicate
        assert len(log.aborted_transactions(0, end)) == 1


def test_a_damaged_snapshot_is_passed_over(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=3_000)
    for n in range(12):
        append(log, batch(n))
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-3] + b"abc")
    log = open_log(tmp_path)
    assert accepted(log.append([batch(11)], 0)[0]).duplicate
    assert accepted(log.append([batch(12)], 0)[0]).base_offset == 24


def run_until_the_disk_fails(
    directory: Path, files: FaultyFiles
) -> tuple[list[tuple[int, Row]], list[tuple[int, Row]]]:
    """Append, roll, delete until a call fails and all after it; the acknowledged rows and all that were sent."""
    acknowledged: list[tuple[int, Row]] = []
    sent: list[tuple[int, Row]] = []
    try:
        log = open_log(directory, ManualClock(), files, segment_bytes=3_000, index_interval_bytes=0)
        for n in range(12):
            rows = [(2 * n + i, (100 * n + i, b"k", b"%d-%d" % (n, i), [("h", b"x")])) for i in range(2)]
            sent += rows
            answer = log.append([batch(n)], n // 4)[0]
            if isinstance(answer, KafkaStorageError):
                return acknowledged, sent
            assert accepted(answer).base_offset == 2 * n
            log.advance_high_watermark(log.log_end_offset)
            acknowledged = list(sent)
            if n == 8:
                log.delete_records_before(3)
                sent = sent[3:]
                acknowledged = list(sent)
        log.close()
    except KafkaStorageError:
        pass
    return acknowledged, sent


@pytest.mark.exhaustive
def test_a_crash_at_any_call_loses_nothing_that_was_acknowledged(memory_path: Path) -> None:
    """Also a crash in the middle of the recovery from it."""
    counted = FaultyFiles()
    run_until_the_disk_fails(memory_path / "whole", counted)
    assert counted.calls > 60
    for call in range(1, counted.calls + 1):
        directory = memory_path / str(call)
        files = FaultyFiles()
        files.fail_at_call = call
        acknowledged, sent = run_until_the_disk_fails(directory, files)
        for second_call in (1, 2, 3, 4, 6, 9):
            again = FaultyFiles()
            again.fail_at_call = second_call
            try:
                open_log(directory, files=again)
            except KafkaStorageError:
                continue
        log = open_log(directory)
        start, end = log.log_start_offset, log.log_end_offset
        found = read_all(log, start, end)
        assert start in (0, 3)
        acknowledged = [row for row in acknowledged if row[0] >= start]
        assert found[: len(acknowledged)] == acknowledged, call
        assert found == [row for row in sent if row[0] >= start][: len(found)], call
        assert read_all(open_log(directory), start, end) == found
        log = open_log(directory)
        number = log.log_end_offset // 2
        if number:
            assert accepted(log.append([batch(number - 1)], 9)[0]).duplicate, call
        assert accepted(append(log, batch(number), epoch=9)[0]).base_offset == 2 * number, call
        log.close()
        assert verify_partition(directory) == [], call


def test_recovery_of_what_was_recovered_changes_no_file(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=3_000)
    for n in range(10):
        append(log, batch(n))
    with open(max(tmp_path.glob("*.arrow")), "ab") as file:
        file.write(b"torn")
    open_log(tmp_path)
    first = {name: data for name, data in files_of(tmp_path).items() if name != STATE_FILE}
    before = read_state(tmp_path)
    open_log(tmp_path)
    assert {name: data for name, data in files_of(tmp_path).items() if name != STATE_FILE} == first
    assert read_state(tmp_path) == before


def test_leftovers_of_interrupted_writes_are_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(0))
    for name in ("leader-epochs.tmp", f"{7:020d}.snapshot.tmp", f"{9:020d}.index", f"{9:020d}.txnindex"):
        (tmp_path / name).write_bytes(b"x")
    open_log(tmp_path)
    names = set(files_of(tmp_path))
    assert not {name for name in names if name.endswith("tmp") or name.startswith(f"{9:020d}")}


def test_offsets_are_not_used_again_after_all_segments_were_lost(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(3):
        append(log, batch(n))
    for path in tmp_path.glob("0*"):
        path.unlink()
    log = open_log(tmp_path)
    assert (log.log_start_offset, log.log_end_offset) == (6, 6)


def test_truncating_goes_back_to_whole_messages(tmp_path: Path) -> None:
    seen = SegmentsSeen()
    log = open_log(tmp_path, events=seen, segment_bytes=3_000)
    append(log, batch(0), epoch=1)
    expected = read_all(log)
    for n in range(1, 10):
        log.append([batch(n)], 1 + n // 5)
    assert len(log.sealed_base_offsets) > 2
    bases = log.sealed_base_offsets
    log.truncate_to(2)
    assert sorted(seen.removed) == bases
    assert (log.log_end_offset, log.high_watermark, log.leader_epoch) == (2, 2, 2)
    assert read_all(log) == expected
    assert accepted(log.append([batch(0)], 3)[0]).duplicate
    assert accepted(append(log, batch(1), epoch=3)[0]).base_offset == 2
    assert log.end_offset_for_epoch(1) == (1, 2)
    log.close()
    assert verify_partition(tmp_path) == []


def test_producers_of_a_history_that_was_lost_do_not_come_back(tmp_path: Path) -> None:
    """The segment lost its tail and `state` with it; a snapshot above the new end must not count once the log has grown past it."""
    log = open_log(tmp_path)
    append(log, simple_batch([b"kept"], producer_id=1, epoch=0, sequence=0))
    end = (tmp_path / f"{0:020d}.arrow").stat().st_size
    append(log, simple_batch([b"lost", b"lost"], producer_id=9, epoch=0, sequence=0))
    log.roll()
    os.truncate(tmp_path / f"{0:020d}.arrow", end)
    (tmp_path / "state").unlink()
    assert (tmp_path / f"{3:020d}.snapshot").exists()
    log = open_log(tmp_path)
    assert log.log_end_offset == 1
    log.advance_high_watermark(1)
    assert not (tmp_path / f"{3:020d}.snapshot").exists()
    for sequence in range(1, 6):
        append(log, simple_batch([b"new"], producer_id=1, epoch=0, sequence=sequence))
    assert [producer_id for producer_id, _ in open_log(tmp_path).producers()] == [1]
