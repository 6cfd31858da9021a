"""Times in the rows of tables, which DuckDB reads: milliseconds since 1970, or a date and time."""

from __future__ import annotations

import pyarrow as pa

from kafkalake.cli.duckdb_rows import open_duckdb, quoted


def time_of_row(column: str) -> str:
    """Return the time of a row in SQL: that of a column, now where it is null. It fails for what is no time."""
    text = _text(column)
    return f"coalesce(TRY_CAST({text} AS BIGINT), epoch_ms(CAST({text} AS TIMESTAMP)), epoch_ms(now()::TIMESTAMP))"


def find_untimed_rows(rows: pa.RecordBatch, column: str) -> dict[int, str]:
    """Return, by its index, what is wrong with each row whose column holds a text that is no time."""
    text = _text(column)
    moment = f"coalesce(TRY_CAST({text} AS BIGINT), epoch_ms(TRY_CAST({text} AS TIMESTAMP)))"
    with open_duckdb() as connection:
        connection.register("rows", pa.Table.from_batches([rows]))
        is_wrong = connection.execute(f"SELECT {quoted(column)} IS NOT NULL AND {moment} IS NULL FROM rows").fetchall()
    texts = rows.column(column)
    return {index: f"'{texts[index]}' is no timestamp" for index, (wrong,) in enumerate(is_wrong) if wrong}


def _text(column: str) -> str:
    return f"CAST({quoted(column)} AS VARCHAR)"
