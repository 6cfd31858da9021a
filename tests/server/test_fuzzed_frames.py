"""Hundreds of thousands of frames, right and broken, into a broker's connections: nothing fails that was not foreseen.

`FUZZ_FRAMES` and `FUZZ_SEED` lengthen and replay it (`scripts/soak`).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from contract.wire_client import WireClient, batch, code, create_topic, fetch, produce, values_of
from contract.wire_transactions import find_coordinator
from generated_frames import GROUPS, KEPT, PARTITIONS, TRANSACTIONAL_IDS, Frames
from node_in_thread import NodeInThread
from waiting import wait_until
from worst_case import MIB, resident_bytes

from kafkalake.broker.partitions.topics import Topic
from kafkalake.errors import UnknownTopicOrPartitionError
from kafkalake.server.connection import Connection

pytestmark = pytest.mark.process

FRAMES = int(os.environ.get("FUZZ_FRAMES", "100000"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
CONNECTIONS = 32
TASKS_MAX = 64
FRAMES_OF_CONNECTION = 500
FRAMES_BETWEEN_TURNS = 8
GROWN_MAX = 200 * MIB
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


class Sink:
    """A transport whose other end reads everything at once."""

    def __init__(self) -> None:
        self.connection: Connection
        self.is_paused = False
        self.is_closed = False
        self.written = 0

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.1", 5) if name == "peername" else None

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.written += len(data)

    def writelines(self, parts: list[Any]) -> None:
        self.written += sum(map(len, parts))

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    abort = close


class Fuzz:
    """Feeds frames to connections of a node, on its loop."""

    def __init__(self, node: NodeInThread, frames: Frames) -> None:
        assert node.node.acceptor is not None
        self._acceptor = node.node.acceptor
        self._listener = node.node.listeners[0]
        self.context = self._acceptor._context
        self._frames = frames
        self._random = random.Random(SEED)
        self._open: list[Sink] = []
        self.sent = 0
        self.answered_bytes = 0

    async def run(self, count: int) -> None:
        """Send `count` frames."""
        rnd, share, end = self._random, 0.3, self.sent + count
        while self.sent < end:
            if self.sent % 1000 == 0:
                share = rnd.uniform(0.1, 0.5)
            await self.send(self._frames.broken() if rnd.random() < share else self._frames.draw())

    async def send(self, frame: bytes) -> None:
        sink = await self._free()
        self.sent += 1
        cut = self._random.randrange(len(frame)) if self._random.random() < 0.05 else 0
        for part in (frame[:cut], frame[cut:]):
            feed(sink, part)
        if sink.connection._state._incomplete is not None and self._random.random() < 0.7:
            sink.close()  # its size was a lie, and would have the next frames taken for the rest of it
        if self.sent % FRAMES_BETWEEN_TURNS == 0:
            await asyncio.sleep(0)

    async def _free(self) -> Sink:
        """A connection that takes a frame. Of those that wait, some clients go away."""
        while self.context.tasks > TASKS_MAX:
            await asyncio.sleep(0.001)
        while True:
            if len(self._open) < CONNECTIONS:
                sink = Sink()
                sink.connection = Connection(self.context, self._acceptor, self._listener, self._acceptor._shared)
                sink.connection.connection_made(cast(asyncio.Transport, sink))
                self._open.append(sink)
                return sink
            at = self._random.randrange(len(self._open))
            sink = self._open[at]
            if not sink.is_closed and not sink.is_paused and self._random.randrange(FRAMES_OF_CONNECTION):
                return sink
            if sink.is_paused and not sink.is_closed and self._random.random() < 0.7:
                await asyncio.sleep(0)
                continue
            sink.close()
            self.answered_bytes += sink.written
            self._open[at] = self._open[-1]
            self._open.pop()

    async def end(self) -> None:
        """All clients go away."""
        for sink in self._open:
            sink.close()
        self._open.clear()


def feed(sink: Sink, data: bytes) -> None:
    """What a transport does: it reads into the connection's buffer, and nothing while the connection has paused it."""
    position = 0
    while position < len(data) and not sink.is_closed and not sink.is_paused:
        buffer = sink.connection.get_buffer(-1)
        count = min(len(buffer), len(data) - position)
        buffer[:count] = data[position : position + count]
        position += count
        sink.connection.buffer_updated(count)


class Failures(logging.Handler):
    """Keeps the first lines that came with a traceback, what reached the event loop, and the names of deleted topics."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seen: list[str] = []
        self.deleted: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg.startswith("topic deleted"):
            self.deleted.add(record.args[0])  # type: ignore[index, arg-type]
        if (record.exc_info or record.levelno > logging.ERROR) and len(self.seen) < 20:
            self.seen.append(logging.Formatter().format(record))

    def on_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if len(self.seen) < 20:
            self.seen.append(repr(context))


@pytest.fixture
def failures() -> Iterator[Failures]:
    handler = Failures()
    logger = logging.getLogger("kafkalake")
    propagate, logger.propagate = logger.propagate, False
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)
    logger.propagate = propagate


def on_loop(node: NodeInThread, work: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(work, node.loop).result()


def descriptors_beside(lake: Path) -> int:
    """Open descriptors but those of the lake's files, which have a bound of their own."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        try:
            found += not os.readlink(each).startswith(str(lake))
        except FileNotFoundError:
            continue
    return found


def until_idle(fuzz: Fuzz) -> None:
    context = fuzz.context
    wait_until(
        lambda: not (context.tasks or context.request_memory.arriving or context.request_memory.queued),
        lambda: (context.tasks, context.request_memory.__dict__),
    )


def reset(client: WireClient, node: NodeInThread) -> list[Topic]:
    """Take back what was set, so that records are small enough again. Return the topics.

    One whose deletion a frame has asked for may still be listed, although its client has gone. It goes soon.
    """
    resources = [(4, "0"), (4, ""), *((2, name) for name in node.on_loop(node.broker.topics.names))]
    for kind, name in resources:
        asked = [{"resource_type": kind, "resource_name": name, "configs": []}]
        answer = client.call("AlterConfigs", 1, resources=asked, validate_only=False)
        found = code(answer.responses[0].error_code)
        if kind == 2 and found == code(UnknownTopicOrPartitionError.code):
            wait_until(lambda gone=name: gone not in node.on_loop(node.broker.topics.names))
        else:
            assert found == 0, answer
    return node.on_loop(lambda: list(node.broker.topics))


def assert_alive(client: WireClient, topics: list[Topic]) -> None:
    """Each partition takes a record and gives it back."""
    for topic in topics:
        for index in range(len(topic.registrations)):
            if topic.name.startswith("__"):
                continue
            answer = produce(client, topic.name, batch([(b"k", b"alive")]), partition=index)
            assert code(answer.error_code) == 0, (topic.name, index, answer)
            found = fetch(client, topic.name, answer.base_offset, partition=index)
            assert values_of(found.records) == [(answer.base_offset, b"alive")], (topic.name, index)


@pytest.mark.timeout(max(600, FRAMES // 300))
def test_no_frame_does_harm(tmp_path: Path, failures: Failures, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = tmp_path / "lake"
    # pytest would keep each line: it puts its handlers on a logger that does not propagate when the test begins.
    monkeypatch.setattr(logging.getLogger("kafkalake"), "handlers", [failures])
    with NodeInThread(lake, SETTINGS) as node:
        node.on_loop(lambda: node.loop.set_exception_handler(failures.on_loop))
        with WireClient(node.servers, timeout_s=60) as client:
            ids = [create_topic(client, name, PARTITIONS) for name in KEPT]
            find_coordinator(client, GROUPS[0], 0)
            find_coordinator(client, TRANSACTIONAL_IDS[0], 1)
        threads, descriptors = threading.active_count(), descriptors_beside(lake)
        frames = Frames(SEED, ids)
        fuzz = Fuzz(node, frames)

        async def begin() -> None:
            for frame in frames.with_empty_arrays():
                await fuzz.send(frame)

        on_loop(node, begin())
        on_loop(node, fuzz.run(FRAMES // 4))
        gc.collect()
        before = resident_bytes(os.getpid())
        on_loop(node, fuzz.run(FRAMES - fuzz.sent))
        on_loop(node, fuzz.end())
        until_idle(fuzz)
        gc.collect()
        grown = resident_bytes(os.getpid()) - before
        print(f"FUZZ_SEED={SEED} frames={fuzz.sent} grown={grown / MIB:.0f} MiB", flush=True)
        assert failures.seen == []
        assert fuzz.answered_bytes > FRAMES  # most were answered
        assert grown <= GROWN_MAX
        # Of millions of frames some turn into a right request to delete these two by a bit that flips.
        gone = set(KEPT) - set(node.on_loop(node.broker.topics.names))
        assert gone <= failures.deleted
        # Another client: one that was idle for as long as millions of frames take has lost its connection.
        with WireClient(node.servers, timeout_s=60) as client:
            for name in gone:
                create_topic(client, name, PARTITIONS)
            assert_alive(client, reset(client, node))
        assert descriptors_beside(lake) <= descriptors + 16
        assert threading.active_count() <= threads + 16
    assert failures.seen == []
