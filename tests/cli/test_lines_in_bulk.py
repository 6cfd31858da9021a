"""Lines become values, and values lines, without an object for each: the same bytes as one by one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from kafkalake.cli import lines
from kafkalake.cli.bad_lines import BadLines
from kafkalake.cli.record_input import from_lines
from kafkalake.cli.record_output import ConsumedRecords, TextProperties, text_formatter

pytestmark = pytest.mark.unit
CASES = 400


def expected(data: bytes, null: bytes | None, from_line: int) -> list[bytes | None]:
    """The lines of a file, one by one."""
    found = data.replace(b"\r\n", b"\n").split(b"\n")
    rest = found.pop()
    found += [rest.removesuffix(b"\r")] if rest else []
    return [None if line == null else line for line in found[from_line - 1 :]]


@pytest.mark.exhaustive
def test_lines_are_the_same_wherever_a_read_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(3)
    path = tmp_path / "lines"
    for _ in range(CASES):
        data = bytes(random.choices(b"ab\n\r\nNU ", k=random.randint(0, 60)))
        null, from_line = random.choice([None, "NU", "", "a"]), random.choice([1, 1, 2, 5, 100])
        monkeypatch.setattr(lines, "CHUNK_BYTES", random.choice([1, 2, 3, 7, 100]))
        path.write_bytes(data)
        descriptor = os.open(path, os.O_RDONLY)
        found: list[bytes | None] = []
        with BadLines() as bad:
            for batch in from_lines(descriptor, None, null, bad, from_line, lambda _: None):
                batch.validate(full=True)
                assert batch.column("key").null_count == len(batch) > 0
                found += batch.column("value").to_pylist()
        os.close(descriptor)
        assert found == expected(data, None if null is None else null.encode(), from_line), (data, null, from_line)


def printed(values: pa.Array, end: str) -> bytes:
    records = pa.RecordBatch.from_arrays([values], names=["value"])
    return text_formatter(TextProperties(line_separator=end))(ConsumedRecords(0, records, "CreateTime"))


@pytest.mark.exhaustive
def test_values_are_printed_as_one_by_one() -> None:
    random = Random(5)
    for _ in range(CASES):
        each = [None, b"", b"x", random.randbytes(5)]
        values: Sequence[bytes | None] = random.choices(each, k=random.randint(0, 20))
        first, count = random.randint(0, len(values)), random.randint(0, 20)
        for end in ("\n", "", "||"):
            found = printed(pa.array(values, pa.binary()).slice(first, count), end)
            shown = values[first : first + count]
            assert found == b"".join((b"null" if value is None else value) + end.encode() for value in shown)
