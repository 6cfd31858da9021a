"""One Delta table held open: its current files, their rows, and commits that swap files.

Written with `deltalake` (delta-rs). A commit is made of whole files: rows to add go to new Parquet files, files to
remove are named, and both happen in one version. That is 2 ms where a predicate overwrite takes 5-7, and it is what lets
a publish drop some rows and add others in one commit.

Commits compare and swap: delta-rs is told not to retry, so a commit succeeds only on the version that this handle has
seen (`CommitConflict` otherwise) and whoever decides, decides again on fresh rows.

What costs is listing `_delta_log`: 3 ms a commit per 1,000 files in it. So tables have a log retention. delta-rs would
look for expired entries after every commit, which quadruples that; here it is done once per `CLEANUP_INTERVAL` versions.

Source: Delta protocol, "Delta Transaction Log Protocol".
"""

from __future__ import annotations

import json
import logging
import os
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from kafkalake.errors import KafkaStorageError, LakeError

CLEANUP_INTERVAL = 1_000
ATTEMPTS_MAX = 20

_log = logging.getLogger(__name__)


class CommitConflict(Exception):
    """Another writer committed first; the table has to be read again. Never leaves this package."""


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """What a table is created with. `history` is how long old versions stay readable, as Delta writes intervals."""

    schema: pa.Schema
    history: str
    partition_by: tuple[str, ...] = ()
    checkpoint_interval: int = 100

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

    def __init__(self, path: Path, definition: TableDefinition, *, create: bool) -> None:
        """Opens the table, creating it first if `create`. Raises `LakeError` when it cannot be opened."""
        self.path = path
        self._definition = definition
        self._table = _open_or_create(path, definition) if create else _open(path)
        self._files: list[DataFile] | None = None
        self._rows: dict[str, pa.Table] = {}
        self._transactions: dict[str, int | None] = {}

    @property
    def version(self) -> int:
        return self._table.version()

    def is_outdated(self) -> bool:
        """Whether there is a version after the one seen: one look for one file, where `refresh` lists the log."""
        return (self.path / "_delta_log" / f"{self._table.version() + 1:020}.json").exists()

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
            self._transactions[app_id] = self._table.transaction_version(app_id)
        return self._transactions[app_id]

    def files(self) -> list[DataFile]:
        """The files of this version."""
        if self._files is None:
            self._files = _data_files(self._table)
            current = {file.path for file in self._files}
            self._rows = {path: rows for path, rows in self._rows.items() if path in current}
        return self._files

    def rows(self, file: DataFile) -> pa.Table:
        """The rows of one current file, in the table's schema. Kept in memory until the file is removed."""
        if file.path not in self._rows:
            self._rows[file.path] = _read_file(self.path, self._definition.schema, file)
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
            return _concatenate(schema, (_read_file(self.path, schema, file) for file in _data_files(table)))
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
            committed_ms = (self.path / "_delta_log" / f"{version:020}.json").stat().st_mtime_ns // 1_000_000
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

        With `durable` the new files and their directories are fsynced, for what must outlive a loss of power.
        Raises `CommitConflict` when another version came first (then refreshed), `KafkaStorageError` on I/O errors.
        """
        before = self._table.version()
        written: list[AddAction] = []
        try:
            written = [self._write_file(rows, change.partition) for rows in change.add if rows.num_rows]
            self._commit_files(written, change)
        except (CommitFailedError, DeltaError, OSError, pa.ArrowException) as error:
            self._after_failure(error, written)
        self.refresh()
        if durable:
            for version in range(before + 1, self._table.version() + 1):
                _sync(self.path / "_delta_log" / f"{version:020}.json")
            for action in written:
                _sync(self.path / action.path)
        if self._table.version() % CLEANUP_INTERVAL == 0:
            self._clean_log()

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
            self._table.create_checkpoint()  # entries go only where a checkpoint stands for them
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

    def _commit_files(self, written: Sequence[AddAction], change: Change) -> None:
        now_ms = _wall_ms()
        removed = [RemoveAction(file.path, True, now_ms, file.size, dict(file.partition)) for file in change.remove]
        transactions = [Transaction(*each) for each in change.transactions] or None
        self._table.create_write_transaction(
            [*written, *removed],
            "append",
            self._definition.schema,
            list(self._definition.partition_by),
            commit_properties=CommitProperties(max_commit_retries=0, app_transactions=transactions),
            post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
        )

    def _after_failure(self, error: Exception, written: Sequence[AddAction]) -> None:
        """Tell a lost race from a failed disk: in a race there is a newer version than the one seen."""
        before = self._table.version()
        self.refresh()
        mine = {action.path for action in written} & {file.path for file in self.files()}
        if mine:
            return  # the commit itself succeeded; what failed came after it (a checkpoint, say)
        for action in written:
            (self.path / action.path).unlink(missing_ok=True)
        if self._table.version() != before:
            raise CommitConflict(str(error)) from error
        raise KafkaStorageError(f"cannot commit to {self.path}: {_first_line(error)}") from error


def _open(path: Path) -> DeltaTable:
    try:
        return DeltaTable(path)
    except (DeltaError, OSError) as error:
        hint = ""
        if path.exists() and _torn_entry(path) is not None:
            hint = " The newest entry of its log is torn, as after a loss of power; starting a broker on the lake mends it."
        raise LakeError(f"cannot open the Delta table {path}: {_first_line(error)}.{hint}") from error


def _open_or_create(path: Path, definition: TableDefinition) -> DeltaTable:
    try:
        if not DeltaTable.is_deltatable(str(path)):
            return DeltaTable.create(
                path,
                definition.schema,
                partition_by=list(definition.partition_by),
                name=path.name,
                configuration=definition.properties,
            )
    except (DeltaError, OSError) as error:
        if not DeltaTable.is_deltatable(str(path)):  # else another process has just created it
            raise LakeError(f"cannot create the Delta table {path}: {_first_line(error)}") from error
    torn = _torn_entry(path)
    if torn is not None:
        _log.warning("setting aside %s: a commit that was cut off, as by a loss of power", torn)
        torn.rename(torn.with_name(f"{torn.name}.torn"))
    return _open(path)


def _torn_entry(path: Path) -> Path | None:
    """The newest entry of a table's log if it is not whole lines of JSON.

    Entries appear whole (a rename), so one that is cut was in the page cache when the power went. It was never
    acknowledged when it had to be durable, and what the publisher commits it commits again.
    """
    log = path / "_delta_log"
    newest = max((name for name in os.listdir(log) if name[0].isdigit() and name.endswith(".json")), default=None)
    if newest is None:
        return None
    try:
        for line in (log / newest).read_bytes().splitlines():
            json.loads(line)
    except ValueError:
        return log / newest
    return None


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


def _read_file(root: Path, schema: pa.Schema, file: DataFile) -> pa.Table:
    try:
        stored = pq.ParquetFile(root / file.path).read()
        columns = [
            pa.repeat(pa.scalar(file.partition[column.name]).cast(column.type), stored.num_rows)
            if column.name in file.partition
            else stored.column(column.name).cast(column.type)
            for column in schema
        ]
    except (OSError, KeyError, pa.ArrowException) as error:
        raise LakeError(f"cannot read {root / file.path}: {error}") from error
    return pa.Table.from_arrays(columns, schema=schema)


def _concatenate(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *tables])


def _sync(file: Path) -> None:
    for path in (file, file.parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _wall_ms() -> int:
    # Delta's own times (file modified, file removed) are read against the machine's clock by vacuum, not against ours.
    return time.time_ns() // 1_000_000
