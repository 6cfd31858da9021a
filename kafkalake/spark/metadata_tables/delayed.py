"""`delayed`: what waits to be delivered later."""

from __future__ import annotations

from base64 import b64encode

import pyarrow as pa

from kafkalake.errors import LakeError
from kafkalake.spark.metadata_tables.subject import Rows, Subject

DELAYED_COLUMNS = (
    "partition INT, due TIMESTAMP, key BINARY, size BIGINT, delay_id STRING, sent TIMESTAMP, source STRING, "
    "source_partition INT, journal_partition INT, journal_offset BIGINT"
)
"""partition: where it will be. size: of the value, in bytes. sent: the record's timestamp. source: the topic that it was sent to,
another one for topics of a level. journal_*: where it is in `__delayed`."""

ROWS_MAX = 1_000_000
"""Most rows of a query, as the driver has all of them."""


def delayed(subject: Subject) -> Rows:
    """Yield what waits, of a topic what was sent to it or will be delivered to it. Raise `LakeError` if that is too much."""
    # Imported here: it needs compiled code.
    from kafkalake.reader.delayed import delayed_records

    rows = 0
    for batch in delayed_records(subject.lake, topic=subject.topic):
        rows += batch.num_rows
        if rows > ROWS_MAX:
            raise LakeError(
                f"more than {ROWS_MAX:,} records wait, which are too many for this table: ask for those of one topic, or read "
                "lake.delayed with kafkalake sql"
            )
        yield from zip(*map(_values, batch.columns), strict=True)


def _values(column: pa.Array) -> list[object]:
    """Return values as JSON has them: timestamps in us since 1970, binary in base64."""
    if pa.types.is_timestamp(column.type):
        return column.view(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_binary(column.type):
        return [None if value is None else b64encode(value).decode() for value in column.to_pylist()]
    return column.to_pylist()  # type: ignore[no-any-return]
