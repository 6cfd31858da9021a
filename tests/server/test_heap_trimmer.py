"""The heap is trimmed after a large request, while others are in progress."""

from __future__ import annotations

from collections.abc import Callable

from kafkalake.server.heap_trimmer import HeapTrimmer


def test_the_heap_is_trimmed_once_a_large_request_is_over() -> None:
    later: list[Callable[[], None]] = []
    trims: list[None] = []
    over: set[int] = set()
    heap = HeapTrimmer(lambda delay_s, check: later.append(check), lambda: trims.append(None))
    for number in range(3):
        heap.trim_after(lambda number=number: number in over)  # type: ignore[misc]
    for ended, trimmed in (((), 0), ((0, 1), 1), ((), 1), ((2,), 2)):
        over.update(ended)
        assert len(later) == 1, "one check at a time"
        later.pop()()
        assert len(trims) == trimmed
    assert not later, "nothing is checked while there is no large request"
