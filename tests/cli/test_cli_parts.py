"""The command line's parts that are pure: times, sizes, widths, lines, printed records."""

from __future__ import annotations

import fcntl
import os
import resource
import sys
import tempfile
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from kafkalake.cli import lines, output
from kafkalake.cli.output import Failure, OutputClosed, UsageProblem, fit, size
from kafkalake.cli.record_input import with_headers
from kafkalake.cli.record_output import ConsumedRecords, TextProperties, text_formatter
from kafkalake.cli.times import duration_ms, parse_duration, parse_moment, parse_time
from kafkalake.record.schema import SCHEMA

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
NOW_MS = 1_795_248_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1732176000000", 1_732_176_000_000),
        ("2026-11-21T08:00:00Z", NOW_MS),
        ("2026-11-21T08:00:00", NOW_MS),
        ("2026-11-21 09:00:00+01:00", NOW_MS),
        ("2026-11-21", NOW_MS - 8 * 3_600_000),
        ("2026-11-21T08:00:00.123Z", NOW_MS + 123),
        ("15m", NOW_MS - 15 * 60_000),
        ("2d ago", NOW_MS - 2 * 86_400_000),
        ("500ms", NOW_MS - 500),
    ],
)
def test_times(text: str, expected: int) -> None:
    assert parse_time(text, "--time", now=NOW) == expected


@pytest.mark.parametrize("text", ["", "soon", "15 parsecs", "2026-13-01", "-5"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageProblem, match="--time takes a time"):
        parse_time(text, "--time", now=NOW)


def test_a_moment_may_be_in_the_future_and_is_no_duration() -> None:
    assert parse_moment("2099-01-01T00:00:00Z", "--deliver-at") == 4_070_908_800_000
    assert parse_moment("4070908800000", "--deliver-at") == 4_070_908_800_000
    for text in ("15m", "15m ago", "soon", ""):
        with pytest.raises(UsageProblem, match="--deliver-at takes a time as"):
            parse_moment(text, "--deliver-at")


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (999_999, "1.0 MB"),
        (4_321_000_000, "4.3 GB"),
        (10**16, "10,000.0 TB"),
    ],
)
def test_sizes(count: int, expected: str) -> None:
    assert size(count) == expected


@given(widths=st.lists(st.integers(0, 300), min_size=1, max_size=12), available=st.integers(1, 400))
def test_columns_fit_where_they_can_and_only_wide_ones_give_way(widths: list[int], available: int) -> None:
    fitted = fit(widths, available)
    assert all(new <= old for new, old in zip(fitted, widths, strict=True))
    assert all(new == old for new, old in zip(fitted, widths, strict=True) if old <= 8)
    if sum(widths) <= available:
        assert fitted == widths
    else:
        assert sum(fitted) <= available or max(fitted) <= 8
        narrowed = [new for new, old in zip(fitted, widths, strict=True) if new < old]
        assert len(set(narrowed)) <= 1


@settings(deadline=None)
@given(
    parts=st.lists(
        st.tuples(
            st.binary(max_size=12).filter(lambda part: not set(part) & set(b"\r\n")), st.sampled_from([b"\n", b"\r\n"])
        )
    ),
    last=st.sampled_from([b"", b"end"]),
    chunk=st.integers(1, 9),
)
def test_lines_are_whole_however_they_are_cut(parts: list[tuple[bytes, bytes]], last: bytes, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as file:
        patch.setattr(lines, "CHUNK_BYTES", chunk)
        content = b"".join(text + end for text, end in parts) + last
        file.write(content)
        file.seek(0)
        done: list[int] = []
        found = [line for some in lines.read_lines(file.fileno(), done.append) for line in some]
    assert found == [text for text, _ in parts] + ([last] if last else [])
    assert done[-1:] == ([len(content)] if content else [])


def test_what_a_pipe_holds_is_read_without_waiting_for_more() -> None:
    low, ours = os.pipe()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4_096)), hard))
    theirs = fcntl.fcntl(low, fcntl.F_DUPFD, 1_100)
    os.close(low)
    try:
        reader = lines.read_lines(theirs)
        os.write(ours, b"one\ntwo\nthr")
        assert next(reader) == [b"one", b"two"]
        assert lines.is_waiting(theirs)
        os.write(ours, b"ee\n")
        assert next(reader) == [b"three"]
        os.close(ours)
        assert list(reader) == []
    finally:
        os.close(theirs)


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE_BYTES", 100)
    monkeypatch.setattr(lines, "CHUNK_BYTES", 64)
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 200)
        file.seek(0)
        with pytest.raises(Failure, match="a line has more than"):
            list(lines.read_lines(file.fileno()))


def fetched() -> ConsumedRecords:
    rows = [
        {"offset": 7, "timestamp": 5, "key": b"k", "value": None, "headers": [{"key": "a", "value": None}]},
        {"offset": 9, "timestamp": -1, "key": None, "value": b"\xff", "headers": []},
    ]
    return ConsumedRecords(3, pa.RecordBatch.from_pylist(rows, schema=SCHEMA), "LogAppendTime")


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ([], b"null\n\xff\n"),
        (["print.key=true"], b"k\tnull\nnull\t\xff\n"),
        (["print.key=true", "print.value=false", "null.literal=-"], b"k\n-\n"),
        (
            ["print.offset=true", "print.partition=true", "key.separator= "],
            b"Partition:3 Offset:7 null\nPartition:3 Offset:9 \xff\n",
        ),
        (["print.timestamp=TRUE"], b"LogAppendTime:5\tnull\nNO_TIMESTAMP\t\xff\n"),
        (["print.headers=true", "line.separator=;"], b"a:null\tnull;NO_HEADERS\t\xff;"),
        (["print.value=false"], b""),
    ],
)
def test_printed_parts(properties: list[str], expected: bytes) -> None:
    shown = TextProperties()
    for entry in properties:
        shown = shown.with_property(entry)
    assert text_formatter(shown)(fetched()) == expected


@pytest.mark.parametrize("entry", ["print.keys=true", "print.key", "print.key=yes", "=true"])
def test_properties_that_are_none(entry: str) -> None:
    with pytest.raises(UsageProblem, match="--property"):
        TextProperties().with_property(entry)


@pytest.mark.parametrize(
    ("text", "back_ms"),
    [("PT1H30M", 5_400_000), ("P2D", 172_800_000), ("P1DT0.5S", 86_400_500), ("pt10m", 600_000), ("15m", 900_000)],
)
def test_durations(text: str, back_ms: int) -> None:
    now = datetime(2026, 11, 21, tzinfo=UTC)
    assert parse_duration(text, "--by-duration", now=now) == now.timestamp() * 1000 - back_ms


def test_a_duration_from_now_on_is_not_ago() -> None:
    assert duration_ms(" 90 s", "--delay") == duration_ms("PT1M30S", "--delay") == 90_000
    with pytest.raises(UsageProblem, match="--delay takes a duration as PT1H30M, P2D or 15m, not '15m ago'"):
        duration_ms("15m ago", "--delay")


@pytest.mark.parametrize("text", ["", "P", "PT", "1700000000000", "2026-01-01", "P1Y", "PT1X", "P99999999D"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageProblem, match="--by-duration"):
        parse_duration(text, "--by-duration")


def test_headers_of_the_command_line_follow_those_of_the_records() -> None:
    plain = pa.RecordBatch.from_pydict({"value": pa.array([b"a", b"b"])})
    first = with_headers(plain, [("x", b"1")])
    assert first.column("headers").to_pylist() == [[{"key": "x", "value": b"1"}]] * 2
    second = with_headers(first, [("x", b"2"), ("y", b"")])
    added = [{"key": "x", "value": b"2"}, {"key": "y", "value": b""}]
    assert second.column("headers").to_pylist() == [[{"key": "x", "value": b"1"}, *added]] * 2
    assert second.schema.field("headers").type == SCHEMA.field("headers").type


def test_a_table_that_is_too_wide_leaves_empty_columns_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "console", lambda: Console(width=44, file=sys.stdout))
    rows = [("a" * 20, "-", "", "x" * 15), ("b", "-", "", "y")]
    output.table(None, ["one", "no value at all", "empty as well", "two"], rows)
    shown = capsys.readouterr().out
    assert "a" * 20 in shown
    assert "x" * 15 in shown
    assert "no value" not in shown
    output.table(None, ["one", "-"], [("short", "-")])
    assert "-" in capsys.readouterr().out


def test_a_table_that_nobody_takes_ends_as_other_output_does(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for target, error in (("/dev/full", Failure), (writer, OutputClosed)):
        with open(target, "w") as stdout, monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", stdout)
            with pytest.raises(error, match="standard output: No space left on device" if error is Failure else None):
                output.table(None, ["a"], [["1"]])
