"""Lines of JSON as `kafkalake produce` reads them: records, or an error that names the line, which `--on-error` may leave out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kafkalake.cli.bad_lines import SKIP, BadLines
from kafkalake.cli.input_fields import Fields
from kafkalake.cli.output import Failure
from kafkalake.cli.record_input import from_json_lines, from_record_lines
from kafkalake.config.value_schema import ValueType, parse_value_schema

Read = Callable[[int, BadLines], Iterator[pa.RecordBatch]]

HALF, DEEP = r'"\ud83d"', "[" * 100_000 + "]" * 100_000
ANY = Fields()
KEYED, VALUED, TIMED = Fields(key="at"), Fields(value="at"), Fields(timestamp="at")


def of_json(fields: Fields) -> Read:
    return lambda descriptor, bad: from_json_lines(descriptor, fields, bad, 1, lambda _: None)


def of_records(descriptor: int, bad: BadLines) -> Iterator[pa.RecordBatch]:
    return from_record_lines(descriptor, bad, 1, lambda _: None)


def read(path: Path, lines: list[str], reading: Read, bad: BadLines) -> list[dict[str, object]]:
    path.write_text("".join(line + "\n" for line in lines))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return [record for batch in reading(descriptor, bad) for record in batch.to_pylist()]
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("line", "reading", "said"),
    [
        (f'{{"at": {HALF}}}', of_json(KEYED), "has half of a surrogate pair"),
        (f'{{"at": {HALF}}}', of_json(VALUED), "has half of a surrogate pair"),
        (f'{{"at": [{HALF}]}}', of_json(VALUED), "has half of a surrogate pair"),
        (f'{{"at": {HALF}}}', of_json(Fields(typed_key="at")), "has half of a surrogate pair"),
        (f'{{"at": {HALF}}}', of_json(TIMED), "is no timestamp"),
        (f'{{"value": {HALF}}}', of_records, "has half of a surrogate pair"),
        (f'{{"value": "", "headers": {{{HALF}: "1"}}}}', of_records, "has half of a surrogate pair"),
        (f'{{"value": "", "headers": [{{"key": {HALF}}}]}}', of_records, "has half of a surrogate pair"),
        (f'{{"at": {2**63}}}', of_json(TIMED), f"'{2**63}' is no timestamp"),
        (f'{{"at": "{2**63}"}}', of_json(TIMED), f"'{2**63}' is no timestamp"),
        (f'{{"at": {-(2**63) - 1}}}', of_json(TIMED), "is no timestamp"),
        (f'{{"at": "{"9" * 5000}"}}', of_json(TIMED), "is no timestamp"),
        (f'{{"at": "{"9" * 17}d"}}', of_json(TIMED), "is no timestamp"),
        (f'{{"at": "{"9" * 5000}d"}}', of_json(TIMED), "is no timestamp"),
        (f'{{"value": "", "timestamp": {2**63}}}', of_records, f"'{2**63}' is no timestamp"),
        (DEEP, of_json(ANY), "is nested too deeply"),
        (f'{{"value": {DEEP}}}', of_records, "is nested too deeply"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_line_that_can_be_no_record_is_left_out_or_named(tmp_path: Path, line: str, reading: Read, said: str) -> None:
    good = json.dumps({"at": 1_000, "value": "", "timestamp": 1_000})
    left_out = BadLines(SKIP)
    assert len(read(tmp_path / "lines", [good, line, good], reading, left_out)) == 2
    assert left_out.count == 1
    assert left_out.first is not None
    assert left_out.first.startswith("line 2")
    assert said in left_out.first
    assert len(left_out.first) < 200, "of a long value the beginning"
    with pytest.raises(Failure, match=r"^line 2"):
        read(tmp_path / "lines", [good, line, good], reading, BadLines())


ROW = ValueType(
    "STRUCT",
    fields=parse_value_schema("user STRING, at STRUCT<id INT>, tags ARRAY<STRUCT<n INT>>, more MAP<STRING, INT>"),
)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"usr": "ann"}', "value.schema has no field usr; did you mean 'user'?"),
        ('{"user": "ann", "USER": "bob"}', "value.schema has no field USER; did you mean 'user'?"),
        ('{"user": "ann", "ms": 1}', "value.schema has no field ms; there are user, at, tags, more"),
        ('{"at": {"id": 1, "it": 2}}', "value.schema has no field at.it; there are id"),
        ('{"tags": [{"n": 1}, {"m": 2}]}', "value.schema has no field tags[].m; there are n"),
        ("[1]", "the value is no JSON object"),
        ("null", "the value is no JSON object"),
    ],
)
def test_a_line_with_a_field_that_the_topic_has_not_is_a_bad_line(tmp_path: Path, line: str, said: str) -> None:
    good = '{"user": 7, "at": 1, "tags": [2], "more": {"any": 1}}'
    bad = BadLines(SKIP)
    found = read(tmp_path / "lines", [good, line, "{}"], of_json(Fields(row=ROW)), bad)
    assert [record["value"] for record in found] == [good.encode(), b"{}"]
    assert (bad.count, bad.first) == (1, f"line 2: {said}")


@pytest.mark.parametrize(
    "fields", [Fields(row=ROW, key="id"), Fields(row=ROW, key="id.a"), Fields(row=ROW, timestamp="id")]
)
def test_a_field_that_holds_the_key_or_the_time_need_not_be_the_topics(tmp_path: Path, fields: Fields) -> None:
    line = '{"user": "ann", "id": %s}' % ("1" if fields.key != "id.a" else '{"a": 1}')
    assert len(read(tmp_path / "lines", [line], of_json(fields), BadLines())) == 1
    with pytest.raises(Failure, match="no field ID; there are user, at"):
        read(tmp_path / "lines", [line[:-1] + ', "ID": 1}'], of_json(fields), BadLines())


@pytest.mark.exhaustive
def test_a_value_as_deep_as_it_can_be_read_is_written_or_refused(tmp_path: Path) -> None:
    lines = [f'{{"at": {"[" * depth}{"]" * depth}}}' for depth in range(700, 1_100)]
    bad = BadLines(SKIP)
    found = read(tmp_path / "lines", lines, of_json(VALUED), bad)
    assert 0 < bad.count < len(lines)
    assert [record["value"] for record in found] == [line[7:-1].encode() for line in lines[: len(found)]]


def test_the_bounds_of_timestamps_are_kept(tmp_path: Path) -> None:
    times = [-(2**63), -1, 0, 2**63 - 1]
    path, lines = tmp_path / "lines", [json.dumps({"at": at}) for at in times]
    path.write_text("".join(line + "\n" for line in [*lines, json.dumps({"at": f"00{2**63 - 1}"})]))
    descriptor = os.open(path, os.O_RDONLY)
    (batch,) = of_json(TIMED)(descriptor, BadLines())
    os.close(descriptor)
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [*times, 2**63 - 1]
