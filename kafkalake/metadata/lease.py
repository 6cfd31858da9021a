"""The lease of a broker: one process runs broker N of a lake, and a second one is refused with a message naming the first.

Two locks complement each other:

- `flock` on `<lake>/logs/<broker id>/.lock`, held for the life of the process. The kernel releases it with the process, even after
  SIGKILL. Where the lock covers every possible process, a dead broker is replaced at once.
- the row in `brokers`, renewed every third of its 30 seconds, covers other machines. Its lease id is replaced by compare-and-swap,
  so there is one owner at a time. A holder not proven dead is given time to renew.

**No clock of another machine is trusted.** The holder stops by itself before its lease expires (`kafkalake.ownership`). A candidate
polls the row and the lock file until neither has changed for a whole lease by its *own* clock, which cannot be set. A jump of the
wall clock therefore costs no lease. The expiry in the row is for operators.

**A full disk does not end a lease.** The lock file has its full size from the start, so it can be renewed when the table cannot.
`Lease.renew` checks that the row still names this lease, then writes the lock file in place and fsyncs it. This counts only if
written before the lease expired: a candidate that waits a whole lease then sees the change at its last look, before it replaces the
row. After the expiry only the row decides.

`decide` is the whole rule. The lock file holds the row as JSON, which identifies the holder of the lock for refusals.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from pathlib import Path

from kafkalake.clock import Clock
from kafkalake.errors import KafkaStorageError, LakeError, LeaseHeldError
from kafkalake.machine import boot_id, is_of_one_machine
from kafkalake.metadata import paths, reserve
from kafkalake.metadata.changes import held_sentence
from kafkalake.metadata.store import MetadataStore
from kafkalake.metadata.tables.schemas import BrokerRow
from kafkalake.ownership import Ownership

LEASE_MS = 30_000
_HOLDER_BYTES = 4096
_LOOK_S_MAX = 0.5
_FLOCK_ATTEMPTS = 5
_FLOCK_AGAIN_S = 0.02

_log = logging.getLogger(__name__)


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
        the same kernel, or on a file system that no other running kernel can mount.
        """
        if holder is None or holder.lease_id != row.lease_id:
            return False
        return self.alone or (row.boot_id is not None and row.boot_id == self.boot_id)


class Decision(Enum):
    TAKE = "take"
    TAKE_OVER = "take over"
    WAIT = "wait"
    REFUSE = "refuse"


def decide(row: BrokerRow | None, *, flock_free: bool, has_ended: bool, unchanged_ms: int, lease_ms: int) -> Decision:
    """Return whether a broker may take the lease described by `row` (None: no holder).

    | flock | row                                  | decision                                                          |
    | ----- | ------------------------------------ | ----------------------------------------------------------------- |
    | taken | any                                  | refuse: the holder runs on the same file system                   |
    | free  | none                                 | take                                                              |
    | free  | of a process that has ended          | take, and continue its logs                                       |
    | free  | any, unchanged for a lease           | take over: it may still run, but neither writes nor answers       |
    | free  | any other                            | wait                                                              |

    has_ended: see `Machine.proves_end_of`. unchanged_ms: how long the row and the lock file have been observed unchanged.
    lease_ms: the candidate's lease, used if the row has none because a broker of 0.1 wrote it.
    """
    if not flock_free:
        return Decision.REFUSE
    if row is None or has_ended:
        return Decision.TAKE
    return Decision.TAKE_OVER if unchanged_ms >= _duration(row, lease_ms) else Decision.WAIT


def _duration(row: BrokerRow, lease_ms: int) -> int:
    return row.lease_duration if row.lease_duration is not None else max(LEASE_MS, lease_ms)


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


@contextmanager
def _looked_at(lake: Path, broker_id: int) -> Iterator[tuple[bool, BrokerRow | None]]:
    """Yield whether a broker's flock is free, and the content of its lock file (None: no file or no row)."""
    try:
        descriptor = os.open(paths.lock_path(lake, broker_id), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield True, None
        return
    try:
        yield _try_flock(descriptor, fcntl.LOCK_SH), _read_holder(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def holding_logs(lake: Path, broker_id: int) -> Iterator[bool]:
    """Keep a broker of this machine from starting during work on its logs. Yield whether its lock was free.

    This does not cover brokers on other machines, see `running_brokers`. Raise `LakeError` if the lock file cannot be opened or
    locks are not supported.
    """
    descriptor = _open_lock_file(paths.lock_path(lake, broker_id))
    try:
        yield _try_flock(descriptor)
    finally:
        os.close(descriptor)


@dataclass
class Lease:
    """A held lease.

    ownership: its certainty, extended by each renewal. took_over: the last holder may still run.
    """

    row: BrokerRow
    lease_ms: int
    ownership: Ownership
    took_over: bool
    _store: MetadataStore
    _clock: Clock
    _path: Path
    _descriptor: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def renew_interval_ms(self) -> int:
        """The interval between calls of `renew` in ms."""
        return self.lease_ms // 3

    def renew(self, *, host: str | None = None, port: int | None = None) -> None:
        """Extend the lease, optionally with a new address once the port is known.

        Raise `LeaseHeldError` if another broker has taken the lease (this machine slept past its expiry, say). The caller must then
        stop serving. Raise `KafkaStorageError` if neither the row nor, in time, the lock file could be written. The lease remains
        valid until it expires, and the caller should retry.
        """
        with self._lock:
            began_ms = self._clock.elapsed_ms()
            renewed = replace(
                self.row,
                host=self.row.host if host is None else host,
                port=self.row.port if port is None else port,
                lease_expires_at_ms=self._clock.now_ms() + self.lease_ms,
            )
            try:
                self._store.renew_broker(renewed)
                _write_holder(self._descriptor, renewed)
            except LeaseHeldError:
                self.ownership.end()
                raise
            except KafkaStorageError as error:
                self._renew_in_lock_file(renewed, error)
            self.row = renewed
            self.ownership.renewed(began_ms, self.lease_ms)

    def _renew_in_lock_file(self, renewed: BrokerRow, reason: KafkaStorageError) -> None:
        """Renew in the lock file, see the module. Raise `LeaseHeldError` if the lease was lost, `reason` if this fails too."""
        row = _row_of(self._store, renewed.broker_id)
        if row is None or row.lease_id != renewed.lease_id:
            self.ownership.end()
            raise LeaseHeldError(
                f"The lease of broker {renewed.broker_id} was released." if row is None else held_sentence(row)
            )
        written = _is_at(self._path, self._descriptor) and _write_holder(self._descriptor, renewed, sync=True)
        if not written or not self.ownership.is_certain():
            raise reason
        _log.warning("lease renewed in the lock file alone broker=%d error=%s", renewed.broker_id, reason)

    def release(self) -> None:
        """Release the lease. The flock is released even if the row cannot be removed. Idempotent."""
        with self._lock:
            if self._descriptor < 0:
                return
            try:
                self.ownership.end()
                self._store.release_broker(self.row.broker_id, self.row.lease_id)
                _write_holder(self._descriptor, None)  # else it would still name the released row
            finally:
                os.close(self._descriptor)
                self._descriptor = -1


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def acquire(
    store: MetadataStore,
    lake: Path,
    broker_id: int,
    host: str,
    port: int,
    clock: Clock,
    *,
    lease_ms: int = LEASE_MS,
    machine: Machine | None = None,
    ownership: Ownership | None = None,
    wait_ms: int = 0,
    sleep: Callable[[float], bool] = _sleep,
) -> Lease:
    """Take the lease of broker `broker_id` and return it.

    `host` and `port` are the clients' address (port 0: not known yet, see `Lease.renew`). `machine` defaults to this machine. If
    the holder may still run, wait up to `wait_ms` for its lease to expire. `sleep` waits for some seconds and returns whether to
    give up. Raise `LeaseHeldError`, naming the holder, if the lease is held, `LakeError` if the lock file cannot be created.
    """
    machine = machine or Machine.here(lake)
    path = paths.lock_path(lake, broker_id)
    descriptor = _open_lock_file(path)
    try:
        flock_free = _try_flock(descriptor)
        waiting = _Waiting(store, path, broker_id, clock, machine, lease_ms)
        began_ms = clock.elapsed_ms()
        while True:
            current, decision = waiting.look(flock_free=flock_free)
            if decision in (Decision.TAKE, Decision.TAKE_OVER):
                row = _new_row(lake, broker_id, host, port, clock.now_ms(), lease_ms, machine, current)
                reserve.give_back(paths.reserve_path(lake, broker_id))
                acquired_ms = clock.elapsed_ms()
                # The holder has renewed or another candidate was faster: look again.
                with contextlib.suppress(LeaseHeldError):
                    store.acquire_broker(row, replacing=current)
                    break
            timed_out = clock.elapsed_ms() - began_ms >= wait_ms
            if decision is Decision.REFUSE or timed_out or sleep(min(_LOOK_S_MAX, lease_ms / 10_000)):
                current = _row_of(store, broker_id)
                raise LeaseHeldError(_refusal(broker_id, current, None if flock_free else _read_holder(descriptor)))
            if current is not None:
                waiting.announce(current, wait_ms)
        if current is not None:
            ended = "whose lease has run out" if decision is Decision.TAKE_OVER else "which has ended"
            _log.info("taking over broker %d from pid %d on %s, %s", broker_id, current.pid, current.machine, ended)
        _write_holder(descriptor, row, sync=True)
    except BaseException:
        os.close(descriptor)
        raise
    ownership = ownership or Ownership(clock)
    ownership.renewed(acquired_ms, lease_ms)
    return Lease(row, lease_ms, ownership, decision is Decision.TAKE_OVER, store, clock, path, descriptor)


def _new_row(
    lake: Path,
    broker_id: int,
    host: str,
    port: int,
    now_ms: int,
    lease_ms: int,
    machine: Machine,
    replaced: BrokerRow | None,
) -> BrokerRow:
    return BrokerRow(
        broker_id=broker_id,
        host=host,
        port=port,
        machine=machine.name,
        log_dir=paths.broker_log_path(lake, broker_id).relative_to(lake).as_posix(),
        lease_id=str(uuid.uuid4()),
        pid=os.getpid(),
        started_at_ms=now_ms,
        lease_expires_at_ms=now_ms + lease_ms,
        controller_epoch=0 if replaced is None else replaced.controller_epoch,
        boot_id=machine.boot_id,
        lease_duration=lease_ms,
    )


class _Waiting:
    """A candidate's observations of the lease holder."""

    def __init__(
        self, store: MetadataStore, path: Path, broker_id: int, clock: Clock, machine: Machine, lease_ms: int
    ) -> None:
        self._store = store
        self._path = path
        self._broker_id = broker_id
        self._clock = clock
        self._machine = machine
        self._lease_ms = lease_ms
        self._seen: tuple[BrokerRow | None, BrokerRow | None] | None = None
        self._since_ms = 0
        self._announced = False

    def look(self, *, flock_free: bool) -> tuple[BrokerRow | None, Decision]:
        """Return the broker's current row and the decision on it."""
        began_ms = self._clock.elapsed_ms()
        row, holder = _row_of(self._store, self._broker_id), _read_holder_at(self._path)
        if self._seen != (row, holder):
            # The time without a change counts from the end of this look.
            self._seen, self._since_ms = (row, holder), self._clock.elapsed_ms()
        decision = decide(
            row,
            flock_free=flock_free,
            has_ended=row is not None and self._machine.proves_end_of(row, holder),
            unchanged_ms=began_ms - self._since_ms,
            lease_ms=self._lease_ms,
        )
        return row, decision

    def announce(self, row: BrokerRow, wait_ms: int) -> None:
        """Log once which holder delays the start."""
        if self._announced:
            return
        self._announced = True
        _log.warning(
            "waiting for the lease: %s. It is taken over once it has not been renewed for %d ms, or the start fails "
            "after lease.wait.ms=%d",
            held_sentence(row),
            _duration(row, self._lease_ms),
            wait_ms,
        )


def _row_of(store: MetadataStore, broker_id: int) -> BrokerRow | None:
    return next((row for row in store.load_brokers() if row.broker_id == broker_id), None)


def holders(lake: Path) -> list[BrokerRow]:
    """Return the lease holders from the lock files, newest first. These are fresher than the table and cheaper to read.

    A killed process is still included. Unreadable files are skipped.
    """
    found = []
    for path in sorted((lake / paths.LOG_DIRECTORY).glob(f"*/{paths.LOCK_FILE}")):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                row = _read_holder(descriptor)
            finally:
                os.close(descriptor)
            if row is not None:
                found.append(row)
    return sorted(found, key=lambda row: -row.lease_expires_at_ms)


def _refusal(broker_id: int, current: BrokerRow | None, holder: BrokerRow | None) -> str:
    """Return the refusal message. The lock file is preferred, as it is fresher than the row just after a start."""
    known = holder or current
    if known is None:
        return f"broker {broker_id} of this lake is already run by another process, which is just starting"
    return held_sentence(known)


def _open_lock_file(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LakeError(f"cannot open the lock file {path}: {error.strerror or error}") from error


def _try_flock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Try to take the lock and return whether that worked, retrying longer than `running_brokers` holds it to look.

    Raise `LakeError` if the file system does not support locks.
    """
    for attempt in range(_FLOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt < _FLOCK_ATTEMPTS - 1:
                time.sleep(_FLOCK_AGAIN_S)
        except OSError as error:
            raise LakeError(f"the file system of the lake does not support locks (flock): {error.strerror}") from error
    return False


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether the open file is still the one at `path`, neither removed nor replaced."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except OSError:
        return False


def _write_holder(descriptor: int, row: BrokerRow | None, *, sync: bool = False) -> bool:
    """Write the row (None: no holder) in place and return whether that worked. The fixed size lets it succeed on a full disk."""
    content = b"" if row is None else json.dumps(asdict(row)).encode()
    try:
        os.pwrite(descriptor, content.ljust(_HOLDER_BYTES), 0)
        if sync:
            os.fdatasync(descriptor)
    except OSError as error:
        _log.warning("lock file not written error=%s", error)
        return False
    return True


def _read_holder(descriptor: int) -> BrokerRow | None:
    """Return the row in the lock file, or None if it is empty or being written."""
    names = {each.name for each in fields(BrokerRow)}
    try:
        found = json.loads(os.pread(descriptor, 65_536, 0))
        return BrokerRow(**{name: value for name, value in found.items() if name in names})
    except (ValueError, TypeError, AttributeError):
        return None


def _read_holder_at(path: Path) -> BrokerRow | None:
    """Open the lock file and return its row, or None. Over NFS only a new open shows another machine's writes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _read_holder(descriptor)
    finally:
        os.close(descriptor)
