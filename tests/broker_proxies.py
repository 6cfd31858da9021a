"""A TCP proxy between the brokers of a cluster, whose ways are cut, slow or broken, each way for itself.

Brokers advertise the proxy's ports to each other at a listener of their own; clients reach them directly. The client id of a
connection's first request says which broker has opened it. What is sent on a way that is cut is held back, and so is the end of a
connection: neither side learns of it, as where packets are dropped. Where no broker listens, the proxy does not listen either; its
port stays taken, or another process might listen there when the broker is back, which nobody would reach any more.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

from kafka_reference import BROKERS, Kafkalake, free_port

Way = tuple[int, int]
"""From one broker to another one."""
CHUNK_BYTES = 64 * 1024
LOOK_S = 0.02
"""How often a broker that does not listen is looked for."""
TIMEOUT_S = 10.0
_NOBODY = -1
_CLIENT_ID = re.compile(r"(?:broker-|raft-client-)?(\d+)(?:-\D.*)?")
"""Of brokers of kafkalake ("broker-1"), and of Apache Kafka ("1", "raft-client-1", "broker-1-fetcher-0")."""


def ways_of(broker_id: int, brokers: int = BROKERS) -> list[Way]:
    """Return the ways from a broker and to it."""
    return [way for way in permutations(range(brokers), 2) if broker_id in way]


class BrokerProxies:
    """The proxies of all brokers of a cluster, in one thread. Use as a context manager."""

    def __init__(self, brokers: int = BROKERS, seed: int = 0) -> None:
        self._held = [_take_port() for _ in range(brokers)]
        self.advertised = [int(each.getsockname()[1]) for each in self._held]
        """By broker, the port at which the others reach it."""
        self.behind = [free_port() for _ in range(brokers)]
        """By broker, the port at which it listens for the others."""
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut: set[Way] = set()
        self._slow_s: dict[Way, float] = {}
        self._is_healed = asyncio.Event()
        self._is_gone = [asyncio.Event() for _ in range(brokers)]
        self._open: dict[asyncio.StreamWriter, Way] = {}

    def listeners(self, broker_id: int, port: int) -> dict[str, str]:
        """Return the settings of a broker whose clients connect to `port`."""
        clients = f"PLAINTEXT://127.0.0.1:{port}"
        return {
            "listeners": f"{clients},BROKERS://127.0.0.1:{self.behind[broker_id]}",
            "advertised.listeners": f"{clients},BROKERS://127.0.0.1:{self.advertised[broker_id]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
        }

    def __enter__(self) -> BrokerProxies:
        self._thread.start()
        for target in range(len(self.behind)):
            self._do(partial(self._begin, self._serve(target)))
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()
        for each in self._held:
            each.close()

    async def _stop(self) -> None:
        self._release()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    # Faults

    def cut(self, ways: Iterable[Way]) -> None:
        """Hold back what is sent on these ways from now on."""
        self._do(partial(self._hold, set(ways)))

    def slow(self, ways: Iterable[Way], longest_s: float) -> None:
        """Let each part of what is sent on these ways take so long at most, by chance."""
        self._do(partial(self._slow_s.update, dict.fromkeys(ways, longest_s)))

    def reset(self, ways: Iterable[Way]) -> None:
        """End the connections that were opened on these ways, for both sides."""
        self._do(partial(self._end, set(ways)))

    def heal(self) -> None:
        """Deliver what was held back, in order, and be fast again."""
        self._do(self._release)

    def _hold(self, ways: set[Way]) -> None:
        self._cut |= ways
        self._is_healed.clear()

    def _release(self) -> None:
        self._cut.clear()
        self._slow_s.clear()
        self._is_healed.set()

    def _end(self, ways: set[Way]) -> None:
        for writer, way in list(self._open.items()):
            if way in ways:
                writer.transport.abort()

    def _do(self, change: Callable[[], object]) -> None:
        """Make a change in the proxies' thread."""
        done = threading.Event()

        def make() -> None:
            try:
                change()
            finally:
                done.set()

        self._loop.call_soon_threadsafe(make)
        assert done.wait(TIMEOUT_S), "the proxies do not answer"

    # Connections

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, target: int) -> None:
        """Listen for a broker whenever it listens itself."""
        while True:
            while not await self._listens(target):
                await asyncio.sleep(LOOK_S)
            self._is_gone[target].clear()
            serve = partial(self._accept, target)
            async with await asyncio.start_server(serve, "127.0.0.1", self.advertised[target], reuse_port=True):
                await self._is_gone[target].wait()

    async def _listens(self, target: int) -> bool:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", self.behind[target])
            writer.close()
            return True
        self._is_gone[target].set()
        return False

    async def _accept(self, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            frame = await _read_frame(reader)
            source = source_of(frame)
            try:
                from_target, to_target = await asyncio.open_connection("127.0.0.1", self.behind[target])
            except OSError:
                self._is_gone[target].set()
                writer.transport.abort()
                return
            self._open |= {writer: (source, target), to_target: (source, target)}
            self._begin(self._carry(from_target, writer, (target, source)))
            await self._carry(reader, to_target, (source, target), frame)
            return
        writer.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, first: bytes = b""
    ) -> None:
        """Carry bytes one way until the connection ends; then it ends for the other side too."""
        try:
            data = first or await reader.read(CHUNK_BYTES)
            while data:
                await self._pass(way)
                writer.write(data)
                await writer.drain()
                data = await reader.read(CHUNK_BYTES)
        except OSError:
            pass
        finally:
            if way[0] != _NOBODY:
                await self._listens(way[0])  # so that whoever loses the connection finds the port closed
            await self._pass(way)
            self._open.pop(writer, None)
            writer.transport.abort()

    async def _pass(self, way: Way) -> None:
        if way in self._slow_s:
            await asyncio.sleep(self._random.random() * self._slow_s[way])
        while way in self._cut:
            await self._is_healed.wait()


def _take_port() -> socket.socket:
    """Take a free port without listening at it, for others that share it to listen (`SO_REUSEPORT`)."""
    taken = socket.socket()
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    taken.bind(("127.0.0.1", 0))
    return taken


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(struct.unpack(">i", size)[0])


def source_of(frame: bytes) -> int:
    """Return the broker that sends a request, by the client id in its header; `_NOBODY` for another client."""
    (length,) = struct.unpack_from(">h", frame, 12)
    found = _CLIENT_ID.fullmatch(frame[14 : 14 + max(length, 0)].decode())
    return _NOBODY if found is None else int(found[1])


class ProxiedKafkalake(Kafkalake):
    """A broker that others reach through its proxy, and that starts quickly in the soak too."""

    is_forked = True

    def __init__(
        self,
        proxies: BrokerProxies,
        lake: Path,
        *,
        directory: Path,
        broker_id: int,
        settings: Mapping[str, str],
    ) -> None:
        super().__init__(lake, directory=directory, broker_id=broker_id, settings=settings)
        self._settings |= proxies.listeners(broker_id, self.port)
