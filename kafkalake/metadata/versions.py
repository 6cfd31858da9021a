"""The versions of a lake's tables with the rows of one topic, from the newest log entries, oldest first.

Each entry names the files that it adds and removes, so a version costs the reading of one small file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from kafkalake.errors import LakeError
from kafkalake.metadata import paths
from kafkalake.metadata.delta_checkpoint import checkpoint_versions, entry_path, entry_versions, log_path
from kafkalake.metadata.tables.data_files import DataFile, data_files, first_line, read_file
from kafkalake.metadata.tables.lake_tables import TABLE_DEFINITIONS

VERSIONS_MAX = 10_000
"""The most versions that are read, the newest ones."""


class Version(NamedTuple):
    """A version of a table, when it was committed, and the rows of the topic."""

    number: int
    committed_ms: int
    rows: pa.Table


def versions_of(lake: Path, name: str, topic: str, *, most: int = VERSIONS_MAX) -> Iterator[Version]:
    """Yield the versions of a table that are kept, oldest first, in which rows of `topic` were written, and the first of all.

    Raise `LakeError` if they cannot be read.
    """
    table = paths.table_path(lake, name)
    definition = TABLE_DEFINITIONS[name]
    try:
        numbers = _kept(table)[-most:]
        if not numbers:
            return
        first = DeltaTable(table, version=numbers[0])
        files = {each.path: _of(topic, read_file(table, definition, each)) for each in data_files(first)}
        yield Version(numbers[0], _committed_ms(table, numbers[0]), _joined(definition.schema, files))
        for number in numbers[1:]:
            has_rows = False
            for action in _actions(table, number):
                if "remove" in action:
                    has_rows |= bool(files.pop(action["remove"]["path"], definition.schema.empty_table()).num_rows)
                elif "add" in action:
                    added = action["add"]
                    file = DataFile(added["path"], added["size"], 0, added.get("partitionValues") or {})
                    files[file.path] = _of(topic, read_file(table, definition, file))
                    has_rows |= bool(files[file.path].num_rows)
            if has_rows:
                yield Version(number, _committed_ms(table, number), _joined(definition.schema, files))
    except (DeltaError, OSError) as error:
        raise LakeError(f"the history of {table} cannot be read: {first_line(error)}") from error


def _kept(table: Path) -> list[int]:
    """Return the versions whose entries are there, from the first on that can be read."""
    names = os.listdir(log_path(table))
    entries = sorted(entry_versions(names))
    if not entries or entries[0] == 0:
        return entries
    first = min((version for version in checkpoint_versions(names) if version >= entries[0]), default=entries[-1])
    return [version for version in entries if version >= first]


def _actions(table: Path, number: int) -> list[dict[str, Any]]:
    lines = entry_path(table, number).read_text().splitlines()
    return sorted((json.loads(line) for line in lines if line), key=lambda action: "add" in action)


def _committed_ms(table: Path, number: int) -> int:
    return entry_path(table, number).stat().st_mtime_ns // 1_000_000


def _of(topic: str, rows: pa.Table) -> pa.Table:
    return rows.filter(pc.equal(rows.column("topic"), topic))


def _joined(schema: pa.Schema, files: dict[str, pa.Table]) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *files.values()])
