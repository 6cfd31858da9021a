"""A connection without a socket: frames out of bytes however they are cut, the order of answers, pauses, limits."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from kafkalake.errors import InvalidRequestError
from kafkalake.server.connection_state import (
    PRODUCE_BYTES_IN_FLIGHT_MAX,
    PRODUCES_IN_FLIGHT_MAX,
    Buffer,
    ConnectionState,
)
from kafkalake.server.request_memory import RequestMemory

SHARED_BYTES = 4 * 1024
FRAME_BYTES_MAX = 64 * 1024 * 1024
PRODUCE, FETCH = 0, 1


@dataclass
class Asked:
    """A request as the state sees it."""

    api_key: int
    size: int
    done: bool = False
    answer: Sequence[Buffer] = ()
    has_task: bool = False

    def abandon(self) -> None: ...

    def hasten(self) -> None: ...

    def reply(self, *answer: bytes) -> None:
        self.done, self.answer = True, answer


def frame(api_key: int, size: int = 20, fill: int = 7) -> bytes:
    return struct.pack(">ih", size, api_key) + bytes([fill]) * (size - 2)


class Client:
    """Sends bytes to a state, as a transport delivers them: not while it is paused."""

    def __init__(self, memory: RequestMemory | None = None, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.memory = memory or RequestMemory(1 << 40)
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.state = ConnectionState(self.shared, self.memory, frame_bytes_max, 0)
        self.unsent = b""
        self.frames: list[bytes] = []
        self.requests: list[Asked] = []

    def send(self, data: bytes, now_ms: int = 0, *, begins: bool = True) -> None:
        """Send `data` behind what is unsent. `begins`: each frame becomes a request without an answer."""
        self.unsent += data
        while self.unsent and not self.state.is_paused and not self.state.is_closing:
            buffer = self.state.buffer()
            count = min(len(buffer), len(self.unsent))
            buffer[:count] = self.unsent[:count]
            self.unsent = self.unsent[count:]
            self.state.received(count, now_ms)
            self.take(begins=begins)

    def take(self, *, begins: bool = True) -> None:
        while (each := self.state.next_frame()) is not None:
            assert each.readonly
            self.frames.append(bytes(each))
            if begins:
                self.requests.append(Asked(each[1], len(each)))
                self.state.begin(self.requests[-1])

    def resume(self, now_ms: int = 0) -> None:
        """Do what a transport does once a pause may be over."""
        self.state.resume(now_ms)
        if not self.state.is_paused:
            self.take()
            self.send(b"", now_ms)

    def answers(self) -> bytes:
        return b"".join(self.state.take_answers())


def body(data: bytes) -> bytes:
    return data[4:]


@pytest.mark.parametrize("seed", range(8))
def test_frames_are_the_same_however_their_bytes_are_cut(seed: int) -> None:
    rnd = random.Random(seed)
    sizes = [rnd.choice((8, 20, 100, SHARED_BYTES - 4, SHARED_BYTES, 70_000, 200_000)) for _ in range(20)]
    sent = [frame(PRODUCE, size, number) for number, size in enumerate(sizes)]
    data, client = b"".join(sent), Client()
    while data:
        count = rnd.choice((1, 2, 3, 4, 5, 50, 1000, 50_000))
        client.send(data[:count], begins=False)
        data = data[count:]
    assert client.frames == [body(each) for each in sent]
    assert client.memory.arriving == 0


def test_whole_frames_are_not_copied() -> None:
    client = Client()
    data = frame(PRODUCE) + frame(PRODUCE)
    client.state.buffer()[: len(data)] = data
    client.state.received(len(data), 0)
    for _ in range(2):
        found = client.state.next_frame()
        assert found is not None and found.obj is client.shared.obj and not client.state.frames_are_kept
    assert client.state.next_frame() is None


def test_a_frame_that_came_in_pieces_stays_as_it_is() -> None:
    client = Client()
    client.send(frame(PRODUCE, 10_000)[:-1], begins=False)
    own = client.state.buffer()
    own[0] = 7
    client.state.received(1, 0)
    found = client.state.next_frame()
    assert found is not None and found.obj is own.obj and client.state.frames_are_kept


CROOKED = {
    "negative": struct.pack(">i", -1),
    "the least number": struct.pack(">i", -(2**31)),
    "zero": bytes(4),
    "below a header": struct.pack(">i", 7),
    "above the limit": struct.pack(">i", FRAME_BYTES_MAX + 1),
    "the largest number": struct.pack(">i", 2**31 - 1),
}


@pytest.mark.parametrize("size", CROOKED.values(), ids=CROOKED)
@pytest.mark.parametrize("cut", range(4))
def test_a_wrong_size_is_an_error_before_anything_is_allocated(size: bytes, cut: int) -> None:
    client = Client()
    client.send(frame(PRODUCE) + size[:cut])
    with pytest.raises(InvalidRequestError, match=r"socket\.request\.max\.bytes is"):
        client.send(size[cut:] + b"more")
    assert client.frames == [body(frame(PRODUCE))]
    client.state.close()
    assert client.state.next_frame() is None


@pytest.mark.parametrize(("start", "protocol"), [(b"GET / HTTP/1.1\r\n", "HTTP"), (b"\x16\x03\x01\x02\0", "TLS")])
def test_other_protocols_are_named(start: bytes, protocol: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"looks like {protocol}"):
        Client().send(start)


def test_a_frame_as_large_as_the_limit_is_taken() -> None:
    client = Client(frame_bytes_max=100)
    client.send(frame(PRODUCE, 100))
    assert client.frames
    with pytest.raises(InvalidRequestError):
        client.send(frame(PRODUCE, 101))


def test_buffers_follow_the_bytes_and_not_the_announced_size() -> None:
    client = Client()
    client.send(struct.pack(">i", 50_000_000) + b"\0\0")
    room = len(client.state.buffer())
    assert room < 100_000
    client.send(bytes(room))
    assert room < len(client.state.buffer()) < 20 * room


def test_a_request_waits_for_the_one_before_it() -> None:
    client = Client()
    client.send(frame(FETCH) + frame(FETCH) + frame(FETCH)[:7])
    assert len(client.frames) == 1 and client.state.is_paused and not client.state.waits_for_memory
    held = client.memory.arriving
    assert held == len(frame(FETCH)) + 7
    client.resume()
    assert len(client.frames) == 1 and client.state.is_paused and client.memory.arriving == held
    client.requests[0].reply(b"first")
    assert client.answers() == b"first"
    client.resume()
    assert len(client.frames) == 2 and not client.state.is_paused
    client.send(frame(FETCH)[7:])
    assert client.state.is_paused
    client.requests[1].reply(b"second")
    client.answers()
    client.resume()
    assert client.frames == [body(frame(FETCH))] * 3
    assert client.memory.arriving == 0


def test_what_is_put_off_is_handed_out_in_its_turn_whatever_else_ends_a_pause() -> None:
    client = Client()
    client.shared[: 3 * len(frame(PRODUCE)) + 7] = frame(PRODUCE) * 3 + frame(PRODUCE)[:7]
    client.state.received(3 * len(frame(PRODUCE)) + 7, 0)
    assert client.state.next_frame() is not None
    assert client.state.put_off() and client.state.is_paused
    held = 2 * len(frame(PRODUCE)) + 7
    assert client.memory.arriving == held
    client.resume()
    assert client.state.is_paused and client.memory.arriving == held and not client.frames
    client.state.end_put_off()
    client.resume()
    assert len(client.frames) == 2 and not client.state.is_paused
    client.send(frame(PRODUCE)[7:])
    assert client.frames == [body(frame(PRODUCE))] * 3
    assert not client.state.put_off()
    assert client.memory.arriving == 0


def test_produce_requests_are_pipelined_up_to_their_limits() -> None:
    client = Client()
    client.send(frame(PRODUCE) * (PRODUCES_IN_FLIGHT_MAX + 1))
    assert len(client.frames) == PRODUCES_IN_FLIGHT_MAX and client.state.is_paused
    large = Client()
    large.send(frame(PRODUCE) * 2)
    large.requests[0].size += PRODUCE_BYTES_IN_FLIGHT_MAX
    large.state.owe(PRODUCE_BYTES_IN_FLIGHT_MAX)
    large.send(frame(PRODUCE))
    assert len(large.frames) == 2
    large.requests[0].reply()
    assert large.answers() == b""
    large.resume()
    assert len(large.frames) == 3


def test_nothing_is_pipelined_behind_a_task() -> None:
    client = Client()
    client.send(frame(PRODUCE))
    client.requests[0].has_task = True
    client.send(frame(PRODUCE))
    assert len(client.frames) == 1


def test_answers_leave_in_the_order_of_the_requests() -> None:
    client = Client()
    client.send(frame(PRODUCE) * 4)
    first, second, third, fourth = client.requests
    third.reply(b"3")
    second.reply(b"2", b"two")
    assert client.answers() == b"" and client.state.is_waiting
    first.reply()
    assert client.answers() == b"2two3"
    fourth.reply(b"4")
    assert client.answers() == b"4" and not client.state.has_requests


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    client = Client()
    client.state.block_writing()
    client.send(frame(PRODUCE) * 2)
    assert not client.frames and client.state.is_paused and not client.state.is_waiting
    client.resume()
    assert not client.frames
    client.state.unblock_writing(5)
    client.resume()
    assert len(client.frames) == 2 and client.state.last_active_ms == 5


def test_a_frame_beyond_the_memory_of_all_waits() -> None:
    """One frame may go on beyond the bound, or none would be freed."""
    memory = RequestMemory(1000)
    first, second = Client(memory), Client(memory)
    for each in (first, second):
        each.send(frame(PRODUCE, 5_000)[:2_000])
        each.send(b"x")
    assert not first.state.is_paused
    assert second.state.is_paused and second.state.waits_for_memory
    assert second.state.stalled_bytes(10_000, 1_000) is None
    first.send(frame(PRODUCE, 5_000)[2_001:])
    assert len(first.frames) == 1
    second.resume(now_ms=10_000)
    assert not second.state.is_paused and not second.state.waits_for_memory
    assert second.state.stalled_bytes(10_999, 1_000) is None
    assert second.state.stalled_bytes(11_000, 1_000) == 2_001


def test_produce_requests_wait_for_room_for_their_batches() -> None:
    client = Client(RequestMemory(100))
    client.memory.queue(100)
    client.send(frame(PRODUCE))
    assert not client.frames and client.state.waits_for_memory
    client.memory.release(100)
    client.resume()
    assert len(client.frames) == 1 and client.memory.arriving == 0


def test_a_frame_that_goes_on_is_not_stalled() -> None:
    client = Client()
    data = frame(PRODUCE, 1_000_000)
    client.send(data[:2])
    assert client.state.stalled_bytes(999, 1_000) is None
    assert client.state.stalled_bytes(1_000, 1_000) == 2
    client.send(data[2:70_000], now_ms=1_000)
    assert client.state.stalled_bytes(1_000, 1_000) is None
    client.send(data[70_000:200_000], now_ms=1_900)
    assert client.state.stalled_bytes(2_000, 1_000) is None
    client.send(data[200_000:210_000], now_ms=2_100)
    assert client.state.stalled_bytes(3_000, 1_000) == 210_000


def test_a_frame_is_not_stalled_while_its_client_is_over_a_quota() -> None:
    client = Client()
    client.send(frame(PRODUCE, 1_000_000)[:70_000])
    client.state.throttle(60_000)
    for now_ms in (30_000, 59_999):
        assert client.state.stalled_bytes(now_ms, 1_000) is None
    client.state.end_throttle(60_000)
    client.resume(60_000)
    assert client.state.stalled_bytes(60_999, 1_000) is None
    assert client.state.stalled_bytes(61_000, 1_000) == 70_000


def test_frames_that_wait_for_memory_do_not_wake_each_other() -> None:
    memory = RequestMemory(100)
    memory.queue(100)
    clients = [Client(memory), Client(memory)]
    woken: list[int] = []
    for each in clients:
        each.send(frame(PRODUCE))
        memory.call_when_free(lambda: woken.append(1))
    clients[0].resume()
    assert woken == []
    assert [(each.state.waits_for_memory, each.frames) for each in clients] == [(True, [])] * 2
    memory.release(100)
    assert len(woken) == 2
    for each in clients:
        each.resume()
        assert len(each.frames) == 1
    assert memory.arriving == 0


@pytest.mark.parametrize("sent", [frame(FETCH) * 3, frame(FETCH)[:9], frame(PRODUCE, 10_000)[:-1], b"\0"])
def test_a_lost_connection_gives_back_its_memory_and_its_requests(sent: bytes) -> None:
    client = Client()
    client.send(sent)
    assert client.memory.arriving > 0
    assert list(client.state.end()) == client.requests
    assert client.memory.arriving == 0 and client.state.is_closing and not client.state.has_requests


def test_a_stopping_server_takes_no_further_request() -> None:
    client = Client()
    client.send(frame(FETCH) * 2)
    client.state.stop_reading()
    client.requests[0].reply(b"last")
    assert client.answers() == b"last"
    client.resume()
    assert len(client.frames) == 1 and client.state.is_paused and client.memory.arriving == 0
    client.state.is_paused = False  # its transport may have read once more
    client.send(frame(FETCH))
    assert len(client.frames) == 1 and client.memory.arriving == 0
