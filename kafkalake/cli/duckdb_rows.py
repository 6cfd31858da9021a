"""DuckDB over rows that a command reads: a connection, names in SQL, results as Arrow batches with either version of its API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def open_duckdb() -> DuckDBPyConnection:
    """Return a connection to a database in memory, which loads no extension by itself."""
    import duckdb

    return duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False})


def quoted(text: str, quote: str = '"') -> str:
    """Return a name in SQL, or a text with the quote `'`."""
    return quote + text.replace(quote, 2 * quote) + quote


def arrow_batches(connection: DuckDBPyConnection, query: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Run a query and yield its rows, at most about `rows` at a time, as they are produced. Raise `duckdb.Error` if it fails."""
    relation: Any = connection.sql(query)
    if relation is None:
        return
    reader = relation.to_arrow_reader if hasattr(relation, "to_arrow_reader") else relation.fetch_arrow_reader
    yield from reader(rows)
