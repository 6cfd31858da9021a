"""The layout of a segment in Java's reader and writer: each number is the one that `record.layout` and `record.schema` have."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import kafkalake.spark
from kafkalake.client import record_sizes
from kafkalake.record import layout as at
from kafkalake.record.schema import PREAMBLE
from kafkalake.spark.sink.write_target import BATCH_OVERHEAD_BYTES
from kafkalake.storage.index import ENTRY_BYTES
from kafkalake.storage.lost_records import LOST_SEGMENT_BYTES
from kafkalake.storage.state import SLOT_BYTES
from kafkalake.storage.txn_index import ENTRY_BYTES as ABORTED_BYTES

JAVA = Path(kafkalake.spark.__file__).parent / "jvm" / "io" / "kafkalake" / "spark"
FIELDS = at.BATCH_HEADER.fields or {}
FIRST_CODEC = 4 * at.COLUMNS

CONSTANTS: dict[str, dict[str, object]] = {
    "SegmentMessage": {
        **{name: number for number, name in enumerate(("OFFSET", "TIMESTAMP", "KEY", "VALUE", "HEADERS"))},
        "FIRST_HEADER": at.FIRST_HEADER,
        "COLUMNS": at.COLUMNS,
        "BUFFERS": at.BUFFERS,
        "NODE_COUNT": at.NODES,
        "FIRST_BUFFER": at.COLUMN_FIRST_BUFFER.tolist(),
        "METADATA_LENGTH": at.METADATA_LENGTH,
        "BODY_LENGTH": at.BODY_LENGTH,
        "ROWS": at.MESSAGE_ROWS,
        "NODES": at.NODE_START,
        "BUFFER_TABLE": at.BUFFER_START,
        "VALUE_LENGTH": at.VALUE_LENGTH,
        "CHECKSUM": at.VALUE,
        "TABLE": at.TABLE,
        "TABLE_BYTES": at.TABLE_FIXED_BYTES,
        "HEADER_BYTES": at.BATCH_HEADER_BYTES,
        "HEADER_CHARACTERS": at.HEADER_CHARACTERS,
        "BATCHES_MAX": at.MAXIMUM_BATCHES,
        "NO_COLUMN": -1,
        "NO_CODEC": at.NO_CODEC,
        "ZSTD": at.ZSTD,
        "RAW": -1,
        "LOG_APPEND_TIME": at.ATTRIBUTE_LOG_APPEND_TIME,
        "TRANSACTIONAL": at.ATTRIBUTE_TRANSACTIONAL,
        "LOST_RECORDS": at.LOST_RECORDS,
    },
    "SegmentFile": {"PREAMBLE_BYTES": len(PREAMBLE), "INDEX_ENTRY_BYTES": ENTRY_BYTES},
    "StagedBatch": {"OVERHEAD_BYTES": BATCH_OVERHEAD_BYTES, "HEADER_FIELDS": 2},
    "RowRecord": {
        "RECORD_OVERHEAD_BYTES": record_sizes.RECORD_OVERHEAD_BYTES,
        "HEADER_OVERHEAD_BYTES": record_sizes.HEADER_OVERHEAD_BYTES,
        "HEADER_FIELDS": 2,
        "MICROSECONDS": 1000,
    },
    "PartitionState": {"SLOT_BYTES": SLOT_BYTES, "PREFIX_BYTES": 8, "MAGIC": int.from_bytes(b"KLST", "little")},
    "TailSegments": {"ABORTED_BYTES": ABORTED_BYTES, "LOST_SEGMENT_BYTES": LOST_SEGMENT_BYTES},
}
OF_NO_FILE = {"CHUNK_BYTES", "STEP_BYTES", "FIRST_CHUNK_BYTES", "PREFIX_CHUNK_BYTES", "FIRST_ROWS", "ATTEMPTS"}

USES: dict[str, dict[str, list[object]]] = {
    "SegmentMessage": {
        r"getInt\(last \+ (\d+)\)": [FIELDS["last_offset_delta"][1]],
        r"getInt\(header\(batch\) \+ (\d+)\)": [FIELDS["records"][1]],
        r"getLong\(header\(batch\) \+ (\d+)\)": [FIELDS["producer_id"][1]],
        r"getShort\(header\(0\) \+ (\d+)\) == LOST_RECORDS": [FIELDS["control_type"][1]],
        r"getShort\(header\(batch\) \+ (\d+)\)": [FIELDS["attributes"][1]],
        r"codec = table.getShort\((\d+)\)": [FIRST_CODEC],
        r"table.getInt\((\d+)\) != batches": [FIRST_CODEC + 2],
        r"getInt\(start \+ VALUE_LENGTH\) - (\d+)": [at.FIRST_HEADER - at.VALUE],
    },
    "MessageColumn": {
        r"SegmentMessage.OFFSET, (\d+)\)": [at.OFFSET_DATA],
        r"SegmentMessage.TIMESTAMP, (\d+)\)": [at.TIMESTAMP_DATA],
        r"bufferData\((\d+)\)": [at.HEADERS_OFFSETS],
        r"bufferStart\((\d+)\)": [at.HEADERS_OFFSETS],
        r"SegmentMessage.HEADERS, \d+, (\d+)\)": [at.HEADER_KEY_OFFSETS - 1, at.HEADER_VALUE_VALIDITY],
    },
    "SegmentReader": {
        r"SegmentMessage.KEY, (\d+)\)": [at.KEY_VALIDITY],
        r"SegmentMessage.VALUE, (\d+)\)": [at.VALUE_VALIDITY],
    },
}
"""Class -> a pattern of Java and the numbers that it finds."""

_CONSTANT = re.compile(r"static final int(?:\[\])? (\w+) = ([^;]+);")


def constants(source: str) -> dict[str, object]:
    """Return the values of all whole numbers that a class names. A value may be made of the ones before it."""
    found: dict[str, object] = {}
    for name, value in _CONSTANT.findall(source):
        for known, number in found.items():
            value = re.sub(rf"\b{known}\b", str(number), value)
        left, shift, right = value.partition("<<")
        number = ast.literal_eval(left.strip().replace("{", "[").replace("}", "]"))
        found[name] = number << int(right) if shift else number
    return found


def java(name: str) -> str:
    return (JAVA / f"{name}.java").read_text()


@pytest.mark.parametrize("name", CONSTANTS)
def test_every_constant_is_the_one_of_the_format(name: str) -> None:
    found = constants(java(name))
    assert {each: value for each, value in found.items() if each not in OF_NO_FILE} == CONSTANTS[name]


@pytest.mark.parametrize("name", USES)
def test_every_number_is_the_one_of_the_format(name: str) -> None:
    assert {pattern: re.findall(pattern, java(name)) for pattern in USES[name]} == {
        pattern: [str(number) for number in numbers] for pattern, numbers in USES[name].items()
    }


def test_another_number_is_found() -> None:
    wrong = java("SegmentMessage").replace("TABLE = 608", "TABLE = 616").replace("{0, 2, 4", "{0, 2, 5")
    found = constants(wrong)
    assert {name for name, value in found.items() if value != CONSTANTS["SegmentMessage"][name]} == {
        "TABLE",
        "FIRST_BUFFER",
    }
