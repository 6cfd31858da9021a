"""CSV files as `kafkalake produce` reads them: what Python's csv module reads, or an error that names the line."""

from __future__ import annotations

import csv
import io
import json
import random
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafkalake.cli import record_input
from kafkalake.cli.bad_lines import SKIP, BadLines
from kafkalake.cli.csv_input import CsvFile
from kafkalake.cli.input_fields import Fields
from kafkalake.cli.output import Failure, UsageProblem
from kafkalake.cli.record_input import from_csv, from_parquet
from kafkalake.config.topic_values import topic_values
from kafkalake.config.value_schema import ValueType
from kafkalake.reader.avro_of_json import AvroOfJson

Rows = list[dict[str, str | None]]


def read(path: Path, *, delimiter: str | None = None, bad: BadLines | None = None, from_line: int = 1) -> Rows:
    with CsvFile(path, delimiter) as file:
        batches = list(file.batches(3, bad or BadLines(), from_line, lambda _: None))
        rows: Rows = pa.Table.from_batches(batches).to_pylist() if batches else []
        return rows


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.csv"


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,2\n", [{"a": "1", "b": "2"}]),
        ("a;b\n1;2,5\n", [{"a": "1", "b": "2,5"}]),
        ("a\tb\r\n1\t\r\n", [{"a": "1", "b": None}]),
        ("\ufeffa|b\n1|2", [{"a": "1", "b": "2"}]),
        ('a,"b;c;d"\n1,"x\ny"\n', [{"a": "1", "b;c;d": "x\ny"}]),
        ("name\nann\n\nbob\n", [{"name": "ann"}, {"name": "bob"}]),
        ("a,b\n", []),
    ],
)
def test_the_head_tells_the_delimiter(file: Path, text: str, rows: Rows) -> None:
    file.write_bytes(text.encode())
    assert read(file) == rows


@pytest.mark.parametrize(
    ("text", "delimiter", "said"),
    [
        ("a,b\n1,2\n3\n", None, "line 3 has 1 column, the head has 2"),
        ('a,b\n"1\n1",2\n3\n', None, "line 4 has 1 column, the head has 2"),
        ("name\nann\nLee, Bob\n", None, "line 3 has 2 columns, the head has 1"),
        ("a,b;c\n1,2;3\n", None, "the head may be cut at a comma or a semicolon"),
        ('"a,b"\n1\n', None, "the head is one column, 'a,b'"),
        ("a,b\n1,2\n", "|", "line 2 has"),
        ('a,b\n1,"2\n3,4\n', None, "line 2 is no CSV"),
        ('a,b\n1,"2"x\n3,4\n', None, "line 2 is no CSV"),
        ("a,b,a\n1,2,3\n", None, "column 'a' stands twice in the head"),
        ("a,,b\n1,2,3\n", None, "column 2 of the head has no name"),
        ("", None, "is no head"),
        ("\na,b\n", None, "is no head"),
    ],
)
def test_what_cannot_be_read_is_named(file: Path, text: str, delimiter: str | None, said: str) -> None:
    file.write_text(text)
    if delimiter == "|":
        assert read(file, delimiter="|") == [{"a,b": "1,2"}]  # what is asked for is done
        return
    with pytest.raises(Failure, match=said):
        read(file, delimiter=delimiter)


def test_bytes_that_are_no_text_are_named(file: Path) -> None:
    file.write_bytes(b"a,b\n1,2\n3,\xff\n")
    with pytest.raises(Failure, match="is not UTF-8"):
        read(file)
    file.write_bytes(b"a,\xff\n1,2\n")
    with pytest.raises(Failure, match="line 1 is not UTF-8"):
        read(file)


@pytest.mark.parametrize("delimiter", ["", ",,", '"', "\n"])
def test_a_delimiter_is_one_character(file: Path, delimiter: str) -> None:
    file.write_text("a,b\n")
    with pytest.raises(UsageProblem, match="one character"):
        read(file, delimiter=delimiter)


def test_rows_that_are_left_out_are_counted_and_kept_as_they_are(file: Path, tmp_path: Path) -> None:
    file.write_text('a,b\n1,2\n3\n4,"5"x\n"6\n6",7,8\n9,10\n')
    kept = tmp_path / "bad.csv"
    with BadLines(str(kept)) as bad:
        assert read(file, bad=bad) == [{"a": "1", "b": "2"}, {"a": "9", "b": "10"}]
        assert (bad.count, bad.first) == (3, "line 3 has 1 column, the head has 2")
    assert kept.read_text() == '3\n4,"5"x\n"6\n6",7,8\n'
    assert len(read(file, bad=BadLines(SKIP))) == 2


def test_reading_goes_on_at_a_line(file: Path) -> None:
    file.write_text("a,b\n" + "".join(f"{n},x\n" for n in range(2, 12)))
    assert [row["a"] for row in read(file, from_line=8)] == ["8", "9", "10", "11"]


def test_rows_before_the_line_that_are_no_csv_are_passed_over_as_all_others(file: Path) -> None:
    file.write_text('a,b\n1,"2"x\n3\n4,5\n')
    bad = BadLines()
    assert read(file, bad=bad, from_line=4) == [{"a": "4", "b": "5"}]
    with pytest.raises(Failure, match="line 2 is no CSV"):
        read(file, from_line=2)


def times(path: Path, bad: BadLines, from_line: int = 1) -> list[int]:
    """The timestamps of the rows that are read, by the column `at`."""
    found: list[int] = []
    for batch in from_csv(path, Fields(timestamp="at"), None, bad, from_line, lambda _: None):
        found += batch.column("timestamp").cast(pa.int64()).to_pylist()
    return found


@pytest.mark.exhaustive
def test_a_row_whose_time_is_none_is_an_invalid_row(file: Path, tmp_path: Path) -> None:
    """Among rows that are invalid for other reasons, in the order of the file."""
    file.write_text("at,b\n1000,x\nsoon,y\n3\n1970-01-01 00:00:04,x\ninfinity,z\n1970/01/01 00:00:05,x\n-6,x\n")
    kept = tmp_path / "bad.csv"
    with BadLines(str(kept)) as bad:
        assert times(file, bad) == [1_000, 4_000, 5_000, -6]
        assert (bad.count, bad.first) == (3, "line 3: 'soon' is no timestamp")
    assert kept.read_text() == "soon,y\n3\ninfinity,z\n"
    assert len(times(file, BadLines(SKIP))) == 4


def test_an_error_quotes_the_beginning_of_a_long_text_alone(file: Path) -> None:
    file.write_text("at,b\n" + "x" * 1_000_000 + ",y\n")
    with pytest.raises(Failure, match="is no timestamp") as refused:
        times(file, BadLines())
    assert len(str(refused.value)) < 200


@pytest.mark.exhaustive
def test_reading_stops_at_a_row_whose_time_is_none_and_goes_on_there(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("at,b\n1000,x\nsoon,y\n3\n4000,x\n")
    for size in (1, 2, 3, 100):
        monkeypatch.setattr(record_input, "ROWS_PER_BATCH", size)
        bad, found = BadLines(), list[int]()
        batches = from_csv(file, Fields(timestamp="at"), None, bad, 1, lambda _: None)
        with pytest.raises(Failure, match="line 3: 'soon' is no timestamp"):
            for batch in batches:
                found += batch.column("timestamp").cast(pa.int64()).to_pylist()
        assert (found, bad.stopped_at) == ([1_000], 3)
        assert times(file, BadLines(SKIP), from_line=3) == [4_000]


@pytest.mark.exhaustive
def test_a_row_that_the_topics_schema_does_not_take_is_an_invalid_row(file: Path, tmp_path: Path) -> None:
    parts = [{"name": "name", "type": "string"}, {"name": "ms", "type": "int"}]
    schema = json.dumps({"type": "record", "name": "row", "fields": parts})
    topic = topic_values({"value.format": "avro", "value.schema": schema})
    assert topic.avro is not None
    row = ValueType("STRUCT", fields=topic.fields)
    fields = Fields(row=row, encoder=AvroOfJson(topic.avro, row))
    file.write_text("name,ms\nann,1\nbob,soon\ncarl,3\n")
    kept = tmp_path / "bad.csv"
    with BadLines(str(kept)) as bad:
        assert sum(map(len, from_csv(file, fields, None, bad, 1, lambda _: None))) == 2
        assert bad.count == 1
        assert str(bad.first).startswith("line 3: field ms")
    assert kept.read_text() == "bob,soon\n"
    stopping, found = BadLines(), list[int]()
    with pytest.raises(Failure, match="line 3: "):
        for batch in from_csv(file, fields, None, stopping, 1, lambda _: None):
            found.append(len(batch))
    assert (found, stopping.stopped_at) == ([1], 3)


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_file_with_a_column_that_the_topic_has_not_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows.{suffix}"
    if suffix == "csv":
        path.write_text("user,at\nann,1000\n")
    else:
        pq.write_table(pa.table({"user": ["ann"], "at": ["1000"]}), path)

    def read_as(fields: Fields) -> int:
        if suffix == "csv":
            return sum(map(len, from_csv(path, fields, None, BadLines(SKIP), 1, lambda _: None)))
        return sum(map(len, from_parquet(path, fields, lambda _: None)))

    row = ValueType("STRUCT", fields=topic_values({"value.schema": "users STRING"}).fields)
    with pytest.raises(Failure, match=rf"rows.{suffix}: value.schema has no field user; did you mean 'users'\?"):
        read_as(Fields(row=row))
    row = ValueType("STRUCT", fields=topic_values({"value.schema": "user STRING, ms BIGINT"}).fields)
    with pytest.raises(Failure, match="no field at; there are user, ms"):
        read_as(Fields(row=row))
    assert read_as(Fields(row=row, timestamp="at")) == 1


def test_a_row_without_a_time_is_of_now(file: Path) -> None:
    file.write_text("at,b\n,x\n")
    before = time.time_ns() // 1_000_000
    (found,) = times(file, BadLines())
    assert before <= found <= time.time_ns() // 1_000_000


@pytest.mark.exhaustive
def test_any_file_is_read_as_the_csv_module_reads_it_or_refused(file: Path) -> None:
    """Ragged, quoted, with and without a byte order mark, CRLF, one column, other delimiters."""
    choice = random.Random(7)
    refused = equal = 0
    for _ in range(1_500):
        delimiter, end = choice.choice(",;\t|"), choice.choice(["\n", "\r\n"])
        columns = choice.randint(1, 4)
        lines = []
        for number in range(choice.randint(1, 7)):
            count = columns if choice.random() < 0.93 else choice.randint(1, 5)
            cells = [
                choice.choice(["1", "x y", "a,b", "c;d", 'say "x"', "", "line\nfeed", "ä", "\t"]) for _ in range(count)
            ]
            if number == 0:
                cells = [f"c{index}" if choice.random() < 0.95 else "x y" for index in range(count)]
            text = io.StringIO()
            csv.writer(text, delimiter=delimiter, lineterminator=end).writerow(cells)
            lines.append(text.getvalue() if choice.random() < 0.97 else text.getvalue().replace('"', "", 1))
        data = "".join(lines)
        if choice.random() < 0.2:
            data = "\ufeff" + data
        file.write_bytes(data.encode())
        try:
            with CsvFile(file, None) as opened:
                chosen = opened.delimiter
            rows = read(file)
        except Failure as failure:
            assert any(word in str(failure) for word in ("line ", "head")), failure
            refused += 1
            continue
        with open(file, encoding="utf-8-sig", newline="") as source:
            wanted = [row for row in csv.reader(source, delimiter=chosen, strict=True) if row]
        assert chosen == delimiter or len(wanted[0]) == 1
        assert [tuple(row) for row in rows] == [tuple(wanted[0])] * len(rows)
        assert [[cell or "" for cell in row.values()] for row in rows] == wanted[1:]
        equal += 1
    assert equal > 300
    assert refused > 100


@pytest.mark.exhaustive
def test_each_row_is_encoded_once(file: Path) -> None:
    schema = json.dumps({"type": "record", "name": "row", "fields": [{"name": "_name", "type": "string"}]})
    topic = topic_values({"value.format": "avro", "value.schema": schema})
    assert topic.avro is not None
    encoded: list[bytes] = []

    class Counting(AvroOfJson):
        def encode(self, value: bytes) -> bytes:
            encoded.append(value)
            return super().encode(value)

    row = ValueType("STRUCT", fields=topic.fields)
    fields = Fields(row=row, encoder=Counting(topic.avro, row))
    names = [f"n{number}" for number in range(5_000)]
    file.write_text("_name\n" + "".join(name + "\n" for name in names))
    batches = list(from_csv(file, fields, None, BadLines(), 1, lambda _: None))
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert [value[-len(name) :].decode() for value, name in zip(values, names, strict=True)] == names
    assert len(encoded) == len(names)


@pytest.mark.exhaustive
def test_an_error_about_a_value_of_parquet_quotes_its_beginning_only(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"at": ["soon" * 1_000_000]}), file)
    with pytest.raises(Failure, match='invalid timestamp field format: "soonsoon') as error:
        list(from_parquet(file, Fields(timestamp="at"), lambda _: None))
    assert len(str(error.value)) < 500
