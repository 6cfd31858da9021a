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
import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction

from kafkalake.errors import KafkaStorageError, LakeError
from kafkalake.metadata.damaged_log import ACTIONS
from kafkalake.metadata.delta_checkpoint import (
    checkpoint_versions,
    entry_path,
    log_path,
    remove_leftovers,
    write_checkpoint,
)
from kafkalake.metadata.disk import DISK, Disk, FileForcing
from kafkalake.metadata.tables.data_files import (
    DataFile,
    TableDefinition,
    committed_ms,
    data_files,
    first_line,
    read_file,
    wall_ms,
    write_file,
)
from kafkalake.metadata.tables.opening import named_directories, open_or_create, open_table

CLEANUP_INTERVAL = 1_000
ATTEMPTS_MAX = 20
REFRESH_INTERVAL_S = 60
COMMIT_ID = "kafkalakeCommit"
"""The key of a commit's id in the `commitInfo` of our commits."""
logger = logging.getLogger(__name__)


class CommitConflict(Exception):
    """A lost race against another writer. The table must be read again. Never leaves this package."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """The content of one commit: tables to `add` (one file each, empty ones skipped) and files to `remove`.

    All rows of a table to add have the same values in the columns that the Delta table is partitioned by.
    """

    add: Sequence[pa.Table] = ()
    remove: Sequence[DataFile] = ()
    transactions: Sequence[tuple[str, int]] = ()


class OpenDeltaTable:
    """A table at the newest version seen by this handle. Not thread-safe: the owner locks."""

    def __init__(self, path: Path, definition: TableDefinition, *, create: bool, disk: Disk = DISK) -> None:
        """Open the table. With `create`, create it if missing and repair damage by a power loss.

        Raise `LakeError` if it cannot be opened.
        """
        self.path = path
        self._definition = definition
        self._disk = disk
        self._forcing = FileForcing(disk)
        self._table = open_or_create(path, definition, disk) if create else open_table(path)
        self._files: list[DataFile] | None = None
        self._rows: dict[str, pa.Table] = {}
        self._all_rows: pa.Table | None = None
        self._refreshed_s = time.monotonic()
        self._transactions: dict[str, int | None] = {}
        self._forced_version: int | None = None
        self._forced_files: frozenset[str] = frozenset()

    @property
    def version(self) -> int:
        return self._table.version()

    def refresh_if_outdated(self) -> None:
        """Move to the newest version as `refresh` does, which lists the log, if one of two files shows that there is one.

        The next version's entry is there, or was removed after this one's. A cleanup that was killed may have removed it alone,
        which nobody sees who looks once a minute: entries are kept for longer.
        """
        version = self._table.version()
        if (
            time.monotonic() - self._refreshed_s > REFRESH_INTERVAL_S
            or entry_path(self.path, version + 1).exists()
            or not entry_path(self.path, version).exists()
        ):
            self.refresh()

    def refresh(self) -> None:
        """Move to the newest version. Raise `KafkaStorageError` if the log cannot be read."""
        before = self._table.version()
        self._refreshed_s = time.monotonic()
        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise KafkaStorageError(f"cannot read the log of {self.path}: {first_line(error)}") from error
        if self._table.version() != before:
            self._files = None
            self._all_rows = None
            self._transactions = {}

    def transaction_version(self, app_id: str) -> int | None:
        """Return the newest `txn` version of `app_id` in the log, or None."""
        if app_id not in self._transactions:
            with self._reading():
                self._transactions[app_id] = self._table.transaction_version(app_id)
        return self._transactions[app_id]

    def has_later(self, app_id: str, version: int) -> bool:
        """Return whether the newest `txn` version of `app_id` is larger: a writer of `version` is late."""
        last = self.transaction_version(app_id)
        return last is not None and last > version

    def files(self) -> list[DataFile]:
        """Return the files of this version."""
        if self._files is None:
            with self._reading():
                self._files = data_files(self._table)
            current = {file.path for file in self._files}
            self._rows = {path: rows for path, rows in self._rows.items() if path in current}
        return self._files

    def rows(self, file: DataFile) -> pa.Table:
        """Return the rows of one current file in the table's schema. They are kept in memory until the file is removed."""
        if file.path not in self._rows:
            self._rows[file.path] = read_file(self.path, self._definition, file)
        return self._rows[file.path]

    def read(self) -> pa.Table:
        """Return all rows of this version."""
        if self._all_rows is None:
            self._all_rows = _concatenate(self._definition.schema, (self.rows(file) for file in self.files()))
        return self._all_rows

    def read_version(self, version: int) -> pa.Table:
        """Return all rows of a version. Raise `LakeError` if it does not exist (any more)."""
        newest = self._table.version()
        if version == newest:
            return self.read()
        if version > newest:
            raise LakeError(f"version {version} of {self.path} cannot be read: the newest is {newest}")
        try:
            table = DeltaTable(self.path, version=version)
            schema = self._definition.schema
            return _concatenate(schema, (read_file(self.path, self._definition, file) for file in data_files(table)))
        except (DeltaError, OSError) as error:
            raise LakeError(
                f"version {version} of {self.path} cannot be read: the newest is {newest}, and versions "
                f"older than {self._definition.history.removeprefix('interval ')} are removed ({first_line(error)})"
            ) from error

    def version_at(self, timestamp_ms: int) -> int:
        """Return the newest version committed at or before the time. Raise `LakeError` if the log does not reach that far back."""
        version = self.version_at_or_oldest(timestamp_ms)
        oldest_ms = committed_ms(self.path, version)
        if oldest_ms > timestamp_ms:
            moment, oldest = _utc(timestamp_ms).isoformat(), _utc(oldest_ms).isoformat()
            raise LakeError(f"no version of {self.path} at {moment}: the oldest is {version} of {oldest}")
        return version

    def version_at_or_oldest(self, timestamp_ms: int) -> int:
        """Return the newest version committed at or before the time, or the oldest if all are younger.

        Raise `LakeError` if the log cannot be read.
        """
        try:
            table = DeltaTable(self.path)
            table.load_as_version(_utc(timestamp_ms))
            return table.version()
        except (DeltaError, OSError, ValueError) as error:
            raise LakeError(
                f"no version of {self.path} at {_utc(timestamp_ms).isoformat()}: {first_line(error)}"
            ) from error

    def commit(self, change: TableChange, *, durable: bool = False, commit_id: str | None = None) -> None:
        """Commit `change` on top of the version seen and move to the new version.

        With `durable`, the commit and all earlier ones survive a power loss. Raise `CommitConflict` if another version came first
        (the table is then refreshed), `KafkaStorageError` on I/O errors. The outcome is then unknown and shows when the change is
        decided again on fresh rows, or by `has_committed` with a `commit_id` that the caller has made.
        """
        before = self._table.version()
        written: list[AddAction] = []
        commit_id = commit_id or uuid.uuid4().hex
        try:
            for rows in change.add:
                if rows.num_rows:
                    written.append(write_file(self.path, self._definition, rows))
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
        if self._forced_version == version and not self._forcing.has_failed:
            return
        try:
            log = log_path(self.path)
            first = self._forced_version
            if first is None:
                checkpoints = checkpoint_versions(os.listdir(log))
                first = max(checkpoints, default=-1)
                for name in checkpoints.get(first, ()):
                    self._forcing.force(log / name)
            self._force_files(file.path for file in self.files())
            for number in range(first + 1, version + 1):
                self._forcing.force(entry_path(self.path, number))
            # The creator of the table may have been killed before its fsync of the directories.
            for directory in named_directories(self.path) if self._forced_version is None else (log,):
                self._disk.force_directory(directory)
        except OSError as error:
            raise KafkaStorageError(f"cannot force {self.path} to the disk: {error}") from error
        self._forced_version = version
        self._forced_files = frozenset(file.path for file in self.files())

    def commit_decided(
        self, decide: Callable[[], TableChange | None], *, durable: bool = False, randomness: Random | None = None
    ) -> None:
        """Commit the change returned by `decide` (None: no change), deciding again after each lost race.

        Raise `KafkaStorageError` on I/O errors and after `ATTEMPTS_MAX` lost races.
        """
        uniform = (randomness or Random()).uniform
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
            raise KafkaStorageError(f"cannot clean up {self.path}: {first_line(error)}") from error

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
            raise KafkaStorageError(f"cannot read the log of {self.path}: {first_line(error)}") from error

    def _force_files(self, data_files: Iterable[str]) -> None:
        """Fsync data files and their directories. Raise `OSError` if that fails."""
        files = frozenset(data_files) - self._forced_files
        paths = sorted(self.path / file for file in files)
        for path in paths:
            self._forcing.force(path)
        for directory in sorted({parent for path in paths for parent in (path.parent, self.path)}):
            self._disk.force_directory(directory)
        self._forced_files |= files

    def _write_checkpoint(self) -> None:
        """Write a checkpoint. A failure is only logged: readers read a longer log until the next checkpoint."""
        try:
            self.force()
            write_checkpoint(self.path, self._table.version(), self._disk)
        except (DeltaError, OSError, KafkaStorageError) as error:
            logger.warning("cannot write a checkpoint of %s: %s", self.path, first_line(error))

    def _clean_log(self) -> None:
        """Remove expired log entries. A failure is only logged and retried the next time, as the commit is done."""
        try:
            self._table.cleanup_metadata()
        except (DeltaError, OSError) as error:
            logger.warning("cannot remove expired log entries of %s: %s", self.path, error)

    def _commit_files(self, written: Sequence[AddAction], change: TableChange, commit_id: str) -> None:
        now_ms = wall_ms()
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
        if self.has_committed(commit_id, before + 1):
            return  # the error came after the commit
        for action in written:
            (self.path / action.path).unlink(missing_ok=True)
        if self._table.version() != before:
            raise CommitConflict(str(error)) from error
        raise KafkaStorageError(f"cannot commit to {self.path}: {first_line(error)}") from error

    def has_committed(self, commit_id: str, first_version: int) -> bool:
        """Return whether the log has this commit at or after a version. Raise `KafkaStorageError` if it cannot be read."""
        try:
            return any(
                commit_id.encode() in entry_path(self.path, version).read_bytes()
                for version in range(first_version, self._table.version() + 1)
            )
        except OSError as error:
            raise KafkaStorageError(f"cannot read the log of {self.path}: {error}") from error


def _concatenate(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *tables])


def _utc(timestamp_ms: int) -> datetime:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC)
