"""Formats records for `kafkalake consume`: like `kafka-console-consumer`, as JSON lines, as CSV.

`text` is byte for byte the output of Kafka's tool for the same properties: the requested parts, in Kafka's order, separated by
tabs; keys and values unchanged, `null` if they are null.
"""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafkalake.cli.output import UsageProblem
from kafkalake.close_names import did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalake.cli.record_fields import RecordFields
    from kafkalake.client.consuming.records import TimestampType

Formatter = Callable[["ConsumedRecords"], bytes]

CSV_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True)
class ConsumedRecords:
    """Records of one partition, ordered by offset. `records` has the columns of `record.schema.SCHEMA`."""

    partition: int
    records: pa.RecordBatch
    timestamp_type: TimestampType


@dataclass(frozen=True)
class TextProperties:
    """The printed parts of a record, named after `kafka-console-consumer`'s properties."""

    print_timestamp: bool = False
    print_partition: bool = False
    print_offset: bool = False
    print_headers: bool = False
    print_key: bool = False
    print_value: bool = True
    key_separator: str = "\t"
    line_separator: str = "\n"
    headers_separator: str = ","
    null_literal: str = "null"

    def with_property(self, text: str) -> TextProperties:
        """Return a copy with one of Kafka's properties set, as in `print.key=true`. Raise `UsageProblem` if it is invalid."""
        name, equals, value = text.partition("=")
        field = name.strip().replace(".", "_")
        if field not in self.__dataclass_fields__ or not equals:
            known = [field.replace("_", ".") for field in self.__dataclass_fields__]
            close = did_you_mean(name.strip(), known)
            raise UsageProblem(
                f"--property does not know '{text}'" + (f"; {close}" if close else f": {', '.join(known)}")
            )
        if field.startswith("print_"):
            if value.lower() not in ("true", "false"):
                raise UsageProblem(f"--property {name} is true or false, not '{value}'")
            return replace(self, **{field: value.lower() == "true"})  # type: ignore[arg-type]
        return replace(self, **{field: value})  # type: ignore[arg-type]


def text_formatter(properties: TextProperties, fields: RecordFields | None = None) -> Formatter:
    """Return a formatter with the output of `kafka-console-consumer`; of values in Avro their fields, as JSON."""
    p = properties
    only_value = p.print_value and not (
        p.print_timestamp or p.print_partition or p.print_offset or p.print_headers or p.print_key
    )
    end, null = p.line_separator.encode(), p.null_literal.encode()

    def values(fetched: ConsumedRecords) -> bytes:
        if fields is None or not fields.is_avro:
            return _joined(fetched.records.column("value"), end, null)
        return b"".join([(null if value is None else value) + end for value in _shown_values(fetched, fields)])

    def parts(fetched: ConsumedRecords) -> bytes:
        columns = _columns(fetched, p, fields)
        separator = p.key_separator.encode()
        return b"".join([separator.join(row) + end for row in zip(*columns, strict=True)]) if columns else b""

    return values if only_value else parts


def json_formatter(topic: str, fields: RecordFields | None = None) -> Formatter:
    """Return a formatter of JSON lines: topic, partition, offset, timestamp (ms), timestampType, key, value, headers.

    Keys and values are strings, or `{"base64": ...}` if they are not UTF-8. Of a topic with a schema also fields: those of the
    value, null if it is broken.
    """

    def lines(fetched: ConsumedRecords) -> bytes:
        records = fetched.records
        out = []
        texts = None if fields is None else fields.texts(records.column("value"))
        for number, (offset, timestamp, key, value, headers) in enumerate(
            zip(
                records.column("offset").to_pylist(),
                _timestamps(fetched),
                records.column("key").to_pylist(),
                records.column("value").to_pylist(),
                records.column("headers").to_pylist(),
                strict=True,
            )
        ):
            record = {
                "topic": topic,
                "partition": fetched.partition,
                "offset": offset,
                "timestamp": timestamp,
                "timestampType": fetched.timestamp_type,
                "key": as_text(key),
                "value": as_text(value),
                "headers": [{"key": header["key"], "value": as_text(header["value"])} for header in headers],
            }
            line = json.dumps(record, ensure_ascii=False)
            if texts is not None:
                line = f'{line[:-1]}, "fields": {(texts[number] or b"null").decode()}}}'
            out.append(line)
        return ("\n".join(out) + "\n").encode("utf-8", "backslashreplace")

    return lines


def csv_formatter(topic: str, fields: RecordFields | None = None) -> Formatter:
    """Return a formatter of CSV rows, with a header line before the first: `CSV_COLUMNS`, then the fields of values.

    Headers are a JSON object.
    """
    more = [] if fields is None else [f"value.{name}" for name in fields.names]
    head: list[Sequence[str]] = [(*CSV_COLUMNS, *more)]

    def rows(fetched: ConsumedRecords) -> bytes:
        records = fetched.records
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if head:
            writer.writerow(head.pop())
        values = records.column("value")
        cells = [()] * len(values) if fields is None else fields.cells(values)
        for offset, timestamp, key, value, headers, of_value in zip(
            records.column("offset").to_pylist(),
            _timestamps(fetched),
            records.column("key").to_pylist(),
            values.to_pylist(),
            records.column("headers").to_pylist(),
            cells,
            strict=True,
        ):
            named = {header["key"]: as_text(header["value"]) for header in headers}
            shown = json.dumps(named, ensure_ascii=False) if named else ""
            row = [topic, fetched.partition, offset, timestamp, _in_csv(key), _in_csv(value), shown]
            writer.writerow([*row, *of_value])
        return text.getvalue().encode("utf-8", "backslashreplace")

    return rows


def as_text(value: bytes | None) -> Any:
    """Return bytes as in JSON: a string if they are UTF-8, else `{"base64": ...}`, and None for null."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _in_csv(value: bytes | None) -> str:
    text = as_text(value)
    return "" if text is None else text if isinstance(text, str) else f"base64:{text['base64']}"


def _timestamps(fetched: ConsumedRecords) -> list[int]:
    """Return milliseconds since 1970."""
    import pyarrow as pa

    return fetched.records.column("timestamp").cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _shown_values(fetched: ConsumedRecords, fields: RecordFields | None) -> list[bytes | None]:
    """Return the values; of those in Avro the fields, where they are not broken."""
    column = fetched.records.column("value")
    values: list[bytes | None] = column.to_pylist()
    if fields is None or not fields.is_avro:
        return values
    return [value if text is None else text for value, text in zip(values, fields.texts(column), strict=True)]


def _joined(values: pa.BinaryArray, end: bytes, null: bytes) -> bytes:
    """Return the values behind each other, each with `end`, without an object for each."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    filled = values.fill_null(null) if values.null_count else values
    ends, nothing = pa.scalar(end, pa.binary()), pa.scalar(b"", pa.binary())
    joined = pc.binary_join_element_wise(filled, ends, nothing)
    _, offsets, data = joined.buffers()
    first, last = np.frombuffer(offsets, np.int32)[[joined.offset, joined.offset + len(joined)]].tolist()
    return b"" if data is None else bytes(data[first:last])


def _columns(fetched: ConsumedRecords, p: TextProperties, fields: RecordFields | None) -> list[Sequence[bytes]]:
    """Return the printed parts of each record, in Kafka's order."""
    records = fetched.records
    null = p.null_literal.encode()
    columns: list[Sequence[bytes]] = []
    if p.print_timestamp:
        kind = fetched.timestamp_type
        columns.append([b"NO_TIMESTAMP" if at < 0 else f"{kind}:{at}".encode() for at in _timestamps(fetched)])
    if p.print_partition:
        columns.append([f"Partition:{fetched.partition}".encode()] * records.num_rows)
    if p.print_offset:
        columns.append([f"Offset:{offset}".encode() for offset in records.column("offset").to_pylist()])
    if p.print_headers:
        separator = p.headers_separator.encode()
        columns.append(
            [
                separator.join(
                    header["key"].encode("utf-8", "surrogateescape")
                    + b":"
                    + (null if header["value"] is None else header["value"])
                    for header in headers
                )
                or b"NO_HEADERS"
                for headers in records.column("headers").to_pylist()
            ]
        )
    if p.print_key:
        columns.append([null if key is None else key for key in records.column("key").to_pylist()])
    if p.print_value:
        columns.append([null if value is None else value for value in _shown_values(fetched, fields)])
    return columns
