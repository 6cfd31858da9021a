"""Where requests wait until enough has happened, or until their time is up.

A fetch waits for bytes, a produce (with replicas) for the high watermark. An operation watches keys (partitions); whoever
changes a partition calls `check`. Timeouts run on the timing wheel; `Alarm` is the one thing that the outside has to
give: call me at this time.

An operation leaves every list the moment it is done, so what completes early costs no memory until its timeout (Kafka
purges lazily instead).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from kafkalake.broker.callbacks import Place, call_isolated
from kafkalake.broker.partitions.timing_wheel import Timeout, TimingWheel
from kafkalake.clock import Clock


class DelayedOperation:
    """A request that waits. Subclasses say when it is complete; `complete` is called exactly once."""

    def __init__(self) -> None:
        self.keys: tuple[Hashable, ...] = ()
        self.timeout: Timeout | None = None
        self.waiting = False

    def is_complete(self, key: Hashable) -> bool:
        """Whether enough has happened, now that `key` has changed; cheap, called on every change of a watched key."""
        raise NotImplementedError

    def complete(self) -> None:
        """Answer: enough has happened, or the time is up."""
        raise NotImplementedError


class Alarm(Protocol):
    """Something that calls `Timers.ring` at about a given time, an event loop for example."""

    def set(self, at_ms: int) -> None:
        """Ring at `at_ms` of the monotonic clock; replaces what was set before."""
        ...


class Timers:
    """Timeouts of everything that waits in the broker, behind one alarm."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wheel = TimingWheel(clock.monotonic_ms())
        self._alarm: Alarm | None = None
        self._alarm_at_ms: int | None = None

    def connect(self, alarm: Alarm) -> None:
        """From now on `alarm` rings for what is due."""
        self._alarm = alarm
        self._set_alarm()

    def schedule(self, delay_ms: int, action: Callable[[], None]) -> Timeout:
        """Call `action` after `delay_ms`."""
        timeout = self._wheel.schedule(self._clock.monotonic_ms() + delay_ms, action)
        self._set_alarm()
        return timeout

    def cancel(self, timeout: Timeout) -> None:
        """Do not call it after all."""
        self._wheel.cancel(timeout)
        timeout.action = _nothing  # it may be due in the tick that is being rung

    def ring(self) -> None:
        """Do what is due."""
        self._alarm_at_ms = None
        for timeout in self._wheel.advance(self._clock.monotonic_ms()):
            call_isolated(Place.TIMER, timeout.action)
        self._set_alarm()

    def _set_alarm(self) -> None:
        due_ms = self._wheel.next_due_ms()
        if self._alarm is None or due_ms is None:
            return
        if self._alarm_at_ms is None or due_ms < self._alarm_at_ms:
            self._alarm_at_ms = due_ms
            self._alarm.set(due_ms)


def _nothing() -> None:
    """What is left of a cancelled action."""


class Purgatory:
    """The operations that wait, by what they watch."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._waiting: dict[DelayedOperation, None] = {}

    def __len__(self) -> int:
        """Operations that wait."""
        return len(self._waiting)

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int) -> None:
        """Have `operation` wait on `keys` for at most `timeout_ms`; the caller has found it incomplete."""
        operation.keys = tuple(dict.fromkeys(keys))  # one that is named twice is watched once
        operation.waiting = True
        self._waiting[operation] = None
        for key in operation.keys:
            self._watchers.setdefault(key, {})[operation] = None
        operation.timeout = self._timers.schedule(timeout_ms, lambda: self.finish(operation))

    def check(self, key: Hashable) -> None:
        """Something about `key` has changed: complete the operations for which it was enough."""
        watchers = self._watchers.get(key)
        if watchers:
            for operation in list(watchers):
                call_isolated(Place.WAITING_REQUEST, self._check_one, operation, key)

    def _check_one(self, operation: DelayedOperation, key: Hashable) -> None:
        if operation.waiting and operation.is_complete(key):
            self.finish(operation)

    def finish(self, operation: DelayedOperation) -> None:
        """Complete it now, whatever it waits for; nothing happens if it no longer waits."""
        if self.discard(operation):
            operation.complete()

    def finish_all(self) -> None:
        """Complete everything that waits: the broker stops."""
        for operation in list(self._waiting):
            call_isolated(Place.WAITING_REQUEST, self.finish, operation)

    def discard(self, operation: DelayedOperation) -> bool:
        """Let it go unanswered (its connection is gone); whether it was waiting."""
        if not operation.waiting:
            return False
        operation.waiting = False
        del self._waiting[operation]
        for key in operation.keys:
            watchers = self._watchers[key]
            del watchers[operation]
            if not watchers:
                del self._watchers[key]
        if operation.timeout is not None:
            self._timers.cancel(operation.timeout)
            operation.timeout = None  # it points back at the operation
        return True
