"""The lease of a broker: one process runs broker N of a lake, and a second one is told who does.

Two locks, because each sees what the other cannot:

- `flock` on `<lake>/logs/<broker id>/.lock`, held for the life of the process. The kernel drops it with the process, also
  at SIGKILL, so on one machine a dead broker is replaced at once.
- the row in `brokers`, renewed every third of its 30 seconds, covers other machines: a holder there is believed until
  its lease has expired.

`decide` is the whole rule. The lock file also holds the row as JSON, so that a process which is refused can say by whom
even when the row has not been written yet.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path

from kafkalake.clock import Clock
from kafkalake.errors import LakeError, LeaseHeldError
from kafkalake.metadata import paths
from kafkalake.metadata.changes import held_sentence, utc_text
from kafkalake.metadata.schemas import BrokerRow
from kafkalake.metadata.store import MetadataStore

LEASE_MS = 30_000

_log = logging.getLogger(__name__)


class Decision(Enum):
    TAKE = "take"
    REFUSE = "refuse"


def decide(row: BrokerRow | None, *, now_ms: int, machine: str, flock_free: bool) -> Decision:
    """Whether a broker on `machine` may take the lease that `row` (None: nobody) describes.

    | flock | row                     | decision                                                   |
    | ----- | ----------------------- | ---------------------------------------------------------- |
    | taken | any                     | refuse: a process that sees the same file system runs      |
    | free  | none                    | take                                                       |
    | free  | this machine            | take: its process is dead, or the flock would be taken     |
    | free  | another, not expired    | refuse                                                     |
    | free  | another, expired        | take                                                       |
    """
    if not flock_free:
        return Decision.REFUSE
    if row is None or row.machine == machine or row.lease_expires_at_ms <= now_ms:
        return Decision.TAKE
    return Decision.REFUSE


def running_brokers(rows: Iterable[BrokerRow], now_ms: int) -> frozenset[int]:
    """The ids of brokers that seem to run: their lease has not expired, and on this machine their process is there.

    A look that takes no lock: the answer may be out of date at once.
    """
    machine = socket.gethostname()
    return frozenset(
        row.broker_id
        for row in rows
        if row.lease_expires_at_ms > now_ms and (row.machine != machine or Path(f"/proc/{row.pid}").exists())
    )


@contextmanager
def holding_logs(lake: Path, broker_id: int) -> Iterator[bool]:
    """Keep a broker of this machine from starting meanwhile, for work on its logs; whether its lock was free.

    Says nothing of brokers on other machines: see `running_brokers`. Raises `LakeError`.
    """
    descriptor = _open_lock_file(paths.lock_path(lake, broker_id))
    try:
        yield _try_flock(descriptor)
    finally:
        os.close(descriptor)


@dataclass
class Lease:
    """A held lease. Not thread-safe: its owner renews it from one place at a time."""

    row: BrokerRow
    lease_ms: int
    _store: MetadataStore
    _clock: Clock
    _descriptor: int

    @property
    def renew_interval_ms(self) -> int:
        """How often `renew` is to be called."""
        return self.lease_ms // 3

    def renew(self, *, host: str | None = None, port: int | None = None) -> None:
        """Move the expiry on; also writes a new address, once the broker knows its port.

        Raises `LeaseHeldError` when another broker has taken the lease (this machine slept past its expiry, say): the
        caller must stop serving. `KafkaStorageError` when the row could not be written: the lease still stands until it
        expires, try again.
        """
        renewed = replace(
            self.row,
            host=self.row.host if host is None else host,
            port=self.row.port if port is None else port,
            lease_expires_at_ms=self._clock.now_ms() + self.lease_ms,
        )
        self._store.renew_broker(renewed)
        self.row = renewed
        _write_holder(self._descriptor, renewed)

    def release(self) -> None:
        """Give the lease back. The flock goes even when the row cannot be taken out. Repeating it does nothing."""
        if self._descriptor < 0:
            return
        try:
            self._store.release_broker(self.row.broker_id, self.row.lease_id)
        finally:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


def acquire(
    store: MetadataStore,
    lake: Path,
    broker_id: int,
    host: str,
    port: int,
    clock: Clock,
    *,
    lease_ms: int = LEASE_MS,
    machine: str | None = None,
) -> Lease:
    """Take the lease of broker `broker_id`, or raise `LeaseHeldError` with a sentence that says who holds it.

    `host` and `port` are what clients connect to (port 0 when not known yet, see `Lease.renew`); `machine` is this
    machine's host name unless given. Raises `LakeError` when the lock file cannot be made.
    """
    machine = machine or socket.gethostname()
    row = BrokerRow(
        broker_id=broker_id,
        host=host,
        port=port,
        machine=machine,
        log_dir=paths.broker_log_path(lake, broker_id).relative_to(lake).as_posix(),
        lease_id=str(uuid.uuid4()),
        pid=os.getpid(),
        started_at_ms=clock.now_ms(),
        lease_expires_at_ms=clock.now_ms() + lease_ms,
    )
    descriptor = _open_lock_file(paths.lock_path(lake, broker_id))
    try:
        flock_free = _try_flock(descriptor)
        current = next((other for other in store.load_brokers() if other.broker_id == broker_id), None)
        if decide(current, now_ms=clock.now_ms(), machine=machine, flock_free=flock_free) is Decision.REFUSE:
            raise LeaseHeldError(_refusal(broker_id, current, None if flock_free else _read_holder(descriptor)))
        if current is not None:
            _log.info(
                "taking over broker %d from pid %d on %s, whose lease would expire at %s",
                broker_id,
                current.pid,
                current.machine,
                utc_text(current.lease_expires_at_ms),
            )
            row = replace(row, controller_epoch=current.controller_epoch)
        store.acquire_broker(row, replacing_lease_id=None if current is None else current.lease_id)
        _write_holder(descriptor, row)
    except BaseException:
        os.close(descriptor)
        raise
    return Lease(row=row, lease_ms=lease_ms, _store=store, _clock=clock, _descriptor=descriptor)


def holders(lake: Path) -> list[BrokerRow]:
    """Who holds a lease by the lock files, which are fresher than the table and cheaper to read; the newest first.

    A process that was killed is still named. Files that cannot be read are passed over.
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
    """The lock file is fresher than the row when somebody has just started."""
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


def _try_flock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise LakeError(f"the file system of the lake does not support locks (flock): {error.strerror}") from error
    return True


def _write_holder(descriptor: int, row: BrokerRow) -> None:
    """For the sentence that a refused broker shows; a full disk must not cost the lease."""
    content = json.dumps(asdict(row)).encode()
    with contextlib.suppress(OSError):
        os.pwrite(descriptor, content, 0)
        os.ftruncate(descriptor, len(content))


def _read_holder(descriptor: int) -> BrokerRow | None:
    """The row in the lock file; None while it is being written."""
    try:
        return BrokerRow(**json.loads(os.pread(descriptor, 65_536, 0)))
    except (ValueError, TypeError):
        return None
