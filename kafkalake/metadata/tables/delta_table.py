"""One open Delta table: its current files, their rows, and commits that swap files.

Written with `deltalake` (delta-rs). A commit consists of whole files: added rows go to new Parquet files, removed files are named,
and both happen in one version. This takes 2 ms, against 5-7 ms for a predicate overwrite, and lets a publish drop some rows and
add others in one commit.

Commits are compare-and-swap: delta-rs retries are disabled, so a commit succeeds only on top of the version seen by this handle.
Otherwise it raises `CommitConflict` and the change is decided again on fresh rows.

The main cost is listing `_delta_log`: 3 ms per commit per 1,000 files. Tables therefore have a log retention. delta-rs would look
for expired entries after every commit, at four times that cost. Here it is done once per `CLEANUP_INTERVAL` versions.

Durable data is fsynced before a call returns, together with all earlier log entries of any writer, because an entry is useless
without its predecessors. `delta_checkpoint` writes checkpoints in an order that keeps the log readable at any moment.
Damage by a power loss is repaired at startup (`damaged_log`). A commit with an unknown outcome (the error came after the write) is
found by its commit id.

Source: Delta protocol, "Delta Transaction Log Protocol".
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from kafkalake.errors import KafkaStorageError, LakeError
from kafkalake.metadata.damaged_log import ACTIONS, Damage, find_damage, set_aside
from kafkalake.metadata.delta_checkpoint import (
    checkpoint_versions,
    entry_path,
    log_path,
    remove_leftovers,
    write_checkpoint,
)
from kafkalake.metadata.disk import DISK, Disk

CLEANUP_INTERVAL = 1_000
ATTEMPTS_MAX = 20
COMMIT_ID = "kafkalakeCommit"
"""The key of a commit's id in the `commitInfo` of our commits."""
_ADDED_COLUMNS = frozenset({"boot_id", "lease_duration"})
"""Columns added after version 0.1."""

_log = logging.getLogger(__name__)


class CommitConflict(Exception):
    """A lost race against another writer. The table must be read again. Never leaves this package."""


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The definition of a table. `history`: how long old versions stay readable, as a Delta interval.

    expendable: its data is redundant or may be lost, so a table beyond repair is recreated empty. check: validates the rows of each
    file read and raises `LakeError` if they are not acceptable.
    """

    schema: pa.Schema
    history: str
    partition_by: tuple[str, ...] = ()
    checkpoint_interval: int = 100
    expendable: bool = False
    check: Callable[[pa.Table], None] = lambda rows: None

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
    """The numbers of current files and log entries, and the total size in bytes."""

    files: int
    log_entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Change:
    """The content of one commit: tables to `add` (one file each, empty ones skipped) and files to `remove`."""

    add: Sequence[pa.Table] = ()
    remove: Sequence[DataFile] = ()
    transactions: Sequence[tuple[str, int]] = ()
    partition: Mapping[str, str] = field(default_factory=dict)


class OpenDeltaTable:
    """A table at the newest version seen by this handle. Not thread-safe: the owner locks."""

    def __init__(self, path: Path, definition: TableDefinition, *, create: bool, disk: Disk = DISK) -> None:
        """Open the table. With `create`, create it if missing and repair damage by a power loss.

        Raise `LakeError` if it cannot be opened.
        """
        self.path = path
        self._definition = definition
        self._disk = disk
        self._table = (
            _with_columns(_open_or_create(path, definition, disk), path, definition, disk) if create else _open(path)
        )
        self._files: list[DataFile] | None = None
        self._rows: dict[str, pa.Table] = {}
        self._transactions: dict[str, int | None] = {}
        self._forced_version: int | None = None
        self._forced_files: frozenset[str] = frozenset()
        self._doubtful: set[Path] = set()
        """Files whose fsync failed. The kernel may have dropped their dirty pages and reports the error only once."""

    @property
    def version(self) -> int:
        return self._table.version()

    def is_outdated(self) -> bool:
        """Return whether a newer version exists. This checks for one file, whereas `refresh` lists the log."""
        return entry_path(self.path, self._table.version() + 1).exists()

    def refresh(self) -> None:
        """Move to the newest version. Raise `KafkaStorageError` if the log cannot be read."""
        before = self._table.version()
        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise KafkaStorageError(f"cannot read the log of {self.path}: {_first_line(error)}") from error
        if self._table.version() != before:
            self._files = None
            self._transactions = {}

    def transaction_version(self, app_id: str) -> int | None:
        """Return the newest `txn` version of `app_id` in the log, or None."""
        if app_id not in self._transactions:
            with self._reading():
                self._transactions[app_id] = self._table.transaction_version(app_id)
        return self._transactions[app_id]

    def files(self) -> list[DataFile]:
        """Return the files of this version."""
        if self._files is None:
            with self._reading():
                self._files = _data_files(self._table)
            current = {file.path for file in self._files}
            self._rows = {path: rows for path, rows in self._rows.items() if path in current}
        return self._files

    def rows(self, file: DataFile) -> pa.Table:
        """Return the rows of one current file in the table's schema. They are kept in memory until the file is removed."""
        if file.path not in self._rows:
            self._rows[file.path] = _read_file(self.path, self._definition, file)
        return self._rows[file.path]

    def read(self) -> pa.Table:
        """Return all rows of this version."""
        return _concatenate(self._definition.schema, (self.rows(file) for file in self.files()))

    def read_version(self, version: int) -> pa.Table:
        """Return all rows of a version. Raise `LakeError` if it does not exist (any more)."""
        if version == self._table.version():
            return self.read()
        try:
            table = DeltaTable(self.path, version=version)
            schema = self._definition.schema
            return _concatenate(schema, (_read_file(self.path, self._definition, file) for file in _data_files(table)))
        except (DeltaError, OSError) as error:
            raise LakeError(
                f"version {version} of {self.path} cannot be read: the newest is {self._table.version()}, and versions "
                f"older than {self._definition.history.removeprefix('interval ')} are removed ({_first_line(error)})"
            ) from error

    def version_at(self, timestamp_ms: int) -> int:
        """Return the newest version committed at or before the time. Raise `LakeError` if the log does not reach that far back."""
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
        try:
            table = DeltaTable(self.path)
            table.load_as_version(moment)
            version = table.version()
            # delta-rs returns the oldest version if all are younger. A version's time is the mtime of its log entry.
            committed_ms = entry_path(self.path, version).stat().st_mtime_ns // 1_000_000
        except (DeltaError, OSError, ValueError) as error:
            raise LakeError(f"no version of {self.path} at {moment.isoformat()}: {_first_line(error)}") from error
        if committed_ms > timestamp_ms:
            oldest = datetime.fromtimestamp(committed_ms / 1000, UTC)
            raise LakeError(
                f"no version of {self.path} at {moment.isoformat()}: the oldest is {version} of {oldest.isoformat()}"
            )
        return version

    def commit(self, change: Change, *, durable: bool = False) -> None:
        """Commit `change` on top of the version seen and move to the new version.

        With `durable`, the commit and all earlier ones survive a power loss. Raise `CommitConflict` if another version came first
        (the table is then refreshed), `KafkaStorageError` on I/O errors. The outcome is then unknown and shows when the change is
        decided again on fresh rows.
        """
        before = self._table.version()
        written: list[AddAction] = []
        commit_id = uuid.uuid4().hex
        try:
            written = [self._write_file(rows, change.partition) for rows in change.add if rows.num_rows]
            if durable:
                self._force_files(action.path for action in written)
            self._commit_files(written, change, commit_id)
        except (CommitFailedError, DeltaError, OSError, pa.ArrowException) as error:
            self._after_failure(error, written, commit_id)
        self.refresh()
        if durable:
            self.force()
        if (self._table.version() + 1) // self._definition.checkpoint_interval > (
            before + 1
        ) // self._definition.checkpoint_interval:
            self._write_checkpoint()
        if self._table.version() // CLEANUP_INTERVAL > before // CLEANUP_INTERVAL:
            self._clean_log()

    def force(self) -> None:
        """Fsync this version: the last checkpoint, the entries since then, and the data files.

        Raise `KafkaStorageError` if that fails.
        """
        version = self._table.version()
        if self._forced_version == version and not self._doubtful:
            return
        try:
            log = log_path(self.path)
            first = self._forced_version
            if first is None:
                checkpoints = checkpoint_versions(os.listdir(log))
                first = max(checkpoints, default=-1)
                for name in checkpoints.get(first, ()):
                    self._force(log / name)
            self._force_files(file.path for file in self.files())
            for number in range(first + 1, version + 1):
                self._force(entry_path(self.path, number))
            # The creator of the table may have been killed before its fsync of the directories.
            for directory in _named_directories(self.path) if self._forced_version is None else (log,):
                self._disk.force_directory(directory)
        except OSError as error:
            raise KafkaStorageError(f"cannot force {self.path} to the disk: {error}") from error
        self._forced_version = version
        self._forced_files = frozenset(file.path for file in self.files())

    def commit_decided(
        self, decide: Callable[[], Change | None], *, durable: bool = False, randomness: random.Random | None = None
    ) -> None:
        """Commit the change returned by `decide` (None: no change), deciding again after each lost race.

        Raise `KafkaStorageError` on I/O errors and after `ATTEMPTS_MAX` lost races.
        """
        uniform = (randomness or random).uniform
        for attempt in range(ATTEMPTS_MAX):
            change = decide()
            if change is None:
                if durable:
                    self.force()  # an earlier commit may have failed at its fsync
                return
            try:
                self.commit(change, durable=durable)
                return
            except CommitConflict:
                # Random, because writers in step would collide forever.
                time.sleep(uniform(0, 0.002 * (attempt + 1)))
        raise KafkaStorageError(f"{self.path}: other writers were faster {ATTEMPTS_MAX} times in a row; try again.")

    def maintain(self, history: str | None = None) -> None:
        """Remove log entries and files needed only by versions past their retention.

        history: how long old versions stay readable from now on, as a Delta interval (None: unchanged). Raise `KafkaStorageError`
        if the cleanup fails.
        """
        try:
            self.refresh()
            self._keep_history(history)
            self.force()
            write_checkpoint(self.path, self._table.version(), self._disk)  # only entries covered by one are removed
            remove_leftovers(self.path)
            self._table.cleanup_metadata()
            self._table.vacuum(dry_run=False, full=True)
            self.refresh()
        except (DeltaError, OSError) as error:
            raise KafkaStorageError(f"cannot clean up {self.path}: {_first_line(error)}") from error

    def size(self) -> TableSize:
        """Return the table's size on disk, including old versions. Raise `KafkaStorageError` if it cannot be listed."""
        try:
            self.refresh()
            entries = len(os.listdir(self.path / "_delta_log"))
            total = sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())
        except OSError as error:
            raise KafkaStorageError(f"cannot list {self.path}: {error}") from error
        return TableSize(len(self.files()), entries, total)

    def _keep_history(self, history: str | None) -> None:
        wanted = {"delta.logRetentionDuration": history, "delta.deletedFileRetentionDuration": history}
        configuration = self._table.metadata().configuration
        if history is not None and any(configuration.get(name) != value for name, value in wanted.items()):
            self._table.alter.set_table_properties(dict.fromkeys(wanted, history))
            self.refresh()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Convert errors of delta-rs and the disk to `KafkaStorageError`."""
        try:
            yield
        except (DeltaError, OSError) as error:
            raise KafkaStorageError(f"cannot read the log of {self.path}: {_first_line(error)}") from error

    def _force_files(self, data_files: Iterable[str]) -> None:
        """Fsync data files and their directories. Raise `OSError` if that fails."""
        paths = [self.path / file for file in data_files if file not in self._forced_files]
        for path in paths:
            self._force(path)
        for directory in sorted({parent for path in paths for parent in (path.parent, self.path)}):
            self._disk.force_directory(directory)

    def _force(self, file: Path) -> None:
        """Fsync a file, rewriting it if an earlier fsync failed. Raise `OSError` if that fails."""
        try:
            if file in self._doubtful:
                self._disk.replace(file, file.read_bytes())
                self._doubtful.discard(file)
            else:
                self._disk.force(file)
        except FileNotFoundError:
            self._doubtful.discard(file)  # removed meanwhile, no longer needed
        except OSError:
            self._doubtful.add(file)
            raise

    def _write_checkpoint(self) -> None:
        """Write a checkpoint. A failure is only logged: readers read a longer log until the next checkpoint."""
        try:
            self.force()
            write_checkpoint(self.path, self._table.version(), self._disk)
        except (DeltaError, OSError, KafkaStorageError) as error:
            _log.warning("cannot write a checkpoint of %s: %s", self.path, _first_line(error))

    def _clean_log(self) -> None:
        """Remove expired log entries. A failure is only logged and retried the next time, as the commit is done."""
        try:
            self._table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            _log.warning("cannot remove expired log entries of %s: %s", self.path, error)

    def _write_file(self, rows: pa.Table, partition: Mapping[str, str]) -> AddAction:
        """Write a Parquet file and return its action. The partition columns are in its path, as in Delta."""
        directory = "".join(f"{name}={value}/" for name, value in partition.items())
        path = f"{directory}{uuid.uuid4()}.parquet"
        (self.path / directory).mkdir(exist_ok=True)
        try:
            pq.write_table(rows.drop_columns(list(partition)), self.path / path, compression="zstd")
        except BaseException:
            (self.path / path).unlink(missing_ok=True)
            raise
        size = (self.path / path).stat().st_size
        statistics = json.dumps({"numRecords": rows.num_rows})
        return AddAction(path, size, dict(partition), _wall_ms(), True, statistics)

    def _commit_files(self, written: Sequence[AddAction], change: Change, commit_id: str) -> None:
        now_ms = _wall_ms()
        removed = [RemoveAction(file.path, True, now_ms, file.size, dict(file.partition)) for file in change.remove]
        transactions = [Transaction(*each) for each in change.transactions]
        marks = {COMMIT_ID: commit_id, ACTIONS: len(written) + len(removed) + len(transactions)}
        self._table.create_write_transaction(
            [*written, *removed],
            "append",
            self._definition.schema,
            list(self._definition.partition_by),
            commit_properties=CommitProperties(
                custom_metadata=marks, max_commit_retries=0, app_transactions=transactions or None
            ),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False),
        )

    def _after_failure(self, error: Exception, written: Sequence[AddAction], commit_id: str) -> None:
        """Return without error if the commit exists after all. Otherwise remove its files and raise.

        Raise `CommitConflict` if there is a newer version of another writer (a lost race), else `KafkaStorageError`.
        """
        before = self._table.version()
        self.refresh()
        if self._has_committed(commit_id, before + 1):
            return  # the error came after the commit
        for action in written:
            (self.path / action.path).unlink(missing_ok=True)
        if self._table.version() != before:
            raise CommitConflict(str(error)) from error
        raise KafkaStorageError(f"cannot commit to {self.path}: {_first_line(error)}") from error

    def _has_committed(self, commit_id: str, first_version: int) -> bool:
        """Return whether the log has this commit at or after a version. Raise `KafkaStorageError` if it cannot be read."""
        try:
            return any(
                commit_id.encode() in entry_path(self.path, version).read_bytes()
                for version in range(first_version, self._table.version() + 1)
            )
        except OSError as error:
            raise KafkaStorageError(f"cannot read the log of {self.path}: {error}") from error


def _open(path: Path) -> DeltaTable:
    try:
        return DeltaTable(path)
    except (DeltaError, OSError) as error:
        hint = ""
        if _damage_of(path) is not None:
            hint = " Its log is damaged, as after a loss of power; starting a broker on the lake mends it."
        raise LakeError(f"cannot open the Delta table {path}: {_first_line(error)}.{hint}") from error


def _open_or_create(path: Path, definition: TableDefinition, disk: Disk) -> DeltaTable:
    try:
        _mend(path, definition, disk)
    except OSError as error:
        raise LakeError(f"cannot mend the Delta table {path}: {error}") from error
    if not DeltaTable.is_deltatable(str(path)):
        return _create(path, definition, disk)
    try:
        return _open_whole(path, definition)
    except LakeError:
        if not definition.expendable:
            raise
        _log.warning("the Delta table %s cannot be read and is begun anew", path, exc_info=True)
    try:
        _begin_anew(path, disk)
    except OSError as error:
        raise LakeError(f"cannot begin the Delta table {path} anew: {error}") from error
    return _create(path, definition, disk)


def _open_whole(path: Path, definition: TableDefinition) -> DeltaTable:
    """Open a table, checking that the rows can be read if it is expendable."""
    table = _open(path)
    if definition.expendable:
        for file in _data_files(table):
            _read_file(path, definition, file)
    return table


def _create(path: Path, definition: TableDefinition, disk: Disk) -> DeltaTable:
    try:
        table = DeltaTable.create(
            path,
            definition.schema,
            partition_by=list(definition.partition_by),
            name=path.name,
            configuration=definition.properties,
        )
        _force_created(path, disk)
        return table
    except (DeltaError, OSError) as error:
        if not DeltaTable.is_deltatable(str(path)):  # else another process has just created it
            raise LakeError(f"cannot create the Delta table {path}: {_first_line(error)}") from error
    return _open(path)


def _force_created(path: Path, disk: Disk) -> None:
    """Fsync a table's first entry and its directories."""
    disk.force(entry_path(path, 0))
    for directory in _named_directories(path):
        disk.force_directory(directory)


def _named_directories(path: Path) -> tuple[Path, ...]:
    """Return the directories whose fsync makes the names from the lake down to a table's log entries durable."""
    return log_path(path), path, path.parent, path.parent.parent


def _with_columns(table: DeltaTable, path: Path, definition: TableDefinition, disk: Disk) -> DeltaTable:
    """Add columns introduced by later versions of kafkalake (null in old rows) and return the table.

    Raise `LakeError` if that fails.
    """
    missing = _missing_columns(table, definition)
    if not missing:
        return table
    try:
        table.alter.add_columns(missing)
        disk.force(entry_path(path, table.version()))
        disk.force_directory(log_path(path))
    except (DeltaError, OSError) as error:
        table.update_incremental()
        if _missing_columns(table, definition):  # else another process has just added them
            raise LakeError(f"cannot add columns to {path}: {_first_line(error)}") from error
    return table


def _missing_columns(table: DeltaTable, definition: TableDefinition) -> list[Field]:
    there = {column.name for column in table.schema().fields}
    return [column for column in Schema.from_arrow(definition.schema).fields if column.name not in there]


def _damage_of(path: Path) -> Damage | None:
    """Return the damage of a log, or None. It is checked twice, because a listing during concurrent writes may have a gap."""
    damage = find_damage(path)
    return damage if damage is not None and damage == find_damage(path) else None


def _mend(path: Path, definition: TableDefinition, disk: Disk) -> None:
    """Repair a damaged log. Raise `LakeError` if it is beyond repair, `OSError` on I/O errors."""
    damage = _damage_of(path)
    if damage is not None and damage.lacks_first:
        set_aside(path, damage, disk)
        _write_first_entry(path, definition, disk)
        damage = _damage_of(path)
    if damage is None:
        return
    if not damage.lost:
        set_aside(path, damage, disk)
    elif definition.expendable:
        _log.warning("the Delta table %s has lost its first entries and is begun anew", path)
        _begin_anew(path, disk)
    else:
        raise LakeError(
            f"cannot open the Delta table {path}: {damage.reason} cannot be read, and the entries that it stood for "
            "were removed. Restore the directory from a backup."
        )


def _begin_anew(path: Path, disk: Disk) -> None:
    """Rename a log so that the table can be recreated."""
    disk.rename(log_path(path), path / f"_delta_log.torn-{uuid.uuid4()}")
    disk.force_directory(path)


def _write_first_entry(path: Path, definition: TableDefinition, disk: Disk) -> None:
    """Recreate entry 0, which contains only the definition."""
    scratch = path.parent / f".{path.name}-{uuid.uuid4()}"
    try:
        DeltaTable.create(
            scratch,
            definition.schema,
            partition_by=list(definition.partition_by),
            name=path.name,
            configuration=definition.properties,
        )
        disk.replace(entry_path(path, 0), entry_path(scratch, 0).read_bytes())
    except DeltaError as error:
        raise LakeError(f"cannot mend the Delta table {path}: {_first_line(error)}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _first_line(error: Exception) -> str:
    """Return the first line of a message, because delta-rs appends stack traces to some."""
    return str(error).partition("\n")[0].rstrip(".")


def _data_files(table: DeltaTable) -> list[DataFile]:
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


def _read_file(root: Path, definition: TableDefinition, file: DataFile) -> pa.Table:
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
    rows = pa.Table.from_arrays(columns, schema=definition.schema)
    definition.check(rows)
    return rows


def _column(stored: pa.Table, column: pa.Field) -> pa.Array | pa.ChunkedArray:
    """Return a column of a file, or nulls if the file was written before the column was added."""
    if column.name not in stored.column_names and column.name in _ADDED_COLUMNS:
        return pa.nulls(stored.num_rows, column.type)
    return stored.column(column.name).cast(column.type)


def _concatenate(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *tables])


def _wall_ms() -> int:
    # Vacuum compares Delta's times (file modified, file removed) with the machine's clock, not with ours.
    return time.time_ns() // 1_000_000
