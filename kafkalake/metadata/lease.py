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

`decide` is the whole rule. `lock_file` has the first lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path

from kafkalake.clock import Clock
from kafkalake.errors import KafkaStorageError, LeaseHeldError
from kafkalake.metadata import paths, reserve
from kafkalake.metadata.changes import held_sentence
from kafkalake.metadata.lock_file import (
    LockRow,
    Machine,
    is_at,
    open_lock_file,
    read_holder,
    read_holder_at,
    try_flock,
    write_holder,
)
from kafkalake.metadata.store import BrokerTable
from kafkalake.metadata.tables.schemas import BrokerRow
from kafkalake.ownership import Ownership

LEASE_MS = 30_000
_LOOK_S_MAX = 0.5

logger = logging.getLogger(__name__)


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


@dataclass
class Lease:
    """A held lease.

    ownership: its certainty, extended by each renewal. took_over: the last holder, or one before it, may still run, and the files
    that it has open for writing are to be replaced. The next holder does so too, unless `note_takeover` was called before.
    """

    row: BrokerRow
    lease_ms: int
    ownership: Ownership
    took_over: bool
    _store: BrokerTable
    _clock: Clock
    _path: Path
    _descriptor: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _takes_over: bool = False

    def __post_init__(self) -> None:
        self._takes_over = self.took_over

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
                self._write(renewed)
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
        written = is_at(self._path, self._descriptor) and self._write(renewed, sync=True)
        if not written or not self.ownership.is_certain():
            raise reason
        logger.warning("lease renewed in the lock file alone broker=%d error=%s", renewed.broker_id, reason)

    def note_takeover(self) -> None:
        """Note that no process before this one can write into the files of the logs any more.

        If the lock file cannot be written, the next holder replaces them once more.
        """
        with self._lock:
            if self._takes_over and self._descriptor >= 0:
                self._takes_over = False
                self._write(self.row, sync=True)

    def _write(self, row: BrokerRow, *, sync: bool = False) -> bool:
        return write_holder(self._descriptor, _in_lock_file(row, takes_over=self._takes_over), sync=sync)

    def release(self) -> None:
        """Release the lease. The flock is released even if the row cannot be removed. Idempotent."""
        with self._lock:
            if self._descriptor < 0:
                return
            try:
                self.ownership.end()
                self._store.release_broker(self.row.broker_id, self.row.lease_id)
                # Else it would still name the released row.
                write_holder(self._descriptor, _in_lock_file(self.row, takes_over=True) if self._takes_over else None)
            finally:
                os.close(self._descriptor)
                self._descriptor = -1


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def acquire(
    store: BrokerTable,
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
    descriptor = open_lock_file(path)
    try:
        flock_free = try_flock(descriptor)
        waiting = _Waiting(store, path, broker_id, clock, machine, lease_ms)
        began_ms = clock.elapsed_ms()
        while True:
            current, decision = waiting.look(flock_free=flock_free)
            if decision in (Decision.TAKE, Decision.TAKE_OVER):
                row = _new_row(lake, broker_id, host, port, clock.now_ms(), lease_ms, machine, current)
                reserve.give_back(paths.reserve_path(lake, broker_id))
                takes_over = decision is Decision.TAKE_OVER or waiting.found_takeover
                if decision is Decision.TAKE:
                    # A kill before the lock file names the new row costs the next start no lease.
                    replaced = "" if current is None else current.lease_id
                    candidate = LockRow(**asdict(row), replaces=replaced, takes_over=takes_over)
                    write_holder(descriptor, candidate, sync=True)
                acquired_ms = clock.elapsed_ms()
                # The holder has renewed or another candidate was faster: look again.
                with contextlib.suppress(LeaseHeldError):
                    store.acquire_broker(row, replacing=current)
                    break
            timed_out = clock.elapsed_ms() - began_ms >= wait_ms
            if decision is Decision.REFUSE or timed_out or sleep(min(_LOOK_S_MAX, lease_ms / 10_000)):
                current = _row_of(store, broker_id)
                raise LeaseHeldError(_refusal(broker_id, current, None if flock_free else read_holder(descriptor)))
            if current is not None:
                waiting.announce(current, wait_ms)
        if current is not None:
            ended = "whose lease has run out" if decision is Decision.TAKE_OVER else "which has ended"
            logger.info("taking over broker %d from pid %d on %s, %s", broker_id, current.pid, current.machine, ended)
        write_holder(descriptor, _in_lock_file(row, takes_over=takes_over), sync=True)
    except BaseException:
        os.close(descriptor)
        raise
    ownership = ownership or Ownership(clock)
    ownership.renewed(acquired_ms, lease_ms)
    return Lease(row, lease_ms, ownership, takes_over, store, clock, path, descriptor)


def _in_lock_file(row: BrokerRow, *, takes_over: bool) -> BrokerRow:
    return LockRow(**asdict(row), takes_over=True) if takes_over else row


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
        self, store: BrokerTable, path: Path, broker_id: int, clock: Clock, machine: Machine, lease_ms: int
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
        self.found_takeover = False
        """Whether the lock file says that a process before its own may still have files of the logs open."""

    def look(self, *, flock_free: bool) -> tuple[BrokerRow | None, Decision]:
        """Return the broker's current row and the decision on it."""
        began_ms = self._clock.elapsed_ms()
        row, holder = _row_of(self._store, self._broker_id), read_holder_at(self._path)
        self.found_takeover |= isinstance(holder, LockRow) and holder.takes_over
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
        logger.warning(
            "waiting for the lease: %s. It is taken over once it has not been renewed for %d ms, or the start fails "
            "after lease.wait.ms=%d",
            held_sentence(row),
            _duration(row, self._lease_ms),
            wait_ms,
        )


def _row_of(store: BrokerTable, broker_id: int) -> BrokerRow | None:
    return next((row for row in store.load_brokers() if row.broker_id == broker_id), None)


def _refusal(broker_id: int, current: BrokerRow | None, holder: BrokerRow | None) -> str:
    """Return the refusal message. The lock file is preferred, as it is fresher than the row just after a start."""
    known = holder or current
    if known is None:
        return f"broker {broker_id} of this lake is already run by another process, which is just starting"
    return held_sentence(known)
