"""What a log promises: offsets, what is visible, rolling, time, transactions, deletion, limits."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.ipc
import pytest
from manual_clock import ManualClock
from partition_logs import SegmentsSeen, accepted, append, open_log, read_all
from record_batches import Row, arrow_rows, record_batch, rows_of, simple_batch

from kafkalake.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
)
from kafkalake.record import layout as at
from kafkalake.storage import files as files_module
from kafkalake.storage.config import LogConfig
from kafkalake.storage.files import REAL_FILES, RealFiles
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.producer_state import ABORT, COMMIT, NO_SEQUENCE, EndMarker
from kafkalake.storage.segment_reader import SEGMENTS
from kafkalake.storage.state import read_state


def rows(count: int, timestamp: int = 1_000) -> list[Row]:
    """Rows with every shape of key, value and headers."""
    return [
        (
            timestamp + n,
            None if n % 3 == 0 else b"key-%d" % n,
            None if n % 4 == 1 else b"v" * (n % 50),
            [("header", b"x" * n), ("", None)][: n % 3],
        )
        for n in range(count)
    ]


def test_rows_come_back_as_they_were_given(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    given = [rows(7, 100), rows(1, 200), rows(20, 300)]
    answers = append(log, *(record_batch(part) for part in given))
    assert [(accepted(a).base_offset, accepted(a).last_offset) for a in answers] == [(0, 6), (7, 7), (8, 27)]
    assert read_all(log) == list(enumerate(row for part in given for row in part))


def test_batches_of_one_append_are_one_message(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, *(simple_batch([b"a", b"b"]) for _ in range(5)))
    messages = log.read(3, 1)
    assert len(messages) == 1
    assert messages.headers[:, at.BASE_OFFSET].tolist() == [0, 2, 4, 6, 8]


def test_batches_beyond_the_bound_of_a_message_become_several(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1 << 20)
    big = simple_batch([os.urandom(700_000)])
    answers = append(log, big, simple_batch([os.urandom(700_000)]), simple_batch([b"x"]))
    assert [accepted(answer).base_offset for answer in answers] == [0, 1, 2]
    assert [row[0] for row in read_all(log)] == [0, 1, 2]
    assert len(log.read(0, 1 << 24)) == 1


def test_nothing_is_visible_before_the_high_watermark_moves(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append([simple_batch([b"a", b"b"])], 0)
    assert (log.log_end_offset, log.high_watermark) == (2, 0)
    assert len(log.read(0, 1000)) == 0
    assert read_state(tmp_path).high_watermark == 0
    log.advance_high_watermark(2)
    assert [row[1][2] for row in read_all(log)] == [b"a", b"b"]
    state = read_state(tmp_path)
    assert (state.high_watermark, state.log_end_offset, state.last_stable_offset) == (2, 2, 2)
    log.advance_high_watermark(1)
    assert log.high_watermark == 2


def test_the_high_watermark_cannot_pass_the_log_end(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with pytest.raises(KafkaStorageError):
        log.advance_high_watermark(1)


def test_state_says_how_many_bytes_of_the_active_segment_are_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, simple_batch([b"a"]))
    state = read_state(tmp_path)
    assert state.active_base_offset == 0
    assert state.active_position == (tmp_path / f"{0:020d}.arrow").stat().st_size
    log.roll()
    state = read_state(tmp_path)
    assert (state.active_base_offset, state.active_position) == (1, 0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("segment_bytes", [2_000, 10_000, 1 << 30])
@pytest.mark.parametrize("index_interval_bytes", [0, 1_000, 1 << 20])
def test_every_offset_is_found(tmp_path: Path, segment_bytes: int, index_interval_bytes: int) -> None:
    log = open_log(tmp_path, segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes)
    for n in range(40):
        append(log, record_batch(rows(1 + n % 4, 1_000 * n)))
    for offset in range(log.high_watermark):
        for max_bytes in (1, 5_000):
            messages = log.read(offset, max_bytes)
            assert messages.base_offset <= offset < messages.next_offset
    assert [row[0] for row in read_all(log)] == list(range(log.high_watermark))


def test_reading_outside_of_the_log_is_refused_and_at_its_end_gives_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, simple_batch([b"a", b"b"]))
    assert len(log.read(2, 1000)) == 0
    for offset in (-1, 3):
        with pytest.raises(OffsetOutOfRangeError):
            log.read(offset, 1000)


def test_messages_at_or_past_the_end_offset_are_left_out(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for n in range(5):
        append(log, simple_batch([b"%d" % n, b""]))
    assert log.read(0, 1 << 20, 4).next_offset == 4
    assert log.read(0, 1 << 20, 5).next_offset == 6
    assert len(log.read(4, 1 << 20, 4)) == 0


def test_a_message_larger_than_what_was_asked_for_is_whole(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    value = os.urandom(900 * 1024)
    append(log, simple_batch([b"before"]))
    append(log, simple_batch([value]))
    append(log, simple_batch([b"after"]))
    assert rows_of(log.read(1, 1))[0][1][2] == value
    assert [row[0] for row in read_all(log, 2)] == [2]


@pytest.mark.exhaustive
def test_a_thousand_batches_in_one_message(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, *(simple_batch([b"%d" % n]) for n in range(1_000)))
    assert [row[1][2] for row in read_all(log, 990)] == [b"%d" % n for n in range(990, 1_000)]


def test_a_full_segment_is_sealed_and_any_arrow_reader_reads_it(tmp_path: Path) -> None:
    seen = SegmentsSeen()
    log = open_log(tmp_path, segment_bytes=4_000, events=seen)
    for n in range(20):
        append(log, record_batch(rows(5, 100 * n)))
    assert len(seen.sealed) > 3
    assert all(segment.bytes <= 4_000 + 2_000 for segment in seen.sealed)
    expected = read_all(log)
    for segment in seen.sealed:
        here = [row for row in expected if segment.base_offset <= row[0] < segment.next_offset]
        table = pa.ipc.open_file(segment.path).read_all()
        assert arrow_rows(table.combine_chunks().to_batches()[0]) == here
        assert polars.read_ipc(segment.path).height == len(here)
        timestamps = [row[1][0] for row in here]
        assert (segment.records, segment.min_timestamp, segment.max_timestamp) == (
            len(here),
            min(timestamps),
            max(timestamps),
        )
    assert [segment.next_offset for segment in seen.sealed[:-1]] == [segment.base_offset for segment in seen.sealed[1:]]


def test_an_active_segment_reads_as_an_arrow_stream(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, record_batch(rows(5)))
    append(log, record_batch(rows(5)))
    data = (tmp_path / f"{0:020d}.arrow").read_bytes()
    assert pa.ipc.open_stream(pa.py_buffer(data[8:] + b"\xff\xff\xff\xff\0\0\0\0")).read_all().num_rows == 10


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_segments_hold_the_same(tmp_path: Path, codec: str) -> None:
    log = open_log(tmp_path, segment_compression=codec, segment_bytes=20_000)
    for n in range(10):
        append(log, record_batch(rows(50, 100 * n)), record_batch(rows(3)))
    plain = open_log(tmp_path / "plain")
    for n in range(10):
        append(plain, record_batch(rows(50, 100 * n)), record_batch(rows(3)))
    assert read_all(log) == read_all(plain)
    assert log.size_bytes < plain.size_bytes
    log.roll()
    tables = [pa.ipc.open_file(path).read_all() for path in sorted(tmp_path.glob("*.arrow"))]
    assert pa.concat_tables(tables).num_rows == log.high_watermark
    assert read_all(open_log(tmp_path)) == read_all(plain)


def test_an_old_segment_is_sealed_by_the_next_append(tmp_path: Path) -> None:
    """Old by the time in the records, as in Kafka, whatever the wall clock says."""
    clock = ManualClock()
    log = open_log(tmp_path, clock, segment_ms=1_000)
    append(log, simple_batch([b"a"], timestamp=5_000))
    append(log, simple_batch([b"b"], timestamp=5_999))
    append(log, simple_batch([b"from the past"], timestamp=10))
    clock.advance(10_000)
    append(log, simple_batch([b"still"], timestamp=5_100))
    assert log.sealed_base_offsets == []
    append(log, simple_batch([b"c"], timestamp=6_000))
    assert log.sealed_base_offsets == [0]
    assert [row[0] for row in read_all(log)] == [0, 1, 2, 3, 4]


def test_a_segment_without_timestamps_is_as_old_as_the_wall_clock_says(tmp_path: Path) -> None:
    clock = ManualClock()
    log = open_log(tmp_path, clock, segment_ms=1_000)
    append(log, simple_batch([b"a"], timestamp=-1))
    clock.advance(999)
    append(log, simple_batch([b"b"], timestamp=-1))
    assert log.sealed_base_offsets == []
    clock.advance(1)
    append(log, simple_batch([b"c"], timestamp=-1))
    assert log.sealed_base_offsets == [0]


def test_the_age_of_a_segment_survives_a_restart(tmp_path: Path) -> None:
    for directory, timestamps in ((tmp_path / "records", (5_000, 6_000)), (tmp_path / "clock", (-1, -1))):
        clock = ManualClock()
        append(open_log(directory, clock), simple_batch([b"a"], timestamp=timestamps[0]))
        clock.advance(900)
        log = open_log(directory, clock, segment_ms=1_000)
        clock.advance(100)
        append(log, simple_batch([b"b"], timestamp=timestamps[1]))
        assert log.sealed_base_offsets == [0]


def test_rolling_an_empty_log_does_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.roll()
    assert log.sealed_base_offsets == []
    assert not list(tmp_path.glob("*.arrow"))


def test_a_segment_ends_before_its_relative_offsets_do(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        batch = simple_batch([b"a"])
        batch.header[at.LAST_OFFSET_DELTA] = (1 << 30) - 1
        append(log, batch)
    assert log.sealed_base_offsets == [0, 1 << 30]
    assert log.read((1 << 31) + 5, 100).base_offset == 1 << 31
    assert open_log(tmp_path).high_watermark == 3 << 30


def test_log_append_time_replaces_timestamps(tmp_path: Path) -> None:
    clock = ManualClock(50_000)
    log = open_log(tmp_path, clock, message_timestamp_type="LogAppendTime")
    answer = accepted(append(log, simple_batch([b"a", b"b"], timestamp=5))[0])
    assert answer.log_append_time_ms == 50_000
    assert [row[1][0] for row in read_all(log)] == [50_000, 50_000]
    header = log.read(0, 100).headers[0]
    assert header[at.ATTRIBUTES] & at.ATTRIBUTE_LOG_APPEND_TIME
    assert header[at.MAX_TIMESTAMP] == 50_000
    assert log.offset_for_timestamp(50_000) == (50_000, 0)


def test_create_time_answers_without_a_time_and_clears_the_flag(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    batch = simple_batch([b"a"], timestamp=5, attributes=at.ATTRIBUTE_LOG_APPEND_TIME)
    assert accepted(append(log, batch)[0]).log_append_time_ms == -1
    assert not log.read(0, 100).headers[0, at.ATTRIBUTES] & at.ATTRIBUTE_LOG_APPEND_TIME
    assert read_all(log)[0][1][0] == 5


def test_repeated_and_wrong_batches_are_answered_in_place(tmp_path: Path) -> None:
    log = open_log(tmp_path)

    def batch(sequence: int, epoch: int = 0) -> object:
        return simple_batch([b"a", b"b"], producer_id=9, epoch=epoch, sequence=sequence)

    first = [accepted(a) for a in append(log, batch(0), batch(2))]  # type: ignore[arg-type]
    again = log.append([batch(0), batch(4), batch(8), batch(2), simple_batch([b"c"])], 0)  # type: ignore[list-item]
    assert accepted(again[0])._replace(duplicate=False) == first[0]
    assert accepted(again[0]).duplicate
    assert accepted(again[1]).base_offset == 4
    assert isinstance(again[2], OutOfOrderSequenceError)
    assert accepted(again[3])._replace(duplicate=False) == first[1]
    assert accepted(again[4]).base_offset == 6
    assert isinstance(log.append([batch(0, epoch=1), batch(6)], 0)[1], InvalidProducerEpochError)  # type: ignore[list-item]
    assert log.log_end_offset == 9
    assert log.active_producers() == 1


def test_a_batch_that_lies_about_itself_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    control = simple_batch([b"a"], attributes=at.ATTRIBUTE_CONTROL)
    short = simple_batch([b"a", b"b"])
    short.header[at.RECORDS] = 1
    answers = log.append([control, short, simple_batch([b"ok"])], 0)
    assert [isinstance(answer, InvalidRecordError) for answer in answers] == [True, True, False]
    assert log.log_end_offset == 1


def test_producers_expire_by_the_brokers_time(tmp_path: Path) -> None:
    clock = ManualClock()
    log = open_log(tmp_path, clock, producer_id_expiration_ms=1_000)
    append(log, simple_batch([b"a"], timestamp=1, producer_id=9, epoch=0, sequence=0))
    clock.advance(999)
    assert log.expire_producers() == 0
    clock.advance(1)
    assert log.expire_producers() == 1
    assert log.active_producers() == 0


@pytest.mark.exhaustive
def test_the_first_record_at_or_after_a_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=4_000, index_interval_bytes=500)
    random = np.random.default_rng(5)
    stamps: list[int] = []
    for n in range(60):
        part = [int(n * 100 + random.integers(-300, 300)) + 1_000 for _ in range(5)]
        stamps += part
        append(log, record_batch([(stamp, None, b"x" * 20, []) for stamp in part]))

    def expected(timestamp: int) -> tuple[int, int] | None:
        return next(((stamp, n) for n, stamp in enumerate(stamps) if stamp >= timestamp), None)

    wanted = [*range(0, max(stamps) + 200, 37), *stamps]
    for timestamp in wanted:
        assert log.offset_for_timestamp(timestamp) == expected(timestamp)
    for index in tmp_path.glob("*.timeindex"):
        index.write_bytes(index.read_bytes()[:16])
    reopened = open_log(tmp_path)
    for timestamp in wanted[::7]:
        assert reopened.offset_for_timestamp(timestamp) == expected(timestamp)
    for index in tmp_path.glob("*.timeindex"):
        index.unlink()
    reopened = open_log(tmp_path)
    for timestamp in wanted[::7]:
        assert reopened.offset_for_timestamp(timestamp) == expected(timestamp)


def test_a_time_is_found_after_records_with_later_ones_were_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for stamp in (100, 9_999, 200, 300, 400):
        append(log, simple_batch([b"x"], timestamp=stamp))
        log.roll()
    assert log.offset_for_timestamp(250) == (9_999, 1)
    assert log.max_timestamp() == (9_999, 1)
    log.delete_records_before(2)
    assert log.offset_for_timestamp(250) == (300, 3)
    assert log.offset_for_timestamp(401) is None
    assert log.max_timestamp() == (400, 4)


def test_the_largest_timestamp_is_the_first_record_with_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.max_timestamp() is None
    append(
        log,
        record_batch([(5, None, b"", []), (9, None, b"", []), (9, None, b"", [])]),
        simple_batch([b""], timestamp=9),
    )
    append(log, simple_batch([b""], timestamp=3))
    assert log.max_timestamp() == (9, 1)
    assert open_log(tmp_path).max_timestamp() == (9, 1)
    log.delete_records_before(2)
    assert log.max_timestamp() == (9, 2)


def test_records_above_the_high_watermark_are_not_found_by_time(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, simple_batch([b"a"], timestamp=10))
    log.append([simple_batch([b"b"], timestamp=20)], 0)
    assert log.offset_for_timestamp(15) is None
    log.advance_high_watermark(2)
    assert log.offset_for_timestamp(15) == (20, 1)


def test_deleting_moves_the_start_and_removes_whole_segments(tmp_path: Path) -> None:
    clock = ManualClock()
    seen = SegmentsSeen()
    log = open_log(tmp_path, clock, events=seen, segment_bytes=3_000, file_delete_delay_ms=1_000)
    for n in range(30):
        append(log, simple_batch([b"%d" % n]))
    bases = log.sealed_base_offsets
    log.delete_records_before(bases[3] + 1)
    assert seen.removed == bases[:3]
    assert log.log_start_offset == bases[3] + 1
    assert [row[0] for row in read_all(log)] == list(range(bases[3] + 1, 30))
    with pytest.raises(OffsetOutOfRangeError):
        log.read(bases[3], 100)
    assert (tmp_path / f"{0:020d}.arrow").exists()
    clock.advance(1_000)
    log.remove_deleted_files()
    assert min(int(path.stem) for path in tmp_path.glob("*.arrow")) == bases[3]
    assert len(list(tmp_path.glob("*.index"))) == len(list(tmp_path.glob("*.arrow")))
    assert open_log(tmp_path).log_start_offset == bases[3] + 1


def test_deleted_files_that_a_restart_finds_are_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=3_000, file_delete_delay_ms=1_000_000)
    for n in range(20):
        append(log, simple_batch([b"%d" % n]))
    base = log.sealed_base_offsets[2]
    log.delete_records_before(base)
    reopened = open_log(tmp_path)
    assert reopened.sealed_base_offsets[0] == base
    assert min(int(path.stem) for path in tmp_path.glob("*.arrow")) == base


def test_everything_can_be_deleted_and_offsets_go_on(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, simple_batch([b"a", b"b", b"c"]))
    log.delete_records_before(3)
    assert (log.log_start_offset, log.log_end_offset, log.sealed_base_offsets) == (3, 3, [])
    assert not list(tmp_path.glob("*.arrow"))
    for reopened in (log, open_log(tmp_path)):
        assert len(reopened.read(3, 100)) == 0
    log = open_log(tmp_path)
    assert accepted(append(log, simple_batch([b"d"]))[0]).base_offset == 3
    log.close()
    assert [row[0] for row in read_all(open_log(tmp_path))] == [3]


def test_records_that_nobody_acknowledged_cannot_be_deleted(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append([simple_batch([b"a", b"b"])], 0)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records_before(1)


def test_transactions_hold_the_last_stable_offset_and_aborted_ones_are_listed(tmp_path: Path) -> None:
    log = open_log(tmp_path)

    def transactional(producer: int, sequence: int) -> object:
        return simple_batch([b"a", b"b"], producer_id=producer, epoch=0, sequence=sequence, transactional=True)

    append(log, simple_batch([b"x"]), transactional(1, 0), transactional(2, 0))  # type: ignore[arg-type]
    assert log.last_stable_offset == 1
    log.roll()
    answer = log.append_control(EndMarker(1, 0, ABORT, 0), 0)
    assert (answer.base_offset, answer.ended) == (5, (1, 2))
    log.advance_high_watermark(6)
    assert log.last_stable_offset == 3
    assert len(log.read(0, 1000, log.last_stable_offset)) == 1
    append(log, transactional(2, 2))  # type: ignore[arg-type]
    log.roll()
    assert log.append_control(EndMarker(2, 0, COMMIT, 0), 0).ended == (3, 7)
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == log.log_end_offset == 9
    for reopened in (log, open_log(tmp_path)):
        assert reopened.aborted_transactions(0, 9) == [(1, 1, 5, 3)]
        assert reopened.aborted_transactions(6, 9) == []
        assert reopened.aborted_transactions(0, 1) == []
        assert reopened.last_stable_offset == 9
        marker = reopened.read(5, 10, 6)
        assert (marker.rows, marker.base_offset, marker.next_offset) == (0, 5, 6)
        assert marker.headers[0, at.CONTROL_TYPE] == ABORT
    assert [row[0] for row in read_all(log)] == [0, 1, 2, 3, 4, 6, 7]


def test_a_marker_has_the_records_that_it_has_ended_if_there_are_any(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, simple_batch([b"a"], producer_id=1, epoch=0, sequence=0, transactional=True))
    append(log, simple_batch([b"x", b"y"]))
    log.close()
    log = open_log(tmp_path)
    assert log.append_control(EndMarker(1, 0, COMMIT, 0), 0).ended == (0, 0)
    assert log.append_control(EndMarker(1, 0, COMMIT, 0), 0).ended is None, "sent again"
    unsequenced = simple_batch([b"a"], producer_id=1, epoch=0, sequence=NO_SEQUENCE, transactional=True)
    append(log, unsequenced, simple_batch([b"x"]))
    assert log.append_control(EndMarker(1, 0, COMMIT, 0), 0).ended == (5, 6), (
        "at most, where no sequence tells the last one"
    )


def test_an_open_transaction_survives_restarts(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, simple_batch([b"x"]))
    append(log, simple_batch([b"a"], producer_id=1, epoch=0, sequence=0, transactional=True))
    log.close()
    log = open_log(tmp_path)
    assert (log.high_watermark, log.last_stable_offset) == (2, 1)
    log = open_log(tmp_path)
    log.append_control(EndMarker(1, 0, ABORT, 0), 0)
    log.advance_high_watermark(3)
    assert open_log(tmp_path).aborted_transactions(0, 3) == [(1, 1, 2, 3)]


def test_leader_epochs_tell_where_they_end(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, simple_batch([b"a"]), epoch=1)
    append(log, simple_batch([b"b"]), epoch=1)
    append(log, simple_batch([b"c"]), epoch=4)
    for reopened in (log, open_log(tmp_path)):
        assert reopened.leader_epoch == 4
        assert reopened.end_offset_for_epoch(1) == (1, 2)
        assert reopened.end_offset_for_epoch(3) == (1, 2)
        assert reopened.end_offset_for_epoch(4) == (4, 3)
        assert reopened.end_offset_for_epoch(5) == (-1, -1)
    (tmp_path / "leader-epochs").unlink()
    assert open_log(tmp_path).end_offset_for_epoch(1) == (1, 2)


def test_a_log_that_was_closed_opens_without_a_look_at_its_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=3_000)
    for n in range(20):
        append(log, simple_batch([b"%d" % n], producer_id=4, epoch=0, sequence=n))
    expected = read_all(log)
    log.close()
    state = read_state(tmp_path)
    assert (state.clean, state.recovery_point, state.active_position) == (True, 20, 0)
    segments = {path: path.read_bytes() for path in tmp_path.glob("*.arrow")}
    for path in segments:
        path.write_bytes(b"")
    log = open_log(tmp_path)
    assert (log.log_end_offset, log.high_watermark, log.active_producers()) == (20, 20, 1)
    for path, data in segments.items():
        path.write_bytes(data)
    assert read_all(log) == expected
    assert accepted(append(log, simple_batch([b"19"], producer_id=4, epoch=0, sequence=19))[0]).duplicate


def test_a_closed_log_takes_no_more(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, simple_batch([b"a"]))
    log.close()
    log.close()
    assert isinstance(log.append([simple_batch([b"b"])], 0)[0], KafkaStorageError)


def test_flushing_is_due_by_records_and_by_time(tmp_path: Path) -> None:
    clock = ManualClock()
    log = open_log(tmp_path, clock, flush_messages=3, flush_ms=1_000)
    assert not log.flush_due()
    append(log, simple_batch([b"a", b"b"]))
    assert not log.flush_due()
    append(log, simple_batch([b"c"]))
    assert log.flush_due()
    log.flush()
    assert (log.flush_due(), log.recovery_point) == (False, 3)
    append(log, simple_batch([b"d"]))
    clock.advance(1_000)
    assert log.flush_due()


def test_sealed_segments_are_described_from_their_content(tmp_path: Path) -> None:
    seen = SegmentsSeen()
    log = open_log(tmp_path, segment_bytes=3_000, events=seen)
    for n in range(20):
        append(log, simple_batch([b"%d" % n], timestamp=1_000 - n))
    assert log.sealed_segments() == seen.sealed
    assert log.sealed_segments(seen.sealed[2].base_offset) == seen.sealed[2:]


def test_a_segment_is_read_by_another_process_while_it_grows(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    path = tmp_path / f"{0:020d}.arrow"
    expected: list[tuple[int, Row]] = []
    for n in range(30):
        append(log, record_batch(rows(4, 100 * n)))
        expected = read_all(log)
        start = 4 * n - 7 if n > 2 else 0
        with SEGMENTS.open(path, first_chunk_bytes=2_000) as reader:
            found = [row for messages in reader.messages(start, log.high_watermark) for row in rows_of(messages)]
        assert [row for row in found if row[0] >= start] == [row for row in expected if row[0] >= start]


@pytest.mark.exhaustive
def test_the_number_of_open_files_is_bounded(tmp_path: Path) -> None:
    shared = OpenFiles()
    logs = [Log.open(tmp_path / str(n), LogConfig(), ManualClock(), open_files=shared) for n in range(30)]
    before = len(os.listdir("/proc/self/fd"))
    for n in range(5):
        for log in logs:
            append(log, simple_batch([b"%d" % n]))
            log.roll()
    for log in logs:
        assert [row[1][2] for row in read_all(log)] == [b"%d" % n for n in range(5)]
    assert len(os.listdir("/proc/self/fd")) <= before + shared.limit + 2


class TestSmallestTimestamp:
    """Readers leave a segment out where all its records are younger than what is asked for: the smallest must be the smallest."""

    @pytest.mark.parametrize(
        ("timestamps", "smallest"),
        [([1_000, -5_000], -5_000), ([-5_000, 1_000], -5_000), ([-1, 1_000], -1), ([-7, -3], -7), ([0, 5], 0)],
    )
    def test_it_may_lie_before_1970(self, tmp_path: Path, timestamps: list[int], smallest: int) -> None:
        seen = SegmentsSeen()
        log = open_log(tmp_path, events=seen)
        for timestamp in timestamps:
            append(log, record_batch([(timestamp, None, b"x", [])]))
        log.roll()
        assert [segment.min_timestamp for segment in seen.sealed] == [smallest]
        assert [segment.min_timestamp for segment in log.sealed_segments()] == [smallest]
        top = max(timestamps)
        assert [segment.max_timestamp for segment in seen.sealed] == [top if top >= 0 else None]

    def test_a_segment_without_records_has_none(self, tmp_path: Path) -> None:
        seen = SegmentsSeen()
        log = open_log(tmp_path, events=seen)
        log.append_control(EndMarker(4, 0, ABORT, 0), 0)
        log.roll()
        assert [(segment.min_timestamp, segment.max_timestamp) for segment in seen.sealed] == [(None, None)]


def test_a_sealed_segment_is_told_of_whatever_the_disk_says_afterwards(tmp_path: Path) -> None:
    class AfterTheFooter(RealFiles):
        """Nothing can be asked of the disk once a footer is written."""

        footer = False

        def write(self, descriptor: int, data: Any, position: int) -> int:
            written = RealFiles.write(descriptor, data, position)
            self.footer = bytes(data).endswith(b"ARROW1") and position > 0
            return written

        def size(self, descriptor: int) -> int:
            if self.footer:
                raise OSError(errno.EIO, "the disk fails on purpose")
            return super().size(descriptor)

        def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
            if self.footer:
                raise OSError(errno.EMFILE, "too many open files")
            return super().open(path, write=write, create=create)

    seen = SegmentsSeen()
    log = open_log(tmp_path, files=REAL_FILES, events=seen)
    append(log, simple_batch([b"x"]))
    log.roll()
    expected = seen.sealed[0]
    seen = SegmentsSeen()
    log = open_log(tmp_path / "other", files=AfterTheFooter(), events=seen)
    append(log, simple_batch([b"x"]))
    with contextlib.suppress(KafkaStorageError):
        log.roll()
    assert [(each.base_offset, each.next_offset, each.bytes) for each in seen.sealed] == [(0, 1, expected.bytes)]


@pytest.mark.parametrize("call", [451, 100_000], ids=["cachestat", "an older kernel"])
def test_pages_that_are_not_in_memory_are_read_and_not_touched(
    tmp_path: Path, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "_CACHESTAT", call)
    path = tmp_path / "file"
    data = os.urandom(1 << 20)
    path.write_bytes(data)
    descriptor = REAL_FILES.open(str(path))
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        found = REAL_FILES.view(descriptor, 100_000, 5_000)
        if type(found) is not bytes:  # this file system has all of its files in memory
            assert Path("/proc/mounts").read_text().count("tmpfs")
        assert bytes(found) == data[5_000:105_000]
        os.pread(descriptor, len(data), 0)
        found = REAL_FILES.view(descriptor, 1 << 21, 5_000)
        assert isinstance(found, memoryview)
        assert bytes(found) == data[5_000:]
    finally:
        REAL_FILES.close(descriptor)


def test_a_flush_forces_the_name_of_an_index_of_aborted_transactions(tmp_path: Path) -> None:
    """It is made by the first marker, after the directory was forced for the data file; without it aborted records are shown."""

    class Names(RealFiles):
        def __init__(self) -> None:
            self.unforced: set[str] = set()

        def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
            if create and not os.path.exists(path):
                self.unforced.add(Path(path).suffix)
            return super().open(path, write=write, create=create)

        def sync_directory(self, path: str) -> None:
            self.unforced.clear()
            super().sync_directory(path)

    files = Names()
    log = open_log(tmp_path, files=files)
    append(log, simple_batch([b"x"], producer_id=4, epoch=0, sequence=0, transactional=True))
    log.flush()
    log.append_control(EndMarker(4, 0, ABORT, 0), 0)
    assert files.unforced == {".txnindex"}
    log.flush()
    assert files.unforced == set()


def test_a_read_of_committed_records_opens_no_file_of_segments_without_aborted_ones(tmp_path: Path) -> None:
    """It would take as long as the log has segments, and most have none."""

    class Opened(RealFiles):
        def __init__(self) -> None:
            self.names: list[str] = []
            self.lists = 0

        def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
            if path.endswith(".txnindex"):
                self.names.append(Path(path).name)
            return super().open(path, write=write, create=create)

        def list(self, directory: str) -> list[str]:
            self.lists += 1
            return super().list(directory)

    def abort(producer_id: int) -> None:
        append(log, simple_batch([b"x"], producer_id=producer_id, epoch=0, sequence=0, transactional=True))
        log.append_control(EndMarker(producer_id, 0, ABORT, 0), 0)

    def find(offset: int) -> list[int]:
        return [each.producer_id for each in log.aborted_transactions(offset, log.log_end_offset)]

    for _ in range(2):
        log = open_log(tmp_path)
        for _ in range(10):
            append(log, simple_batch([b"x"]))
            log.roll()
        log.close()
    files = Opened()
    log = open_log(tmp_path, files=files)
    files.lists = 0
    for offset in (15, 3):
        assert find(offset) == []
    assert (files.lists, files.names) == (1, [])
    abort(7)
    assert find(3) == [7]
    log.roll()
    abort(8)
    log.roll()
    append(log, simple_batch([b"x"]))
    files.names = []
    for offset in (3, 20, 23, 24):
        assert find(offset) == ([7, 8] if offset < 22 else [8] if offset < 24 else [])
    assert set(files.names) <= {"00000000000000000020.txnindex", "00000000000000000022.txnindex"}
    log.advance_high_watermark(log.log_end_offset)
    log.delete_records_before(21)
    assert find(21) == [7, 8]
    log.delete_records_before(22)
    assert find(22) == [8], "its segment is gone"
    log.truncate_to(22, below_high_watermark=True)
    assert find(22) == []
    abort(9)
    assert find(22) == [9]


class CountingFiles(RealFiles):
    """Counts the bytes that are read of segments."""

    def __init__(self) -> None:
        self.bytes_read = 0

    def read(self, descriptor: int, length: int, position: int) -> bytes:
        data = super().read(descriptor, length, position)
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".arrow"):
            self.bytes_read += len(data)
        return data

    def read_into(self, descriptor: int, buffer: memoryview, position: int) -> int:
        data = self.read(descriptor, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def view(self, descriptor: int, length: int, position: int) -> Any:
        return self.read(descriptor, length, position)


@pytest.mark.exhaustive
def test_the_largest_timestamp_is_found_without_reading_all_once_the_record_with_it_is_deleted(tmp_path: Path) -> None:
    random, files = Random(5), CountingFiles()
    log = open_log(tmp_path, files=files, index_interval_bytes=1_000, segment_bytes=60_000)
    stamps = [random.randrange(1_000, 2_000) for _ in range(600)]
    stamps[10] = 9_999  # of a producer whose clock was wrong
    for stamp in stamps:
        append(log, simple_batch([b"x" * 1_000], timestamp=stamp))
    segment_bytes = (tmp_path / f"{0:020d}.arrow").stat().st_size
    assert len(log.sealed_base_offsets) > 8

    def largest(start: int, end: int) -> tuple[int, int]:
        return max((stamp, -offset) for offset, stamp in enumerate(stamps[start:end], start))

    for start in (11, 200, log.sealed_base_offsets[5], 590, 599):
        log.delete_records_before(start)
        stamp, offset = largest(start, 600)
        files.bytes_read = 0
        assert log.max_timestamp() == (stamp, -offset)
        assert files.bytes_read < 3 * segment_bytes


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(20))
def test_the_largest_timestamp_is_that_of_a_model(memory_path: Path, seed: int) -> None:
    random = Random(seed)
    log = open_log(memory_path, index_interval_bytes=200, segment_bytes=2_500)
    rows: list[int] = []
    for _ in range(40):
        stamps = [random.randrange(-1, 12) for _ in range(random.randrange(1, 5))]
        append(log, record_batch([(stamp, None, b"x" * 30, []) for stamp in stamps]))
        rows += stamps
        if random.random() < 0.2:
            log.delete_records_before(random.randrange(log.log_start_offset, len(rows) + 1))
        if random.random() < 0.1:
            for index in memory_path.glob("*.timeindex"):
                index.unlink()
            log = open_log(memory_path, index_interval_bytes=200, segment_bytes=2_500)
        left = [(stamp, -offset) for offset, stamp in enumerate(rows) if offset >= log.log_start_offset and stamp >= 0]
        found = log.max_timestamp()
        assert found == ((max(left)[0], -max(left)[1]) if left else None)
