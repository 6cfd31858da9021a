"""Times in the rows of tables, which DuckDB reads: milliseconds since 1970, or a date and time."""

from __future__ import annotations

from reprlib import repr as short

import pyarrow as pa

from kafkalake.cli.duckdb_rows import open_duckdb, quoted


def time_of_row(column: str) -> str:
    """Return the time of a row in SQL: that of a column, now where it is null. It fails for what is no time."""
    return f"coalesce({_moment(column, 'CAST')}, epoch_ms(now()::TIMESTAMP))"


def find_untimed_rows(rows: pa.RecordBatch, column: str) -> dict[int, str]:
    """Return, by its index, what is wrong with each row whose column holds a text that is no time."""
    moment = _moment(column, "TRY_CAST")
    with open_duckdb() as connection:
        connection.register("rows", pa.Table.from_batches([rows]))
        is_wrong = connection.execute(f"SELECT {quoted(column)} IS NOT NULL AND {moment} IS NULL FROM rows").fetchall()
    texts = rows.column(column)
    return {index: f"{short(texts[index].as_py())} is no timestamp" for index, (wrong,) in enumerate(is_wrong) if wrong}


def _moment(column: str, cast: str) -> str:
    text = f"CAST({quoted(column)} AS VARCHAR)"
    return f"coalesce(TRY_CAST({text} AS BIGINT), epoch_ms({cast}({text} AS TIMESTAMP)))"
