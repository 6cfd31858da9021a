"""Holds delayed requests until their condition is met or they time out (Kafka's purgatory).

A fetch waits for bytes, a produce (with replicas) for the high watermark. An operation watches keys (partitions), and `check` is
called on each change of a partition. Timeouts run on the timing wheel. `Alarm`, a callback at a given time, is the only external
dependency.

An operation leaves every list on completion, so one completed early holds no memory until its timeout (Kafka purges lazily). An
observer stays: it is told of each change of its key.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Protocol

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.partitions.timing_wheel import Timeout, TimingWheel
from kafkalake.clock import Clock
from kafkalake.run_blocking import TURN_NS


class DelayedOperation:
    """A delayed request. Subclasses define its condition. `complete` is called at most once."""

    def __init__(self) -> None:
        self.keys: tuple[Hashable, ...] = ()
        self.timeout: Timeout | None = None
        self.waiting = False

    def is_complete(self, key: Hashable) -> bool:
        """Return whether the condition is met after a change of `key`. Must be cheap: called on every change of a watched key."""
        raise NotImplementedError

    def complete(self) -> None:
        """Answer the request. Called when the condition is met or the timeout expires."""
        raise NotImplementedError


class Alarm(Protocol):
    """A source of calls at about a given time, such as an event loop."""

    def set(self, at_ms: int, ring: Callable[[], None]) -> None:
        """Call `ring` at `at_ms` of the monotonic clock, replacing the previous setting."""
        ...


class NoAlarm:
    """The alarm of timers that are rung by hand."""

    def set(self, at_ms: int, ring: Callable[[], None]) -> None:
        pass


class Timers:
    """All timeouts of the broker behind one alarm."""

    def __init__(self, clock: Clock, alarm: Alarm | None = None) -> None:
        self._clock = clock
        self._wheel = TimingWheel(clock.monotonic_ms())
        self._due: deque[Timeout] = deque()
        self._alarm = alarm or NoAlarm()
        self._alarm_at_ms: int | None = None

    def schedule(self, delay_ms: int, action: Callable[[], None]) -> Timeout:
        """Schedule `action` after `delay_ms` and return its timeout."""
        timeout = self._wheel.schedule(self._clock.monotonic_ms() + delay_ms, action)
        self._set_alarm()
        return timeout

    def cancel(self, timeout: Timeout) -> None:
        """Cancel a timeout, even one that is due."""
        self._wheel.cancel(timeout)
        timeout.disarm()  # it may be due

    def ring(self) -> None:
        """Run the actions that are due, for about `TURN_NS`, and the others in the next turn of the event loop.

        The sessions of all members whose groups were loaded together end together.
        """
        self._alarm_at_ms = None
        self._due.extend(self._wheel.advance(self._clock.monotonic_ms()))
        end_ns = self._clock.monotonic_ns() + TURN_NS
        while self._due:
            call_isolated(CallbackLoop.TIMER, self._due.popleft().action)
            if self._clock.monotonic_ns() >= end_ns:
                break
        self._set_alarm()

    def _set_alarm(self) -> None:
        due_ms = self._clock.monotonic_ms() if self._due else self._wheel.next_due_ms()
        if due_ms is None:
            return
        if self._alarm_at_ms is None or due_ms < self._alarm_at_ms:
            self._alarm_at_ms = due_ms
            self._alarm.set(due_ms, self.ring)


class Purgatory:
    """The delayed operations by watched key."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._observers: dict[Hashable, dict[Callable[[Any], None], None]] = {}
        self._waiting: dict[DelayedOperation, None] = {}

    def __len__(self) -> int:
        """Return the number of delayed operations."""
        return len(self._waiting)

    def watch(self, operation: DelayedOperation, keys: Iterable[Hashable], timeout_ms: int) -> None:
        """Delay `operation` on `keys` for at most `timeout_ms`. The caller has found it incomplete."""
        operation.keys = tuple(dict.fromkeys(keys))  # without duplicates
        operation.waiting = True
        self._waiting[operation] = None
        for key in operation.keys:
            self._watchers.setdefault(key, {})[operation] = None
        operation.timeout = self._timers.schedule(timeout_ms, lambda: self.finish(operation))

    def hasten(self, operation: DelayedOperation, timeout_ms: int) -> None:
        """Delay an operation that is delayed for another `timeout_ms` at most."""
        before = operation.timeout
        if before is None:
            return
        soon = self._timers.schedule(timeout_ms, before.action)
        is_sooner = soon.deadline_ms < before.deadline_ms
        operation.timeout = soon if is_sooner else before
        self._timers.cancel(before if is_sooner else soon)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` after a delay, on the timing wheel of the delayed operations."""
        self._timers.schedule(delay_ms, action)

    def check(self, key: Hashable) -> None:
        """Complete the operations watching `key` whose condition is now met."""
        watchers = self._watchers.get(key)
        if watchers:
            for operation in list(watchers):
                call_isolated(CallbackLoop.WAITING_REQUEST, self._check_one, operation, key)
        observers = self._observers.get(key)
        if observers:
            for observer in list(observers):
                call_isolated(CallbackLoop.WAITING_REQUEST, observer, key)

    def observe(self, key: Hashable, observer: Callable[[Any], None]) -> None:
        """Call `observer` with `key` on each of its changes, until `forget`."""
        self._observers.setdefault(key, {})[observer] = None

    def forget(self, key: Hashable, observer: Callable[[Any], None]) -> None:
        """Tell an observer of `key` nothing more."""
        observers = self._observers[key]
        del observers[observer]
        if not observers:
            del self._observers[key]

    def _check_one(self, operation: DelayedOperation, key: Hashable) -> None:
        if operation.waiting and operation.is_complete(key):
            self.finish(operation)

    def finish(self, operation: DelayedOperation) -> None:
        """Complete an operation regardless of its condition. Do nothing if it is no longer delayed."""
        if self.discard(operation):
            operation.complete()

    def finish_all(self) -> None:
        """Complete all delayed operations. Called when the broker stops."""
        for operation in list(self._waiting):
            call_isolated(CallbackLoop.WAITING_REQUEST, self.finish, operation)

    def discard(self, operation: DelayedOperation) -> bool:
        """Drop an operation without an answer (its connection is closed) and return whether it was delayed."""
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
            operation.timeout = None  # breaks the reference cycle
        return True
