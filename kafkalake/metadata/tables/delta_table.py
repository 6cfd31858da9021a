"""One Delta table held open: its current files, their rows, and commits that swap files.

Written with `deltalake` (delta-rs). A commit is made of whole files: rows to add go to new Parquet files, files to
remove are named, and both happen in one version. That is 2 ms where a predicate overwrite takes 5-7, and it is what lets
a publish drop some rows and add others in one commit.

Commits compare and swap: delta-rs is told not to retry, so a commit succeeds only on the version that this handle has
seen (`CommitConflict` otherwise) and whoever decides, decides again on fresh rows.

What costs is listing `_delta_log`: 3 ms a commit per 1,000 files in it. So tables have a log retention. delta-rs would
look for expired entries after every commit, which quadruples that; here it is done once per `CLEANUP_INTERVAL` versions.

What must outlive a loss of power is forced to the disk before a call returns, with all that came before it in the log, whoever
wrote that: an entry is nothing without those below it. Checkpoints are written by `delta_checkpoint`, in an order that leaves a
log readable at any moment; what a loss of power damages all the same, a start mends (`damaged_log`). A commit whose outcome
is unknown (the error came after it was written) is found by the id that it carries.

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
"""In the `commitInfo` of our commits: which one it is."""
_ADDED_COLUMNS = frozenset({"boot_id", "lease_duration"})
"""Columns that version 0.1 did not have."""

_log = logging.getLogger(__name__)


class CommitConflict(Exception):
    """Another writer committed first; the table has to be read again. Never leaves this package."""


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """What a table is created with. `history` is how long old versions stay readable, as Delta writes intervals.

    expendable: what it says is said elsewhere too, or may be forgotten; a table that cannot be mended is begun anew.
    check: called with the rows of each file that is read; raises `LakeError` where they must not be believed.
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
    """A Parquet file of the current version; `path` as in Delta's log."""

    path: str
    size: int
    records: int
    partition: Mapping[str, str]


class TableSize(NamedTuple):
    """Files of the current version, entries of the log, and bytes of everything."""

    files: int
    log_entries: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Change:
    """What one commit does: rows of `add` (one file each; empty ones are left out), and the files of `remove`."""

    add: Sequence[pa.Table] = ()
    remove: Sequence[DataFile] = ()
    transactions: Sequence[tuple[str, int]] = ()
    partition: Mapping[str, str] = field(default_factory=dict)


class OpenDeltaTable:
    """A table at the newest version that this handle has seen. Not thread-safe: its owner locks."""

    def __init__(self, path: Path, definition: TableDefinition, *, create: bool, disk: Disk = DISK) -> None:
        """Opens the table, creating it first if `create`, or mending what a loss of power has left of it.

        Raises `LakeError` when it cannot be opened.
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
        """Files that could not be forced: the kernel may have dropped what it could not write, and says so only once."""

    @property
    def version(self) -> int:
        return self._table.version()

    def is_outdated(self) -> bool:
        """Whether there is a version after the one seen: one look for one file, where `refresh` lists the log."""
        return entry_path(self.path, self._table.version() + 1).exists()

    def refresh(self) -> None:
        """Move to the newest version."""
        before = self._table.version()
        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise KafkaStorageError(f"cannot read the log of {self.path}: {_first_line(error)}") from error
        if self._table.version() != before:
            self._files = None
            self._transactions = {}

    def transaction_version(self, app_id: str) -> int | None:
        """Newest `txn` version of `app_id` in the log."""
        if app_id not in self._transactions:
            with self._reading():
                self._transactions[app_id] = self._table.transaction_version(app_id)
        return self._transactions[app_id]

    def files(self) -> list[DataFile]:
        """The files of this version."""
        if self._files is None:
            with self._reading():
                self._files = _data_files(self._table)
            current = {file.path for file in self._files}
            self._rows = {path: rows for path, rows in self._rows.items() if path in current}
        return self._files

    def rows(self, file: DataFile) -> pa.Table:
        """The rows of one current file, in the table's schema. Kept in memory until the file is removed."""
        if file.path not in self._rows:
            self._rows[file.path] = _read_file(self.path, self._definition, file)
        return self._rows[file.path]

    def read(self) -> pa.Table:
        """All rows of this version."""
        return _concatenate(self._definition.schema, (self.rows(file) for file in self.files()))

    def read_version(self, version: int) -> pa.Table:
        """All rows of an older version. Raises `LakeError` when it is not there (any more)."""
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
        """Newest version committed at or before the time. Raises `LakeError` when the log does not reach so far back."""
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
        try:
            table = DeltaTable(self.path)
            table.load_as_version(moment)
            version = table.version()
            # delta-rs answers with its oldest version when all are younger. Delta's time of a version is its file's.
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
        """Commit `change` on top of the version seen and move to the new one.

        With `durable` it outlives a loss of power, and so does all that was committed before it. Raises `CommitConflict` when
        another version came first (then refreshed), `KafkaStorageError` on I/O errors: whether the commit has happened is then
        not known, and whoever decides again on fresh rows finds out.
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
        """Have the disk keep this version: its entries since the last checkpoint, that, and its data files.

        Raises `KafkaStorageError`.
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
            # Whoever made the table may have been killed before it forced the names.
            for directory in _named_directories(self.path) if self._forced_version is None else (log,):
                self._disk.force_directory(directory)
        except OSError as error:
            raise KafkaStorageError(f"cannot force {self.path} to the disk: {error}") from error
        self._forced_version = version
        self._forced_files = frozenset(file.path for file in self.files())

    def commit_decided(
        self, decide: Callable[[], Change | None], *, durable: bool = False, randomness: random.Random | None = None
    ) -> None:
        """Commit what `decide` wants on the version seen, deciding anew when another writer was faster.

        None from `decide`: nothing is to be done. Raises `KafkaStorageError`, also after `ATTEMPTS_MAX` lost races.
        """
        uniform = (randomness or random).uniform
        for attempt in range(ATTEMPTS_MAX):
            change = decide()
            if change is None:
                if durable:
                    self.force()  # it may be there since a commit that failed at just that
                return
            try:
                self.commit(change, durable=durable)
                return
            except CommitConflict:
                # Writers that keep step with each other would collide for ever.
                time.sleep(uniform(0, 0.002 * (attempt + 1)))
        raise KafkaStorageError(f"{self.path}: other writers were faster {ATTEMPTS_MAX} times in a row; try again.")

    def maintain(self, history: str | None = None) -> None:
        """Remove log entries and files that only versions past their retention need.

        history: how long old versions stay readable from now on, as Delta writes intervals; None: as the table has it. Raises
        `KafkaStorageError`.
        """
        try:
            self.refresh()
            self._keep_history(history)
            self.force()
            write_checkpoint(self.path, self._table.version(), self._disk)  # entries go only where one stands for them
            remove_leftovers(self.path)
            self._table.cleanup_metadata()
            self._table.vacuum(dry_run=False, full=True)
            self.refresh()
        except (DeltaError, OSError) as error:
            raise KafkaStorageError(f"cannot clean up {self.path}: {_first_line(error)}") from error

    def size(self) -> TableSize:
        """What the table takes on the disk, old versions included. Raises `KafkaStorageError`."""
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
        """What delta-rs raises inside becomes `KafkaStorageError`."""
        try:
            yield
        except (DeltaError, OSError) as error:
            raise KafkaStorageError(f"cannot read the log of {self.path}: {_first_line(error)}") from error

    def _force_files(self, data_files: Iterable[str]) -> None:
        """Have the disk keep data files and their names. Raises `OSError`."""
        paths = [self.path / file for file in data_files if file not in self._forced_files]
        for path in paths:
            self._force(path)
        for directory in sorted({parent for path in paths for parent in (path.parent, self.path)}):
            self._disk.force_directory(directory)

    def _force(self, file: Path) -> None:
        """Have the disk keep a file; one that failed once is written again. Raises `OSError`."""
        try:
            if file in self._doubtful:
                self._disk.replace(file, file.read_bytes())
                self._doubtful.discard(file)
            else:
                self._disk.force(file)
        except FileNotFoundError:
            self._doubtful.discard(file)  # removed meanwhile: nobody needs it any more
        except OSError:
            self._doubtful.add(file)
            raise

    def _write_checkpoint(self) -> None:
        """Without one, readers read a longer log; the next is as good."""
        try:
            self.force()
            write_checkpoint(self.path, self._table.version(), self._disk)
        except (DeltaError, OSError, KafkaStorageError) as error:
            _log.warning("cannot write a checkpoint of %s: %s", self.path, _first_line(error))

    def _clean_log(self) -> None:
        """Remove expired log entries; the commit stands when that fails, and the next time may do better."""
        try:
            self._table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            _log.warning("cannot remove expired log entries of %s: %s", self.path, error)

    def _write_file(self, rows: pa.Table, partition: Mapping[str, str]) -> AddAction:
        """Write a Parquet file; the partition columns live in its path, as Delta has it."""
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
        """Tell a lost race from a failed disk: in a race there is a newer version than the one seen, which is not ours."""
        before = self._table.version()
        self.refresh()
        if self._has_committed(commit_id, before + 1):
            return  # what failed came after it
        for action in written:
            (self.path / action.path).unlink(missing_ok=True)
        if self._table.version() != before:
            raise CommitConflict(str(error)) from error
        raise KafkaStorageError(f"cannot commit to {self.path}: {_first_line(error)}") from error

    def _has_committed(self, commit_id: str, first_version: int) -> bool:
        """Whether the log has the commit with this id from a version on. Raises `KafkaStorageError`."""
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
    """Open a table; one that is expendable only if its rows can be read."""
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
    """Have the disk keep a table's first entry and the names of its directories."""
    disk.force(entry_path(path, 0))
    for directory in _named_directories(path):
        disk.force_directory(directory)


def _named_directories(path: Path) -> tuple[Path, ...]:
    """Return the directories with the names that lead from the lake to a table's log and to its entries."""
    return log_path(path), path, path.parent, path.parent.parent


def _with_columns(table: DeltaTable, path: Path, definition: TableDefinition, disk: Disk) -> DeltaTable:
    """The table with the columns that came with a later version of kafkalake; in rows from before they are null.

    Raises `LakeError`.
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
    """The damage of a log, the same at two looks: a listing made while others write may have a gap."""
    damage = find_damage(path)
    return damage if damage is not None and damage == find_damage(path) else None


def _mend(path: Path, definition: TableDefinition, disk: Disk) -> None:
    """Leave a log that can be read. Raises `LakeError`, where nothing can be done; `OSError`."""
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
    """Put a log out of the way."""
    disk.rename(log_path(path), path / f"_delta_log.torn-{uuid.uuid4()}")
    disk.force_directory(path)


def _write_first_entry(path: Path, definition: TableDefinition, disk: Disk) -> None:
    """Write entry 0 anew: it says no more than the definition does."""
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
    """delta-rs appends stack traces to some messages."""
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
    """A column of a file; nulls where the file was written before the table had that column."""
    if column.name not in stored.column_names and column.name in _ADDED_COLUMNS:
        return pa.nulls(stored.num_rows, column.type)
    return stored.column(column.name).cast(column.type)


def _concatenate(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *tables])


def _wall_ms() -> int:
    # Delta's own times (file modified, file removed) are read against the machine's clock by vacuum, not against ours.
    return time.time_ns() // 1_000_000
