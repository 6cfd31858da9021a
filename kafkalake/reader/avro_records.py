"""Converts rows of a typed topic to records whose values are Avro, the inverse of `avro_values`.

A row that the schema does not let be is refused, as no value would say the same: a null where it has none, a text that is none
of an enum's symbols, bytes that have not the size of a fixed.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.config.avro_schema import (
    ARRAY,
    BYTES,
    ENUM,
    FIXED,
    MAP,
    RECORD,
    TIMESTAMP_MILLIS,
    AvroType,
    parse_avro_schema,
)
from kafkalake.config.topic_values import AvroFormat
from kafkalake.errors import InvalidRecordError
from kafkalake.reader.avro_encoding import not_null, writer_of
from kafkalake.reader.avro_values import HEADER
from kafkalake.reader.json_texts import key_texts


def avro_records(rows: pa.RecordBatch, format: AvroFormat, key: str | None) -> pa.RecordBatch:
    """Return the records (binary `key` and `value`) of rows of a typed topic: keys as `json_texts.typed_records` has them.

    Fields that the rows have not are null. Raise `InvalidRecordError` for a row that the schema does not take.
    """
    record = parse_avro_schema(format.schema)
    write = writer_of(record)
    header = header_of(format)
    absent = pa.nulls(rows.num_rows)
    names = [field.name for field in record.fields]
    columns = [
        _encodable(rows.column(field.name) if field.name in rows.schema.names else absent, field.type, field.name)
        for field in record.fields
    ]
    values = []
    for row in zip(*columns, strict=True):
        out = bytearray(header)
        write(out, dict(zip(names, row, strict=True)))
        values.append(bytes(out))
    keys = key_texts(rows.column(key)) if key in rows.schema.names else pa.nulls(rows.num_rows, pa.string())
    return pa.RecordBatch.from_arrays([keys.cast(pa.binary()), pa.array(values, pa.binary())], names=["key", "value"])


def header_of(format: AvroFormat) -> bytes:
    """Return the header of values that are written."""
    return b"" if format.schema_id is None else HEADER.pack(0, format.schema_id)


def _encodable(column: pa.Array, kind: AvroType, where: str) -> list[object]:
    """Return what `avro_encoding` writes. where: the column, for an error."""
    if column.null_count:
        if not kind.is_nullable:
            raise InvalidRecordError(f"column {where} is null in a row, which the Avro schema does not let it be")
        if column.null_count == len(column):
            return [None] * len(column)
        found = iter(_encodable(column.drop_null(), kind, where))
        return [next(found) if is_there else None for is_there in column.is_valid().to_pylist()]
    kind = not_null(kind)
    if kind.kind == RECORD:
        names = [field.name for field in kind.fields]
        parts = [
            _encodable(part, field.type, f"{where}.{field.name}")
            for part, field in zip(column.flatten(), kind.fields, strict=True)
        ]
        return [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
    if kind.kind in (ARRAY, MAP):
        assert kind.element is not None
        inner = column.flatten() if kind.kind == ARRAY else column.items
        if kind.kind == MAP:
            offsets = column.offsets
            first, end = offsets[0].as_py(), offsets[-1].as_py()
            items = _encodable(inner.slice(first, end - first), kind.element, f"{where}[]")
            keys = column.keys.slice(first, end - first).cast(pa.binary()).to_pylist()
            items = list(zip(keys, items, strict=True))
            lengths = pc.subtract(offsets.slice(1), offsets.slice(0, len(column))).to_pylist()
        else:
            items = _encodable(inner, kind.element, f"{where}[]")
            lengths = column.value_lengths().to_pylist()
        rest = iter(items)
        return [[next(rest) for _ in range(length)] for length in lengths]
    return _scalars(column, kind, where)


def _scalars(column: pa.Array, kind: AvroType, where: str) -> list[Any]:
    if kind.logical == "decimal":
        assert kind.column is not None
        return [decimal_bytes(each, kind, where) for each in column.to_pylist()]
    if kind.kind == ENUM:
        numbers = {symbol: number for number, symbol in enumerate(kind.symbols)}
        texts = column.to_pylist()
        wrong = next((text for text in texts if text not in numbers), None)
        if wrong is not None:
            raise InvalidRecordError(f"column {where} is {wrong!r} in a row, and in Avro one of {', '.join(numbers)}")
        return [numbers[text] for text in texts]
    if kind.kind in (BYTES, "string", FIXED):
        found: list[bytes] = column.cast(pa.binary()).to_pylist()
        if kind.kind == FIXED and any(len(each) != kind.size for each in found):
            raise InvalidRecordError(f"column {where} has not {kind.size} bytes in a row, as the Avro schema wants")
        return found
    if pa.types.is_timestamp(column.type):
        numbers_of = column.cast(pa.timestamp("us", tz=column.type.tz)).view(pa.int64()).to_pylist()
        return [each // 1000 for each in numbers_of] if kind.logical in TIMESTAMP_MILLIS else numbers_of
    if pa.types.is_date(column.type):
        column = column.view(pa.int32())
    numbers_found: list[Any] = column.to_pylist()
    return numbers_found


def decimal_bytes(number: Any, kind: AvroType, where: str) -> bytes:
    """Return the unscaled number, big-endian, in as few bytes as it needs or in those of a fixed."""
    assert kind.column is not None
    unscaled = int(number.scaleb(kind.column.scale))
    size = kind.size or (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    try:
        return unscaled.to_bytes(size, "big", signed=True)
    except OverflowError:
        raise InvalidRecordError(f"column {where} is {number} in a row, more than {size} bytes of Avro") from None
