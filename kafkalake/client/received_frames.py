"""Received bytes, cut into responses.

Small responses are received together into one buffer, and copied. A large one gets a buffer of its own, into which it is received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafkalake.buffers import Buffer
from kafkalake.client.exchange import SIZE_BYTES

_SHARED_BYTES = 16 * 1024
"""Of a large response, what is received before its buffer is there is copied, so no more than many small ones need."""


class ReceivedFrames:
    """See the module. `size_of` returns the size of the response that a prefix announces, or raises."""

    def __init__(self, size_of: Callable[[memoryview], int]) -> None:
        self._size_of = size_of
        self._shared = memoryview(bytearray(_SHARED_BYTES))
        self._large: memoryview | None = None
        self._filled = 0
        """Bytes in the buffer that is filled now."""

    def buffer(self) -> memoryview:
        """Return where the next bytes belong."""
        return (self._shared if self._large is None else self._large)[self._filled :]

    def received(self, count: int) -> Iterator[Buffer]:
        """Take over the first `count` bytes of `buffer` and yield the responses that are whole then."""
        self._filled += count
        if self._large is not None:
            if self._filled == len(self._large):
                whole, self._large, self._filled = self._large, None, 0
                yield whole
            return
        position, shared = 0, self._shared
        while self._filled - position >= SIZE_BYTES:
            begin = position + SIZE_BYTES
            size = self._size_of(shared[position:begin])
            if begin + size > self._filled:
                if SIZE_BYTES + size > _SHARED_BYTES:
                    self._begin_large(size, shared[begin : self._filled])
                    return
                break
            position = begin + size
            yield bytes(shared[begin:position])
        if position:
            rest = bytes(shared[position : self._filled])
            shared[: len(rest)] = rest
            self._filled = len(rest)

    def _begin_large(self, size: int, received: memoryview) -> None:
        import numpy as np  # which takes longer to import than most commands of the command line take

        self._large, self._filled = np.empty(size, dtype=np.uint8).data, len(received)  # a bytearray would be zeroed
        self._large[: len(received)] = received
