"""A hierarchical timing wheel: very many timeouts, each started and cancelled in constant time.

A broker starts a timeout for each waiting request and cancels nearly all of them. A heap would keep the cancelled ones.
A wheel is a ring of buckets, one per tick. A timeout goes into the bucket of its tick. A timeout beyond one turn goes into
the next wheel, whose tick is a whole turn of this one, and moves back down when that tick is reached.

**Worked example**, tick 1 ms, 20 buckets, now = 0. Wheel 0 covers [0, 20) ms in ticks of 1, wheel 1 covers [0, 400) in
ticks of 20, wheel 2 covers [0, 8000) in ticks of 400.

- `schedule(7)`: within 20 ms, so wheel 0, bucket 7.
- `schedule(450)`: not within 20, not within 400, so wheel 2, bucket 450 // 400 = 1, which is due at 400.
- `advance(10)`: wheel 0's bucket 7 is due: the first timeout is returned. Wheel 0 now covers [10, 30).
- `advance(400)`: wheel 2's bucket 1 is due. Its timeout is not (450 > 400): reinserted, it goes into wheel 1
  (now [400, 800)), bucket (450 // 20) % 20 = 2, due at 440.
- `advance(440)`: down again, into wheel 0 (now [440, 460)), bucket 450 % 20 = 10.
- `advance(450)`: returned.

Pure: time is a parameter, no clock is read. Not thread-safe. Source: Varghese and Lauck,
"Hashed and Hierarchical Timing Wheels" (1987); Kafka's purgatory uses the same structure.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Timeout:
    """One scheduled action, cancelled through the wheel."""

    __slots__ = ("action", "bucket", "deadline_ms")

    def __init__(self, deadline_ms: int, action: Callable[[], None]) -> None:
        self.deadline_ms = deadline_ms
        self.action = action
        self.bucket: _Bucket | None = None

    def disarm(self) -> None:
        """Make the action do nothing, even if it is about to be called."""
        self.action = _nothing


def _nothing() -> None:
    pass


class _Bucket:
    """The timeouts of one slot of a wheel. `due` is the tick at which the slot begins, -1 while the slot is unused."""

    __slots__ = ("due", "timeouts")

    def __init__(self) -> None:
        self.due = -1
        self.timeouts: dict[Timeout, None] = {}


class _Wheel:
    """One ring of slots of `width` ticks each. `now` is the current tick, rounded down to a slot."""

    __slots__ = ("buckets", "now", "turn", "width")

    def __init__(self, width: int, size: int, now: int) -> None:
        self.width = width
        self.turn = width * size
        self.buckets = [_Bucket() for _ in range(size)]
        self.now = now - now % width


class TimingWheel:
    """Timeouts by deadline, in milliseconds of some monotonic clock: never early, late by less than a tick."""

    def __init__(self, now_ms: int, tick_ms: int = 1, size: int = 20) -> None:
        assert tick_ms > 0
        assert size > 1
        self._tick_ms = tick_ms
        self._size = size
        self._wheels = [_Wheel(1, size, now_ms // tick_ms)]
        self._due: list[
            tuple[int, int, _Bucket]
        ] = []  # heap: due tick, tie-breaker, bucket; one entry per bucket in use
        self._pushed = 0
        self._count = 0

    def __len__(self) -> int:
        """Return the number of pending timeouts."""
        return self._count

    def schedule(self, deadline_ms: int, action: Callable[[], None]) -> Timeout:
        """Start a timeout and return it. If its deadline has passed, the next `advance` returns it."""
        timeout = Timeout(deadline_ms, action)
        self._count += 1
        self._place(timeout)
        return timeout

    def cancel(self, timeout: Timeout) -> None:
        """Cancel a timeout. Do nothing if it was returned or cancelled already."""
        if timeout.bucket is not None:
            del timeout.bucket.timeouts[timeout]
            timeout.bucket = None
            self._count -= 1

    def next_due_ms(self) -> int | None:
        """Return the latest time for the next call of `advance`, or None if there are no timeouts."""
        while self._due and not self._due[0][2].timeouts:
            self._due[0][2].due = -1
            heapq.heappop(self._due)
        return self._due[0][0] * self._tick_ms if self._due else None

    def advance(self, now_ms: int) -> list[Timeout]:
        """Advance time to `now_ms`. Unschedule the timeouts that are due and return them by deadline."""
        now = now_ms // self._tick_ms
        expired: list[Timeout] = []
        while self._due and self._due[0][0] <= now:
            due, _, bucket = heapq.heappop(self._due)
            self._turn_to(due)
            timeouts, bucket.timeouts, bucket.due = bucket.timeouts, {}, -1
            for timeout in timeouts:
                timeout.bucket = None
                if self._tick(timeout) <= now:
                    expired.append(timeout)
                else:
                    self._place(timeout)
        self._turn_to(now)
        self._count -= len(expired)
        expired.sort(key=lambda timeout: timeout.deadline_ms)
        return expired

    def _tick(self, timeout: Timeout) -> int:
        """Return the first tick not before the deadline."""
        return -(-timeout.deadline_ms // self._tick_ms)

    def _place(self, timeout: Timeout) -> None:
        tick = max(self._tick(timeout), self._wheels[0].now)
        level = 0
        while tick // self._wheels[level].width * self._wheels[level].width >= (
            self._wheels[level].now + self._wheels[level].turn
        ):
            level += 1
            if level == len(self._wheels):
                below = self._wheels[-1]
                self._wheels.append(_Wheel(below.turn, self._size, self._wheels[0].now))
        wheel = self._wheels[level]
        slot = tick // wheel.width
        bucket = wheel.buckets[slot % self._size]
        assert bucket.due in (-1, slot * wheel.width)
        if bucket.due == -1:
            bucket.due = slot * wheel.width
            self._pushed += 1
            heapq.heappush(self._due, (bucket.due, self._pushed, bucket))
        bucket.timeouts[timeout] = None
        timeout.bucket = bucket

    def _turn_to(self, now: int) -> None:
        for wheel in self._wheels:
            wheel.now = max(wheel.now, now - now % wheel.width)
