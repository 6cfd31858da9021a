"""A TCP proxy in front of a broker that delays what it passes on, cuts its connections, and lets later ones overtake earlier ones.

Bytes of one connection cannot change their order. What can: an old connection, which its client has given up already, may still
deliver its requests to the broker after those of the connection that replaces it (`cut(late_s=...)`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from random import Random
from typing import Any

_PIECE_BYTES = 8_192


class CuttingProxy:
    """Listens on a free port of 127.0.0.1. Each piece of up to 8 KiB waits up to `delay_s`, so pieces of connections overtake."""

    def __init__(self, broker_port: int = 0, *, delay_s: float = 0.01, seed: int = 1) -> None:
        self.broker_port = broker_port
        self.port = 0
        self.cuts = 0
        self.came_late = 0
        """Pieces of requests that reached the broker after their connection was cut."""
        self._held = 0
        self._delay_s = delay_s
        self._random = Random(seed)
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server
        self._pairs: set[_Pair] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        self._wait(self._listen())
        return self

    def __exit__(self, *error: object) -> None:
        self._wait(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def lead_to(self, broker_port: int) -> None:
        """Connect to this port of 127.0.0.1 from now on."""
        self.broker_port = broker_port

    def cut(self, late_s: float = 0) -> None:
        """Abort all connections, in the middle of whatever they carry.

        late_s: what clients have sent reaches the broker so much later, after what they send by new connections.
        """
        self._wait(self._cut(late_s))

    def passes_bytes(self) -> bool:
        """Return whether any connection is open."""
        return bool(self._pairs)

    def holds_requests(self) -> bool:
        """Return whether a piece of a request is on its way to the broker."""
        return self._held > 0

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        self._server.close()
        await self._cut(0)
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _cut(self, late_s: float) -> None:
        for pair in self._pairs:
            self.cuts += 1
            pair.cut(late_s)
        self._pairs.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self.broker_port)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, broker_writer)
        self._pairs.add(pair)
        try:
            await asyncio.gather(
                self._pass(reader, broker_writer, pair), self._pass(broker_reader, writer, pair), return_exceptions=True
            )
        finally:
            self._pairs.discard(pair)
            pair.end()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: _Pair) -> None:
        is_request = writer is pair.broker
        try:
            while data := await reader.read(_PIECE_BYTES):
                self._held += is_request
                await asyncio.sleep(self._random.random() * self._delay_s)
                if pair.late_s and is_request:
                    await asyncio.sleep(pair.late_s)
                    self.came_late += 1
                writer.write(data)
                self._held -= is_request
                await writer.drain()
        finally:
            writer.close()  # a broker that is killed resets its connections: its client hears of it at once


class _Pair:
    """The connection of a client and the one to the broker that belongs to it."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self.client = client
        self.broker = broker
        self.late_s = 0.0

    def cut(self, late_s: float) -> None:
        """End the client's connection now, and the broker's too if nothing is to come late."""
        self.late_s = late_s
        self.client.transport.abort()
        if not late_s:
            self.broker.transport.abort()

    def end(self) -> None:
        """Close both."""
        for writer in (self.client, self.broker):
            writer.transport.abort()
