"""Keeps a lease in two dedicated threads, so that a hang elsewhere cannot block a renewal, nor a hanging renewal the watch.

- `renew` runs every third of the lease, after a failure every second, and at once when ownership becomes uncertain.
- `watch` checks the deadline. After it nothing is written or answered (`kafkalake.ownership`), whatever other threads do. A process
  that was merely paused renews at once and continues. The lease is lost if another broker holds it, or if it is not renewed within
  a third of a lease after the deadline.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kafkalake.clock import Clock
from kafkalake.errors import LeaseHeldError
from kafkalake.metadata.lease import Lease

logger = logging.getLogger(__name__)

_AGAIN_S = 1.0
_LOOK_S_MAX = 1.0


class LeaseKeeper:
    """The keeper of one lease. On a loss, ownership ends for good and a keeper thread calls `on_lost` once with the reason."""

    def __init__(self, lease: Lease, clock: Clock, on_lost: Callable[[str], None]) -> None:
        self._lease = lease
        self._clock = clock
        self._on_lost = on_lost
        self._stopped = threading.Event()
        self._hurry = threading.Event()
        self._losing = threading.Lock()
        self._is_lost = False

    def start(self) -> None:
        """Renew and watch until `stop`."""
        for work in (self._renew, self._watch):
            # Daemons, because a thread that hangs in disk I/O must not keep the process from exiting.
            threading.Thread(target=work, name=f"lease-{work.__name__.strip('_')}", daemon=True).start()

    def stop(self) -> None:
        """Stop renewing, for a graceful shutdown. The lease remains valid until it is released or expires."""
        self._stopped.set()
        self._hurry.set()

    def _renew(self) -> None:
        interval_s = self._lease.renew_interval_ms / 1000
        wait_s = interval_s
        while not self._stopped.is_set():
            if self._hurry.wait(wait_s):
                self._hurry.clear()
            if self._stopped.is_set() or self._is_lost:
                return
            try:
                self._lease.renew()
                wait_s = interval_s
            except LeaseHeldError as error:
                self._lose(str(error))
                return
            except Exception as error:
                wait_s = min(_AGAIN_S, interval_s)
                logger.warning("lease not renewed broker=%d error=%s", self._lease.row.broker_id, error)

    def _watch(self) -> None:
        ownership, grace_ms = self._lease.ownership, self._lease.lease_ms // 3
        uncertain_since_ms: int | None = None
        while not self._stopped.is_set():
            left_ms = ownership.until_ms - self._clock.elapsed_ms()
            if left_ms > 0:
                if uncertain_since_ms is not None:
                    uncertain_since_ms = None
                    logger.warning("lease renewed, going on broker=%d", self._lease.row.broker_id)
                self._stopped.wait(min(left_ms / 1000 + 0.001, _LOOK_S_MAX))
                continue
            if uncertain_since_ms is None:
                uncertain_since_ms = self._clock.elapsed_ms()
                logger.error(
                    "lease not renewed in time, nothing is written or answered broker=%d", self._lease.row.broker_id
                )
                self._hurry.set()
            elif self._clock.elapsed_ms() - uncertain_since_ms >= grace_ms:
                self._lose("it could not be renewed before it expired")
                return
            self._stopped.wait(min(grace_ms / 4000, _LOOK_S_MAX))

    def _lose(self, reason: str) -> None:
        with self._losing:
            if self._is_lost or self._stopped.is_set():
                return
            self._is_lost = True
            self._lease.ownership.end()
        self._on_lost(reason)
