"""DuckDB's results as Arrow batches, with either version of DuckDB's API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


def arrow_batches(connection: DuckDBPyConnection, query: str, rows: int) -> Iterator[pa.RecordBatch]:
    """Run a query and yield its rows, at most about `rows` at a time, as they are produced. Raise `duckdb.Error` if it fails."""
    relation: Any = connection.sql(query)
    if relation is None:
        return
    reader = relation.to_arrow_reader if hasattr(relation, "to_arrow_reader") else relation.fetch_arrow_reader
    yield from reader(rows)
