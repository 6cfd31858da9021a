"""One connection as a state machine: received bytes in, whole frames out; answers in, the bytes to send out. No socket, no clock.

A transport (`connection.py`) feeds it: it receives into `buffer`, reports `received`, and handles each `next_frame`. Where
`is_paused` is set it reads no more until `resume`. It sends `take_answers`.

**Reading.** All connections of a server read into one shared buffer, from which whole frames are handled in place before the next
read. An incomplete frame moves to a buffer of its own. Its size is checked first, but not allocated at once: the buffer
starts small and grows with the received bytes, within a bound over all connections (`request_memory.py`). A frame that makes too
little progress is `stalled`.

**Order.** As in Apache Kafka, requests of a connection are handled in order: the next one is handed out after the previous one is
answered. Produce requests are pipelined for throughput: they queue, and one group commit answers all. Answers leave in the order of
the requests, however they finish.

**Back-pressure.** A request that cannot be handled yet (a delayed fetch, a client that does not read its responses, a topic
creation being committed, the end of a turn) stays unread: reading pauses, and TCP slows the client down. So a connection holds at
most one frame, the rest of one read and one response, and does not affect other connections.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from kafkalake.buffers import Buffer
from kafkalake.errors import InvalidRequestError
from kafkalake.server.request_memory import RequestMemory
from kafkalake.wire.produce_request import API_KEY as PRODUCE_KEY

PRODUCES_IN_FLIGHT_MAX = 256
PRODUCE_BYTES_IN_FLIGHT_MAX = 16 * 1024 * 1024

_SIZE = struct.Struct(">i")
_FRAME_BYTES_MIN = 8
_FIRST_BYTES = 64 * 1024
"""Smallest first buffer of a frame, if the frame is not smaller."""
_GROWTH = 16
"""Ratio of the next buffer to the bytes received. Memory not yet written to costs nothing, but each step costs a copy."""
_PROGRESS_BYTES = 64 * 1024
"""Least progress of an incomplete frame between two checks of its age, however slow its client."""
_NOTHING = memoryview(b"")


class Pending(Protocol):
    """A request with its place in the order of answers. Its `size` bytes are held until it is answered.

    `has_task`: a task works on it. It has not yet taken effect, so no later request may start.
    """

    size: int
    done: bool
    answer: Sequence[Buffer]
    has_task: bool

    @property
    def api_key(self) -> int: ...

    def abandon(self) -> None: ...

    def hasten(self) -> None: ...


class _Incomplete:
    """A frame of `length` bytes with its size, of which `filled` are there. `length` is 4 while the size itself is incomplete."""

    __slots__ = ("buffer", "filled", "filled_before", "length", "since_ms")

    def __init__(self, start: memoryview, length: int, now_ms: int) -> None:
        room = min(length, max(_FIRST_BYTES, _GROWTH * len(start)))
        self.buffer = np.empty(room, dtype=np.uint8).data  # a bytearray would be zeroed at once
        self.buffer[: len(start)] = start
        self.filled = self.filled_before = len(start)
        self.length = length
        self.since_ms = now_ms

    def grow(self) -> None:
        """Make room for more bytes if there is none."""
        if self.filled == len(self.buffer):
            larger = np.empty(min(self.length, _GROWTH * self.filled), dtype=np.uint8).data
            larger[: self.filled] = self.buffer
            self.buffer = larger

    def look_again(self, now_ms: int) -> None:
        """Count progress from now on."""
        self.since_ms, self.filled_before = now_ms, self.filled


class ConnectionState:
    """See the module. Times are in milliseconds of a monotonic clock."""

    def __init__(self, shared: memoryview, memory: RequestMemory, frame_bytes_max: int, now_ms: int) -> None:
        """`shared` is the server's receive buffer. A frame larger than `frame_bytes_max` is an error."""
        self._shared = shared
        self._memory = memory
        self._frame_bytes_max = frame_bytes_max
        self._data = _NOTHING
        """Received bytes. Those from `_position` on are not yet handed out."""
        self._position = 0
        self._incomplete: _Incomplete | None = None
        self._held = 0
        """Bytes of `_data` that wait for `resume`."""
        self._requests: deque[Pending] = deque()
        self._bytes_owed = 0
        """Bytes of the unanswered requests."""
        self._writing_blocked = False
        self._throttled_until_ms = 0
        """Nothing is handed out before. 0: the client exceeds no quota."""
        self._is_put_off = False
        """Whether nothing is handed out before `end_put_off`."""
        self._stopping = False
        self.frames_are_kept = False
        """Whether the memory of the frames handed out stays as it is. It is reused otherwise, after the current read."""
        self.is_paused = False
        """Whether no more bytes may be received until `resume`."""
        self.waits_for_memory = False
        """Whether the pause may end when other requests release memory."""
        self.is_closing = False
        """Whether nothing is received or sent any more."""
        self.last_active_ms = now_ms

    # Bytes in.

    def buffer(self) -> memoryview:
        """Return where the next bytes belong."""
        incomplete = self._incomplete
        return self._shared if incomplete is None else incomplete.buffer[incomplete.filled :]

    def received(self, count: int, now_ms: int) -> None:
        """Take over the first `count` bytes of `buffer`. `next_frame` follows until there is none."""
        self.last_active_ms = now_ms
        if self._stopping:
            return
        incomplete = self._incomplete
        if incomplete is None:
            self._data, self._position, self.frames_are_kept = self._shared[:count], 0, False
            return
        incomplete.filled += count
        self._memory.arrive(count)
        if incomplete.filled == incomplete.length:
            self._incomplete = None
            self._data, self._position, self.frames_are_kept = incomplete.buffer, 0, True
            self._memory.arrived(self, incomplete.filled)
        elif incomplete.length > _SIZE.size:
            self._grow(incomplete)

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame without its size, if it may be handled now. Raise `InvalidRequestError` for a wrong size."""
        data, position = self._data, self._position
        left = len(data) - position
        if self.is_closing or not left:
            self._drop_data()
            return None
        if left < _SIZE.size:
            self._begin_frame(_SIZE.size)
            return None
        (size,) = _SIZE.unpack_from(data, position)
        if not _FRAME_BYTES_MIN <= size <= self._frame_bytes_max:
            text = f"a request of {size} bytes (socket.request.max.bytes is {self._frame_bytes_max})"
            raise InvalidRequestError(_other_protocol(size) or text)
        begin = position + _SIZE.size
        end = begin + size
        if end > len(data):
            self._begin_frame(_SIZE.size + size)
            return None
        frame = data[begin:end].toreadonly()
        if self._is_blocked(frame):
            self._hold()
            return None
        self._position = end
        return frame

    def _begin_frame(self, length: int) -> None:
        """Go on in a buffer of its own with what is left: the start of a frame of `length` bytes."""
        start = self._data[self._position :]
        self._incomplete = _Incomplete(start, length, self.last_active_ms)
        self._memory.arrive(len(start))
        self._drop_data()

    def _drop_data(self) -> None:
        self._data, self._position = _NOTHING, 0

    def _grow(self, incomplete: _Incomplete) -> None:
        """Make room for the rest of a frame. Pause until there is memory for it."""
        if self._memory.may_grow(self):
            incomplete.grow()
        else:
            self.is_paused = self.waits_for_memory = True

    def _is_blocked(self, frame: memoryview) -> bool:
        """Return whether `frame` must wait: for earlier requests, memory, or the client to read."""
        if self._writing_blocked or self._throttled_until_ms:
            return True
        produces = frame[0] == 0 and frame[1] == PRODUCE_KEY
        if produces and self._memory.is_full:
            self.waits_for_memory = True
            return True
        requests = self._requests
        if not requests:
            return False
        last = requests[-1]
        if not produces or last.api_key != PRODUCE_KEY or last.has_task or len(requests) >= PRODUCES_IN_FLIGHT_MAX:
            return True
        return self._bytes_owed + len(frame) > PRODUCE_BYTES_IN_FLIGHT_MAX

    def _hold(self) -> None:
        """Keep what is left until `resume`."""
        if not self.frames_are_kept:
            self._data, self._position = memoryview(bytes(self._data[self._position :])), 0
            self.frames_are_kept = True
        self._held = len(self._data) - self._position
        self._memory.arrive(self._held)
        self.is_paused = True

    def put_off(self) -> bool:
        """Hand out nothing more until `end_put_off`, so that others have their turn. Return whether there is anything left."""
        if self.is_closing or self._position == len(self._data):
            return False
        self._is_put_off = True
        self._hold()
        return True

    def end_put_off(self) -> None:
        """Hand out frames again. `resume` follows."""
        self._is_put_off = False

    def _release_held(self) -> None:
        held, self._held = self._held, 0
        if held:
            self._memory.arrived(self, held)

    def resume(self, now_ms: int) -> None:
        """Go on after a pause, if it need not last. `next_frame` follows as after `received`."""
        if not self.is_paused or self.is_closing or self._stopping:
            return
        if self._is_put_off or self._writing_blocked or self._throttled_until_ms:
            return
        if self._held and self.waits_for_memory and self._memory.is_full:
            return  # to release what is held would wake others that wait, and they this one
        self.is_paused = self.waits_for_memory = False
        self._release_held()
        if self._incomplete is not None:
            self._incomplete.look_again(now_ms)
            self._grow(self._incomplete)

    def stalled_bytes(self, now_ms: int, unfinished_ms: int) -> int | None:
        """Return the received bytes of a frame that began `unfinished_ms` ago and makes too little progress, else None.

        A pause does not count: nothing is received while there is no memory, or a client over its quota is to wait.
        """
        incomplete = self._incomplete
        if incomplete is None or self.is_paused or now_ms - incomplete.since_ms < unfinished_ms:
            return None
        if incomplete.filled - incomplete.filled_before < _PROGRESS_BYTES:
            return incomplete.filled
        incomplete.look_again(now_ms)
        return None

    # Requests and answers.

    def begin(self, request: Pending) -> None:
        """Give the request of the last frame its place in the order of answers."""
        self._bytes_owed += request.size
        self._requests.append(request)

    def owe(self, count: int) -> None:
        """Add `count` bytes, which an unanswered request takes beyond its received size."""
        self._bytes_owed += count

    def take_answers(self) -> list[Buffer]:
        """Return the bytes of the complete answers, from the oldest request on."""
        requests = self._requests
        answers: list[Buffer] = []
        while requests and requests[0].done:
            request = requests.popleft()
            self._bytes_owed -= request.size
            answers += request.answer
        return answers

    @property
    def followed(self) -> Pending | None:
        """Return the newest request if a frame behind it waits for its answer."""
        return self._requests[-1] if self._held and self._requests else None

    @property
    def has_requests(self) -> bool:
        """Return whether there are unanswered requests."""
        return bool(self._requests)

    @property
    def is_waiting(self) -> bool:
        """Return whether the connection is idle because the broker has not answered, not because the client does not read."""
        return bool(self._requests) and not self._writing_blocked

    def block_writing(self) -> None:
        """Hand out no frame while the client does not read its answers."""
        self._writing_blocked = True

    def unblock_writing(self, now_ms: int) -> None:
        """Go on: the client has read."""
        self._writing_blocked = False
        self.last_active_ms = now_ms

    def throttle(self, until_ms: int) -> None:
        """Hand out no frame until then, because the client exceeds a quota. `end_throttle` ends it."""
        self._throttled_until_ms = max(self._throttled_until_ms, until_ms)
        self.is_paused = True

    def end_throttle(self, now_ms: int) -> None:
        """Go on if the client has paused long enough."""
        if now_ms >= self._throttled_until_ms:
            self._throttled_until_ms = 0
            self.last_active_ms = now_ms

    # Closing.

    def stop_reading(self) -> None:
        """Hand out no further frame, and drop what comes. The requests there are may be answered."""
        self._stopping = self.is_paused = True
        self._release_held()
        self._drop_data()

    def close(self) -> None:
        """Receive and send nothing more."""
        self.is_closing = True

    def end(self) -> Sequence[Pending]:
        """Release all memory of the lost connection. Return its requests, which stay unanswered."""
        self.is_closing = True
        requests, self._requests = self._requests, deque()
        incomplete, self._incomplete = self._incomplete, None
        if incomplete is not None:
            self._memory.arrived(self, incomplete.filled)
        self._release_held()
        self._drop_data()
        return requests


_HTTP_BEGINNINGS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_TLS_HANDSHAKE = b"\x16\x03"


def _other_protocol(size: int) -> str | None:
    """Return an error text if a request's first four bytes, read as this size, belong to another protocol, else None."""
    beginning = _SIZE.pack(size)
    if beginning in _HTTP_BEGINNINGS:
        return "this looks like HTTP: the port speaks Kafka's protocol"
    if beginning.startswith(_TLS_HANDSHAKE):
        return "this looks like TLS: the port speaks Kafka's protocol without encryption (security.protocol=PLAINTEXT)"
    return None
