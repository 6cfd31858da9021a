"""Converts values in Avro to typed columns; `avro_records` is the inverse.

A value that is no record of the topic's schema yields nulls: one that ends too early, or goes on behind its last field. A field
that does not fit its column yields null and the other fields are kept: a number that is too large, a string that is no UTF-8, a
decimal with too many digits, an enum without the symbol. In Spark the jar reads fields, with these same results
(`spark/jvm/io/kafkalake/spark/AvroFields.java`; compared in `tests/spark/test_spark_avro_fields.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from kafkalake.config.avro_schema import (
    ARRAY,
    ENUM,
    MAP,
    RECORD,
    TIMESTAMP_MILLIS,
    AvroType,
    parse_avro_schema,
)
from kafkalake.config.topic_values import AvroFormat
from kafkalake.config.value_schema import DECIMAL_PRECISION_MAX
from kafkalake.reader.avro_encoding import BROKEN, Read, Skip, not_null, reader_of, skipper_of
from kafkalake.reader.columns import Projection

HEADER = struct.Struct(">bI")
"""Confluent's: a zero byte and the id of a schema."""
_EXACT = Context(prec=DECIMAL_PRECISION_MAX)
_UNFIT = (pa.ArrowException, ValueError, TypeError, ArithmeticError)
"""The errors of values that do not fit a type of Arrow."""

Convert = Callable[[Any], Any]
"""What makes the value of a column of what was read, which is not None."""


@dataclass(frozen=True)
class AvroColumns:
    """The fields of Avro values in a projection. positions: column index by field index."""

    positions: tuple[int, ...]
    fields: pa.Schema
    format: AvroFormat

    @staticmethod
    def of(projection: Projection, format: AvroFormat) -> AvroColumns | None:
        """Return the fields of a projection, or None if there are none."""
        names = projection.fields
        if not names:
            return None
        schema = projection.schema
        fields = pa.schema([pa.field(name, schema.field(column).type) for column, name in names.items()])
        return AvroColumns(tuple(schema.get_field_index(column) for column in names), fields, format)

    def filled(self, arrays: Sequence[Any], values: pa.Array) -> list[Any]:
        """Return `arrays` with the fields of `values` (binary) filled in."""
        filled = list(arrays)
        for position, column in zip(self.positions, parse_avro(values, self.fields, self.format), strict=True):
            filled[position] = column
        return filled


def parse_avro(values: pa.Array, fields: pa.Schema, format: AvroFormat) -> list[pa.Array]:
    """Return one array per field, as long as `values` (binary), with null if the value or the field does not fit."""
    return parse_records(values, fields, format)[0]


def parse_records(values: pa.Array, fields: pa.Schema, format: AvroFormat) -> tuple[list[pa.Array], pa.BooleanArray]:
    """Return what `parse_avro` returns, and which of the values are records."""
    record = parse_avro_schema(format.schema)
    reader = _RecordReader(record, fields.names, 0 if format.schema_id is None else HEADER.size)
    records = list(map(reader.read, values.to_pylist()))
    types = {field.name: field.type for field in record.fields}
    columns = []
    for field in fields:
        number = reader.names.index(field.name)
        found = [None if each is None or len(each) <= number else each[number] for each in records]
        columns.append(_column(found, types[field.name], field.type))
    return columns, pa.array([each is not None for each in records], pa.bool_())


class _RecordReader:
    """Reads some fields of records of one schema, `names` in its order, and passes over the others.

    Records written before the last fields were added, whose default is null, lack these.
    """

    def __init__(self, record: AvroType, wanted: Collection[str], header_bytes: int) -> None:
        self._header_bytes = header_bytes
        self.names = [field.name for field in record.fields if field.name in wanted]
        self._steps: list[tuple[Read | None, Skip | None]] = [
            (reader_of(field.type), None) if field.name in wanted else (None, skipper_of(field.type))
            for field in record.fields
        ]
        self._least = len(record.fields)
        while self._least and record.fields[self._least - 1].is_optional:
            self._least -= 1

    def read(self, value: bytes | None) -> list[Any] | None:
        """Return the fields of a value, without those that it lacks, or None if it is no record."""
        if value is None or len(value) < self._header_bytes or (self._header_bytes and value[0]):
            return None
        at, end = self._header_bytes, len(value)
        found: list[Any] = []
        number = 0
        try:
            for read, skip in self._steps:
                if at == end and number >= self._least:
                    break
                number += 1
                if read is not None:
                    field, at = read(value, at)
                    found.append(field)
                elif skip is not None:
                    at = skip(value, at)
        except BROKEN:
            return None
        return found if at == end else None


def _column(found: list[Any], kind: AvroType, wanted: pa.DataType) -> pa.Array:
    """Return the column of what was read."""
    convert = _conversion(kind)
    try:
        return pa.array(
            found if convert is None else [each if each is None else convert(each) for each in found], wanted
        )
    except _UNFIT:
        return pa.array([_fitting(each, kind, wanted) for each in found], wanted)


def _conversion(kind: AvroType) -> Convert | None:
    """Return what makes values for pyarrow, which may not fit, or None if they are such values already."""
    kind = not_null(kind)
    if kind.kind in (ARRAY, MAP):
        assert kind.element is not None
        of_element = _conversion(kind.element)
        if kind.kind == MAP:
            of_value = of_element or (lambda value: value)
            return lambda pairs: list({key: None if value is None else of_value(value) for key, value in pairs}.items())
        if of_element is None:
            return None
        return lambda items: [None if item is None else of_element(item) for item in items]
    if kind.kind == RECORD:
        parts = [(field.name, _conversion(field.type)) for field in kind.fields]
        if all(convert is None for _, convert in parts):
            return None
        return lambda record: {
            name: convert(record[name]) if convert is not None and record[name] is not None else record[name]
            for name, convert in parts
        }
    return _scalar_conversion(kind)


def _scalar_conversion(kind: AvroType) -> Convert | None:
    if kind.kind == ENUM:
        symbols = dict(enumerate(kind.symbols))
        return symbols.get
    if kind.logical == "decimal":
        assert kind.column is not None
        bound, scale = 10**kind.column.precision, -kind.column.scale
        return lambda data: _decimal(data, bound, scale)
    if kind.logical in TIMESTAMP_MILLIS:
        return lambda milliseconds: 1000 * milliseconds
    return None


def _decimal(data: bytes, bound: int, exponent: int) -> Decimal | None:
    number = int.from_bytes(data, "big", signed=True)
    return Decimal(number).scaleb(exponent, _EXACT) if data and abs(number) < bound else None


def _fitting(found: Any, kind: AvroType, wanted: pa.DataType) -> Any:
    """Return a value for pyarrow's type, with None for what does not fit."""
    if found is None:
        return None
    kind = not_null(kind)
    if kind.kind == RECORD:
        return {
            field.name: _fitting(found[field.name], field.type, wanted.field(number).type)
            for number, field in enumerate(kind.fields)
        }
    if kind.kind in (ARRAY, MAP):
        assert kind.element is not None
        if kind.kind == ARRAY:
            return [_fitting(item, kind.element, wanted.value_type) for item in found]
        try:
            return [(key.decode(), _fitting(item, kind.element, wanted.item_type)) for key, item in dict(found).items()]
        except UnicodeDecodeError:
            return None
    convert = _scalar_conversion(kind)
    try:
        value = found if convert is None else convert(found)
        pa.scalar(value, wanted)
    except _UNFIT:
        return None
    return value
