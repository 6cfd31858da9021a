"""Registers the tables of `kafkalake sql` with DuckDB: topics by name, and in the schema `lake` the metadata tables, and `delayed`.

Only tables named in a statement are registered, because DuckDB inspects every registered table. Text in single quotes names files,
never topics. DuckDB's own schemas keep their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalake.cli.output import Failure
from kafkalake.internal_topics import INTERNAL
from kafkalake.metadata import paths

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

SCHEMA = "lake"
DELAYED = "delayed"
METADATA_TABLES = tuple(sorted((*paths.TABLES, *paths.JOB_TABLES, DELAYED)))
_RESERVED = frozenset({"information_schema", "main", "pg_catalog", "system", "temp", SCHEMA})
_ALL_TABLES = re.compile(r"\b(show|information_schema|duckdb_tables|duckdb_views|pragma)\b", re.IGNORECASE)
_TEXTS = re.compile(r"'(?:[^']|'')*'")


def topics_meant(query: str, topics: Iterable[str]) -> list[str]:
    """Return the topics that a query may name, exact case last, because DuckDB's names are case-insensitive."""
    names = _TEXTS.sub("''", query)
    lowered = names.lower()
    shown = _ALL_TABLES.search(names) is not None
    meant = []
    for topic in topics:
        if topic.lower() in _RESERVED:
            named = f'"{topic}"'.lower() in lowered and f'"{topic}".'.lower() not in lowered
        else:
            named = topic.lower() in lowered or (shown and topic not in INTERNAL)
        if named:
            meant.append(topic)
    return sorted(meant, key=lambda name: name in names)


def metadata_tables_meant(query: str) -> list[str]:
    """Return the metadata tables that a query may name, as in `lake.partitions`."""
    names = _TEXTS.sub("''", query).lower()
    shown = _ALL_TABLES.search(names) is not None
    return [name for name in METADATA_TABLES if shown or _is_named(name, names)]


def _is_named(table: str, names: str) -> bool:
    return re.search(rf'\blake"?\s*\.\s*"?{table}\b', names) is not None


class SqlTables:
    """Registers tables of one lake with a DuckDB connection, as of now or of `as_of_ms` (ms since 1970)."""

    def __init__(self, connection: DuckDBPyConnection, lake: Path, topics: Sequence[str], as_of_ms: int | None) -> None:
        self._connection = connection
        self._lake = lake
        self._topics = topics
        self._as_of_ms = as_of_ms
        connection.execute(f"CREATE SCHEMA {SCHEMA}")

    def register(self, query: str) -> None:
        """Read and register tables that `query` may name. Raise `LakeError`, or `Failure` for a time before the lake's first."""
        from kafkalake.dataset import topic_dataset

        as_of = {} if self._as_of_ms is None else {"timestamp_as_of": _utc(self._as_of_ms).isoformat()}
        for topic in topics_meant(query, self._topics):
            self._connection.register(topic, topic_dataset(self._lake, topic, **as_of))
        for name in metadata_tables_meant(query):
            if name == DELAYED:
                self._register_delayed(is_named=_is_named(name, _TEXTS.sub("''", query).lower()))
            if not paths.table_path(self._lake, name).exists():
                continue
            self._connection.register("_read", self._read(name))
            self._connection.execute(f'CREATE OR REPLACE TABLE {SCHEMA}."{name}" AS SELECT * FROM _read')
            self._connection.unregister("_read")

    def _register_delayed(self, *, is_named: bool) -> None:
        """Register what waits to be delivered later, read when a statement runs. Raise `Failure` for its past if it is named.

        A statement that only lists tables gets its columns: the dataset under the view would be listed, too.
        """
        if self._as_of_ms is not None:
            if is_named:
                raise Failure(f"{SCHEMA}.{DELAYED} has no past: it is what waits now")
            return
        from kafkalake.dataset import delayed_dataset

        self._connection.register(f"_{DELAYED}", delayed_dataset(self._lake))
        rows = f"SELECT * FROM _{DELAYED}"
        if not is_named:
            types = self._connection.execute(f"DESCRIBE _{DELAYED}").fetchall()
            self._connection.unregister(f"_{DELAYED}")
            rows = f"SELECT {', '.join(f'NULL::{kind} AS {name}' for name, kind, *_ in types)} WHERE false"
        self._connection.execute(f'CREATE OR REPLACE VIEW {SCHEMA}."{DELAYED}" AS {rows}')

    def _read(self, name: str) -> pa.Table:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        path = paths.table_path(self._lake, name)
        try:
            table = DeltaTable(str(path))
            if self._as_of_ms is not None:
                table.load_as_version(_utc(self._as_of_ms))
            return table.to_pyarrow_table()
        except (DeltaError, OSError, ValueError) as error:
            raise Failure(f"{SCHEMA}.{name} cannot be read: {str(error).splitlines()[0]}") from None


def _utc(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)
