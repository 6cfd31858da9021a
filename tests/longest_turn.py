"""For how long a broker in a thread of this process holds its event loop."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

from node_in_thread import NodeInThread

ATTEMPTS = 4


class _Ticks:
    """Calls itself in each iteration of the event loop, and keeps the most CPU time between two calls."""

    def __init__(self, broker: NodeInThread) -> None:
        self._loop = broker.loop
        self._goes_on = True
        self._last_s = time.thread_time()
        self.longest_s = 0.0
        self._loop.call_soon(self._tick)

    def _tick(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
        if self._goes_on:
            self._loop.call_soon(self._tick)

    def end(self) -> None:
        """Count no more."""
        self._tick()
        self._goes_on = False


def longest_turn_ms(broker: NodeInThread, work: Callable[[], object]) -> float:
    """Return the longest that the event loop was held while `work`, of a client, ran: the CPU time of its thread, which a busy
    machine does not make longer, in the best of some attempts, as the broker has other work too."""
    attempts_ms = []
    for _ in range(ATTEMPTS):
        gc.collect()  # of what the test has made
        ticks = broker.on_loop(lambda: _Ticks(broker))
        work()
        broker.on_loop(ticks.end)
        attempts_ms.append(ticks.longest_s * 1000)
    return min(attempts_ms)
