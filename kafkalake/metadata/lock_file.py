"""The lock files of brokers, `<lake>/logs/<broker id>/.lock`: a flock for the life of a process, and the row of its lease.

The content is JSON and identifies the holder of the lock for refusals. It is fresher than the table `brokers`, and has its full
size from the start, so that it can be written on a full disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from kafkalake.errors import LakeError
from kafkalake.machine import boot_id, is_of_one_machine
from kafkalake.metadata import paths
from kafkalake.metadata.tables.schemas import BrokerRow

_HOLDER_BYTES = 4096
_FLOCK_ATTEMPTS = 5
_FLOCK_AGAIN_S = 0.02

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LockRow(BrokerRow):
    """The row of a lock file, with what concerns only the next process.

    replaces: the lease in place of which this row is about to be committed, as its process has ended. takes_over: a process before
    this one, which may still run, has files of the logs open that are not replaced yet.
    """

    replaces: str = ""
    takes_over: bool = False


@dataclass(frozen=True)
class Machine:
    """The identity of a machine. `boot_id`: in hexadecimal, None if unknown.

    alone: only one running kernel can mount the lake's file system, so a free lock there is free for every process.
    """

    name: str
    boot_id: str | None
    alone: bool = False

    @classmethod
    def here(cls, lake: Path) -> Machine:
        """Return this machine with respect to `lake`."""
        return cls(socket.gethostname(), boot_id().hex() if any(boot_id()) else None, is_of_one_machine(lake))

    def proves_end_of(self, row: BrokerRow, holder: BrokerRow | None) -> bool:
        """Return whether a free lock file with content `holder` proves that the process of `row` has ended.

        It must be the lock of that process (a removed file would be recreated without it), and one that it would still hold: from
        the same kernel, or on a file system that no other running kernel can mount. That of a candidate which was killed before it
        replaced the row says that the process had ended, and a free lock that the candidate has.
        """
        if holder is None:
            return False
        if isinstance(holder, LockRow) and holder.replaces == row.lease_id:
            boot_id = holder.boot_id
        elif holder.lease_id == row.lease_id:
            boot_id = row.boot_id
        else:
            return False
        return self.alone or (boot_id is not None and boot_id == self.boot_id)


def running_brokers(lake: Path, rows: Iterable[BrokerRow], now_ms: int) -> frozenset[int]:
    """Return the ids of brokers that seem to run: their flock is taken, or it proves nothing and their lease has not expired.

    No lock is kept, so the result may be outdated at once.
    """
    machine = Machine.here(lake)
    running = set()
    for row in rows:
        with _looked_at(lake, row.broker_id) as (flock_free, holder):
            expires_ms = row.lease_expires_at_ms
            if holder is not None and holder.lease_id == row.lease_id:
                expires_ms = max(expires_ms, holder.lease_expires_at_ms)
            if not flock_free or (expires_ms > now_ms and not machine.proves_end_of(row, holder)):
                running.add(row.broker_id)
    return frozenset(running)


def look_at_lock(lake: Path, broker_id: int) -> tuple[bool, str]:
    """Return whether a process that this file system knows holds the flock of a broker, and its lease. No lock is kept.

    The lease is a text that changes with each renewal, empty if it cannot be read.
    """
    with _looked_at(lake, broker_id) as (flock_free, holder):
        return not flock_free, "" if holder is None else f"{holder.lease_id} {holder.lease_expires_at_ms}"


@contextmanager
def _looked_at(lake: Path, broker_id: int) -> Iterator[tuple[bool, BrokerRow | None]]:
    """Yield whether a broker's flock is free, and the content of its lock file (None: no file or no row)."""
    try:
        descriptor = os.open(paths.lock_path(lake, broker_id), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield True, None
        return
    try:
        yield try_flock(descriptor, fcntl.LOCK_SH), read_holder(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def holding_logs(lake: Path, broker_id: int) -> Iterator[bool]:
    """Keep a broker of this machine from starting during work on its logs. Yield whether its lock was free.

    This does not cover brokers on other machines, see `running_brokers`. Raise `LakeError` if the lock file cannot be opened or
    locks are not supported.
    """
    descriptor = open_lock_file(paths.lock_path(lake, broker_id))
    try:
        yield try_flock(descriptor)
    finally:
        os.close(descriptor)


def holders(lake: Path) -> list[BrokerRow]:
    """Return the lease holders from the lock files, newest first. These are fresher than the table and cheaper to read.

    A killed process is still included. Unreadable files are skipped.
    """
    found = []
    for path in sorted((lake / paths.LOG_DIRECTORY).glob(f"*/{paths.LOCK_FILE}")):
        with contextlib.suppress(OSError):
            row = read_holder_at(path)
            if row is not None:
                found.append(row)
    return sorted(found, key=lambda row: -row.lease_expires_at_ms)


def open_lock_file(path: Path) -> int:
    """Open a lock file, created if missing, and return its descriptor. Raise `LakeError` if that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LakeError(f"cannot open the lock file {path}: {error.strerror or error}") from error


def try_flock(descriptor: int, kind: int = fcntl.LOCK_EX, attempts: int = _FLOCK_ATTEMPTS) -> bool:
    """Try to take the lock and return whether that worked, by default retrying longer than `running_brokers` holds it to look.

    Raise `LakeError` if the file system does not support locks.
    """
    for attempt in range(attempts):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt < attempts - 1:
                time.sleep(_FLOCK_AGAIN_S)
        except OSError as error:
            raise LakeError(f"the file system does not support locks (flock): {error.strerror}") from error
    return False


def is_at(path: Path, descriptor: int) -> bool:
    """Return whether the open file is still the one at `path`, neither removed nor replaced."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False


def write_holder(descriptor: int, row: BrokerRow | None, *, sync: bool = False) -> bool:
    """Write the row (None: no holder) in place and return whether that worked. The fixed size lets it succeed on a full disk."""
    content = b"" if row is None else json.dumps(asdict(row)).encode()
    try:
        os.pwrite(descriptor, content.ljust(_HOLDER_BYTES), 0)
        if sync:
            os.fdatasync(descriptor)
    except OSError as error:
        logger.warning("lock file not written error=%s", error)
        return False
    return True


def read_holder(descriptor: int) -> BrokerRow | None:
    """Return the row in the lock file, or None if it is empty or being written."""
    try:
        found = json.loads(os.pread(descriptor, 65_536, 0))
        kind = LockRow if "replaces" in found else BrokerRow
        names = {each.name for each in fields(kind)}
        return kind(**{name: value for name, value in found.items() if name in names})
    except (ValueError, TypeError, AttributeError):
        return None


def read_holder_at(path: Path) -> BrokerRow | None:
    """Open the lock file and return its row, or None. Over NFS only a new open shows another machine's writes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return read_holder(descriptor)
    finally:
        os.close(descriptor)
