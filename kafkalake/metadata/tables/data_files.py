"""The definition of a Delta table, and its Parquet files as rows of the table's schema."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from kafkalake.errors import LakeError
from kafkalake.metadata.delta_checkpoint import entry_path

_ADDED_COLUMNS = frozenset({"boot_id", "lease_duration", "broker_id", "is_voter"})
"""Columns added after version 0.1."""


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The definition of a table. `history`: how long old versions stay readable, as a Delta interval.

    expendable: its data is redundant or may be lost, so a table beyond repair is recreated empty. accept: checks and completes the
    rows of each file read, or raises `LakeError`.
    """

    schema: pa.Schema
    history: str
    partition_by: tuple[str, ...] = ()
    checkpoint_interval: int = 100
    expendable: bool = False
    accept: Callable[[pa.Table], pa.Table] = lambda rows: rows

    @property
    def properties(self) -> dict[str, str | None]:
        return {
            "delta.logRetentionDuration": self.history,
            "delta.deletedFileRetentionDuration": self.history,
            "delta.enableExpiredLogCleanup": "true",
            "delta.checkpointInterval": str(self.checkpoint_interval),
        }


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of the current version. `path` is as in Delta's log."""

    path: str
    size: int
    records: int
    partition: Mapping[str, str]


class TableSize(NamedTuple):
    """The numbers of a table's data files and of the versions that it keeps, and the bytes of all its files."""

    files: int
    versions: int
    bytes: int


def size_on_disk(table: Path) -> TableSize:
    """Return the size of a table with its older versions."""
    files = versions = size = 0
    for file in table.rglob("*"):
        is_log = file.parent.name == "_delta_log"
        files += file.suffix == ".parquet" and not is_log
        versions += file.suffix == ".json" and is_log
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            size += file.stat().st_size if file.is_file() else 0
    return TableSize(files, versions, size)


def first_line(error: Exception) -> str:
    """Return the first line of a message, because delta-rs appends stack traces to some."""
    return str(error).partition("\n")[0].rstrip(".")


def data_files(table: DeltaTable) -> list[DataFile]:
    """Return the files of the version that `table` is at."""
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return [
        DataFile(
            path=action["path"],
            size=action["size_bytes"],
            records=action.get("num_records") or 0,
            partition={
                name.removeprefix("partition."): str(value)
                for name, value in action.items()
                if name.startswith("partition.")
            },
        )
        for action in actions
    ]


def committed_ms(table: Path, version: int) -> int:
    """Return the time of a version: the mtime of its log entry. Raise `LakeError` if the entry is gone."""
    try:
        return entry_path(table, version).stat().st_mtime_ns // 1_000_000
    except OSError as error:
        raise LakeError(f"no version {version} of {table}: {error.strerror or error}") from error


def read_file(root: Path, definition: TableDefinition, file: DataFile) -> pa.Table:
    """Return the rows of one file in the table's schema. Raise `LakeError` if it cannot be read or has rows not allowed."""
    try:
        stored = pq.ParquetFile(root / file.path).read()
        columns = [
            pa.repeat(pa.scalar(file.partition[column.name]).cast(column.type), stored.num_rows)
            if column.name in file.partition
            else _column(stored, column)
            for column in definition.schema
        ]
    except (OSError, KeyError, pa.ArrowException) as error:
        raise LakeError(f"cannot read {root / file.path}: {error}") from error
    return definition.accept(pa.Table.from_arrays(columns, schema=definition.schema))


def write_file(root: Path, definition: TableDefinition, rows: pa.Table) -> AddAction:
    """Write a Parquet file and return its action, with the values of the partition columns.

    There is a directory for each value of the first of them, because each directory costs an fsync.
    """
    partition = {name: str(rows.column(name)[0]) for name in definition.partition_by}
    directory = "".join(f"{name}={partition[name]}/" for name in definition.partition_by[:1])
    path = f"{directory}{uuid.uuid4()}.parquet"
    (root / directory).mkdir(exist_ok=True)
    try:
        pq.write_table(rows.drop_columns(list(partition)), root / path, compression="zstd")
    except BaseException:
        (root / path).unlink(missing_ok=True)
        raise
    size = (root / path).stat().st_size
    statistics = json.dumps({"numRecords": rows.num_rows})
    return AddAction(path, size, partition, wall_ms(), True, statistics)


def wall_ms() -> int:
    """Return the machine's time, with which Delta's vacuum compares the times of files."""
    return time.time_ns() // 1_000_000


def _column(stored: pa.Table, column: pa.Field) -> pa.Array | pa.ChunkedArray:
    """Return a column of a file, or nulls if the file was written before the column was added."""
    if column.name not in stored.column_names and column.name in _ADDED_COLUMNS:
        return pa.nulls(stored.num_rows, column.type)
    return stored.column(column.name).cast(column.type)
