"""A TCP proxy in front of a broker that delays what it passes on, and cuts all its connections when told to."""

from __future__ import annotations

import asyncio
import contextlib
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
        self._delay_s = delay_s
        self._random = Random(seed)
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        self._wait(self._listen())
        return self

    def __exit__(self, *error: object) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def lead_to(self, broker_port: int) -> None:
        """Connect to this port of 127.0.0.1 from now on."""
        self.broker_port = broker_port

    def cut(self) -> None:
        """Abort all connections, in the middle of whatever they carry."""
        self._wait(self._cut())

    def passes_bytes(self) -> bool:
        """Return whether any connection is open."""
        return bool(self._writers)

    def _wait(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _cut(self) -> None:
        for writer in self._writers:
            self.cuts += 1
            writer.transport.abort()
        self._writers.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self.broker_port)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, broker_writer}
        await asyncio.gather(self._pass(reader, broker_writer), self._pass(broker_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_PIECE_BYTES):
                await asyncio.sleep(self._random.random() * self._delay_s)
                writer.write(data)
                await writer.drain()
        self._writers.discard(writer)
        writer.transport.abort()
