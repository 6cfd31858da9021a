"""DuckDB over rows that a command reads: a connection, names in SQL, results as Arrow batches with either version of its API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafkalake.cli.output import Failure
from kafkalake.record.schema import SCHEMA

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


_TIMESTAMP = SCHEMA.field("timestamp").type
_LONGEST_ERROR = 300
"""Characters: an error quotes the value that it is about, of any size."""


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


def select_records(
    path: Path, selection: str, source: str, rows: int, tables: Mapping[str, pa.RecordBatch] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield records made by `selection` from `source`, one of `tables` or read by DuckDB, at most about `rows` at a time.

    path: of the input. Raise `Failure` if DuckDB fails.
    """
    import duckdb

    try:
        with open_duckdb() as connection:
            for name, table in (tables or {}).items():
                connection.register(name, pa.Table.from_batches([table]))
            for batch in arrow_batches(connection, f"SELECT {selection} FROM {source}", rows):
                arrays = {name: batch.column(name) for name in batch.schema.names}
                yield pa.RecordBatch.from_arrays(
                    [array.cast(_TIMESTAMP if name == "timestamp" else pa.binary()) for name, array in arrays.items()],
                    names=list(arrays),
                )
    except duckdb.Error as error:
        raise failure_of(path, error) from None


def failure_of(path: Path, error: Exception) -> Failure:
    """Return what a command says of an input that DuckDB cannot read: the beginning of its error's first line."""
    said = str(error).splitlines()[0]
    return Failure(f"{path}: {said if len(said) <= _LONGEST_ERROR else said[:_LONGEST_ERROR] + '...'}")
