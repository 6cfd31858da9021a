"""Converts JSON objects, as users give them to a command, to values in Avro: each field as a typed topic of JSON would read it.

But nothing is lost on the way: where a topic of JSON would have null (a field that does not fit its type, a member that is no
field), or a decimal would be rounded, the object is refused. Bytes are strings, or `{"base64": ...}` as `kafkalake consume` shows
them.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

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
from kafkalake.config.unknown_fields import unknown_field
from kafkalake.config.value_schema import BINARY, ValueType
from kafkalake.errors import InvalidRecordError
from kafkalake.reader.avro_encoding import not_null, writer_of
from kafkalake.reader.avro_records import decimal_bytes, header_of
from kafkalake.reader.json_values import items_of, json_document, members_of, value_of
from kafkalake.reader.session_time import EPOCH
from kafkalake.reader.value_types import arrow_type

_MICROSECOND = timedelta(microseconds=1)


class AvroOfJson:
    """Encodes objects for one topic."""

    def __init__(self, format: AvroFormat, columns: ValueType) -> None:
        """columns: those of the topic, as a STRUCT."""
        self._record = parse_avro_schema(format.schema)
        self._columns = columns
        self._write = writer_of(self._record)
        self._header = header_of(format)

    def encode(self, value: bytes) -> bytes:
        """Return the value in Avro. Raise `InvalidRecordError` with the fault if the JSON is no such record."""
        text = json_document(value)
        if text is None or text[0] != "{":
            raise InvalidRecordError("the value is no JSON object")
        out = bytearray(self._header)
        self._write(out, _encodable(text, self._record, self._columns, ""))
        return bytes(out)


def _encodable(text: str, kind: AvroType, column: ValueType, where: str) -> object:
    """Return what `avro_encoding` writes of a JSON value. where: its field, for an error."""
    if text == "null":
        if not kind.is_nullable:
            raise InvalidRecordError(f"field {where} is null, which the Avro schema does not let it be")
        return None
    kind = not_null(kind)
    if kind.kind == RECORD:
        return _record(text, kind, column, where)
    if kind.kind in (ARRAY, MAP):
        assert kind.element is not None and column.element is not None
        if kind.kind == ARRAY and text[0] == "[":
            return [_encodable(item, kind.element, column.element, f"{where}[]") for item in items_of(text)]
        members = members_of(text) if kind.kind == MAP else None
        if members is None:
            raise _unfit(text, column, where)
        return [
            (name.encode(), _encodable(item, kind.element, column.element, f"{where}[]"))
            for name, item in members.items()
        ]
    if column.name == BINARY:
        return _bytes(text, kind, column, where)
    found = value_of(text, arrow_type(column), UTC)
    if found is None:
        raise _unfit(text, column, where)
    return _scalar(found, text, kind, column, where)


def _record(text: str, kind: AvroType, column: ValueType, where: str) -> dict[str, object]:
    members = members_of(text)
    if members is None:
        raise _unfit(text, column, where)
    prefix = f"{where}." if where else ""
    unknown = unknown_field(members, [field.name for field in kind.fields], prefix)
    if unknown is not None:
        raise InvalidRecordError(unknown)
    return {
        field.name: _encodable(members.get(field.name, "null"), field.type, part.type, f"{prefix}{field.name}")
        for field, part in zip(kind.fields, column.fields, strict=True)
    }


def _scalar(found: object, text: str, kind: AvroType, column: ValueType, where: str) -> object:
    if kind.kind == ENUM:
        if found not in kind.symbols:
            raise InvalidRecordError(f"field {where} is {text}, and in Avro one of {', '.join(kind.symbols)}")
        return kind.symbols.index(found)
    if isinstance(found, str):
        return found.encode()
    if isinstance(found, Decimal):
        if found != Decimal(text.strip('"')):
            raise _unfit(text, column, where)
        return decimal_bytes(found, kind, where)
    if isinstance(found, datetime):
        moment = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
        return (moment - EPOCH) // _MICROSECOND // (1000 if kind.logical in TIMESTAMP_MILLIS else 1)
    return (found - EPOCH.date()).days if isinstance(found, date) else found


def _bytes(text: str, kind: AvroType, column: ValueType, where: str) -> bytes:
    members = members_of(text)
    found = value_of(text if members is None else members.get("base64", "null"), arrow_type(ValueType("STRING")), UTC)
    if not isinstance(found, str) or (members is None and text[0] != '"') or (members is not None and len(members) > 1):
        raise _unfit(text, column, where)
    try:
        data = found.encode() if members is None else base64.b64decode(found, validate=True)
    except (ValueError, binascii.Error):
        raise _unfit(text, column, where) from None
    if kind.kind == FIXED and len(data) != kind.size:
        raise InvalidRecordError(f"field {where} has {len(data)} bytes, and in Avro {kind.size}")
    assert kind.kind in (BYTES, FIXED)
    return data


def _unfit(text: str, column: ValueType, where: str) -> InvalidRecordError:
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    return InvalidRecordError(f"field {where} is {shown}, which is no {column.sql}")
