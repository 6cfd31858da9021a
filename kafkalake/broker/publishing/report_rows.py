"""The rows of reports as Arrow streams between brokers, cut into parts of `ROWS_MAX` rows. Called in a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from kafkalake.broker.publishing.reports import JournalReport, Kind, PartitionReport
from kafkalake.errors import BrokerUnavailableError
from kafkalake.metadata.tables.schemas import (
    GROUP_OFFSETS_SCHEMA,
    PARTITIONS_SCHEMA,
    SEGMENTS_SCHEMA,
    TRANSACTIONS_SCHEMA,
    GroupOffsetRow,
    PartitionRow,
    SegmentKey,
    SegmentRow,
    TransactionRow,
    from_table,
    optional_columns,
    segment_keys,
    to_table,
)

ROWS_MAX = 5_000
"""Rows of one table in one part."""

_KEYS_SCHEMA = pa.schema([SEGMENTS_SCHEMA.field(name) for name in SegmentKey._fields])
_OPTIONAL: Mapping[Kind, frozenset[str]] = {
    Kind.PARTITIONS: optional_columns(PartitionRow, SegmentRow),
    Kind.GROUP_OFFSETS: optional_columns(GroupOffsetRow),
    Kind.TRANSACTIONS: optional_columns(TransactionRow),
}
_SCHEMAS: Mapping[Kind, Sequence[pa.Schema]] = {
    Kind.PARTITIONS: (PARTITIONS_SCHEMA, SEGMENTS_SCHEMA, _KEYS_SCHEMA),
    Kind.GROUP_OFFSETS: (GROUP_OFFSETS_SCHEMA,),
    Kind.TRANSACTIONS: (TRANSACTIONS_SCHEMA,),
}

RowPart = Sequence[bytes | bytearray | memoryview]
"""One stream for each table of a report."""


def encode_partitions(report: PartitionReport) -> list[RowPart]:
    """Return the rows of a report, at least one part."""
    removed = [list(column) for column in zip(*report.removed, strict=True)] or [[] for _ in _KEYS_SCHEMA]
    keys = [pa.array(values, field.type) for values, field in zip(removed, _KEYS_SCHEMA, strict=True)]
    return _parts(
        to_table(PARTITIONS_SCHEMA, report.rows),
        to_table(SEGMENTS_SCHEMA, report.sealed),
        pa.Table.from_arrays(keys, schema=_KEYS_SCHEMA),
    )


def encode_journal(report: JournalReport, kind: Kind) -> list[RowPart]:
    """Return the rows of a coordinator's report, at least one part."""
    (schema,) = _SCHEMAS[kind]
    return _parts(to_table(schema, report.rows))


def decode_partitions(report: PartitionReport, parts: Sequence[RowPart]) -> PartitionReport:
    """Return a report with its rows. Raise `BrokerUnavailableError` if they are malformed."""
    rows, sealed, removed = _tables(Kind.PARTITIONS, parts)
    return replace(
        report,
        rows=from_table(PartitionRow, rows),
        sealed=from_table(SegmentRow, sealed),
        removed=segment_keys(removed),
    )


def decode_journal(report: JournalReport, kind: Kind, parts: Sequence[RowPart]) -> JournalReport:
    """Return a coordinator's report with its rows. Raise `BrokerUnavailableError` if they are malformed."""
    (table,) = _tables(kind, parts)
    rows = from_table(GroupOffsetRow, table) if kind is Kind.GROUP_OFFSETS else from_table(TransactionRow, table)
    return replace(report, rows=rows)


def _parts(*tables: pa.Table) -> list[RowPart]:
    count = max(1, *(-(-table.num_rows // ROWS_MAX) for table in tables))
    return [[_encoded(table.slice(part * ROWS_MAX, ROWS_MAX)) for table in tables] for part in range(count)]


def _encoded(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _tables(kind: Kind, parts: Sequence[RowPart]) -> list[pa.Table]:
    schemas = _SCHEMAS[kind]
    if any(len(part) != len(schemas) for part in parts):
        raise BrokerUnavailableError("a report lacks a table")
    return [
        pa.concat_tables([_decoded(part[number], schema, _OPTIONAL[kind]) for part in parts])
        for number, schema in enumerate(schemas)
    ]


def _decoded(data: bytes | bytearray | memoryview, schema: pa.Schema, optional: frozenset[str]) -> pa.Table:
    try:
        table = pa.ipc.open_stream(data).read_all()
        table.validate(full=True)  # Arrow reads where the offsets of a column point
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BrokerUnavailableError(f"a report cannot be read: {error}") from error
    if not table.schema.equals(schema):
        raise BrokerUnavailableError("a report has other columns")
    if any(column.null_count for name, column in zip(schema.names, table.columns, strict=True) if name not in optional):
        raise BrokerUnavailableError("a report lacks values")
    return table
