"""Keep a lease, in two threads of their own: nothing that hangs elsewhere stops a renewal, nor a renewal that hangs the watch.

- `renew` every third of the lease; after a failure every second, and at once when ownership has become uncertain.
- `watch` the deadline. Past it nothing is written or answered (`kafkalake.ownership`), whatever the other threads do. A process
  that was only paused renews at once and goes on. The lease is lost when another has it, or when it is not renewed within a
  third of a lease.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from kafkalake.clock import Clock
from kafkalake.errors import LeaseHeldError
from kafkalake.metadata.lease import Lease

_log = logging.getLogger(__name__)

_AGAIN_S = 1.0
_LOOK_S_MAX = 1.0


class LeaseKeeper:
    """`on_lost` is called once with the reason, in one of the keeper's threads, and then nothing makes ownership certain again."""

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
            # Daemons: one that hangs in the disk does not keep the process from ending.
            threading.Thread(target=work, name=f"lease-{work.__name__.strip('_')}", daemon=True).start()

    def stop(self) -> None:
        """Renew no more, for a stop in order. The lease stands until it is released."""
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
                _log.warning("lease not renewed broker=%d error=%s", self._lease.row.broker_id, error)

    def _watch(self) -> None:
        ownership, grace_ms = self._lease.ownership, self._lease.lease_ms // 3
        uncertain_since_ms: int | None = None
        while not self._stopped.is_set():
            left_ms = ownership.until_ms - self._clock.elapsed_ms()
            if left_ms > 0:
                if uncertain_since_ms is not None:
                    uncertain_since_ms = None
                    _log.warning("lease renewed, going on broker=%d", self._lease.row.broker_id)
                self._stopped.wait(min(left_ms / 1000 + 0.001, _LOOK_S_MAX))
                continue
            if uncertain_since_ms is None:
                uncertain_since_ms = self._clock.elapsed_ms()
                _log.error(
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
