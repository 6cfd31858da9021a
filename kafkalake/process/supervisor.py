"""Runs the brokers of a cluster on one machine as child processes: starts them again when they end, stops them in order.

A child is ready when it prints `listening on ADDRESS`. It is started again after a pause that grows while it keeps ending soon, and
no more when it ended several times in a row without having been ready: then its settings or its lake are wrong. Where the system
does not start a process (no memory, no descriptors, a Python that is being replaced), it is tried again for ever. What a child
writes is read also while it cannot be shown (a full disk, a closed pipe): a full pipe would stop the child. Children are in
sessions of their own, so that Ctrl-C reaches the supervisor alone, and they end with it however it ends (`parent`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE, Process, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

from kafkalake.process.parent import environment_of_child

_READY = "listening on "
_CHUNK_BYTES = 64 * 1024
_LAST_LINES_S = 5.0

Show = Callable[[int, str], None]
"""Called with a child's number and a line that it, or the supervisor about it, writes. An `OSError` leaves the line out."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of supervision.

    first_pause_s, longest_pause_s: before a child is started again. steady_s: a child that ran so long did not end soon.
    failed_starts_max: starts in a row without being ready, after which there is no other. stop_s: a child that takes longer to stop
    is killed.
    """

    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0
    steady_s: float = 60.0
    failed_starts_max: int = 5
    stop_s: float = 30.0


class Restarts:
    """Decides whether a child is started again, and when."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._failed_starts = 0
        self._early_ends = 0

    def pause_s(self, ran_s: float, *, was_ready: bool) -> float | None:
        """Return the pause before the next start of a child that has ended after `ran_s`, None if it is not started again."""
        self._failed_starts = 0 if was_ready else self._failed_starts + 1
        self._early_ends = 1 if was_ready and ran_s >= self._limits.steady_s else self._early_ends + 1
        return None if self._failed_starts >= self._limits.failed_starts_max else self._growing_pause_s()

    def pause_unstarted_s(self) -> float:
        """Return the pause before the next try to start a process that the system has not started."""
        self._early_ends += 1
        return self._growing_pause_s()

    def _growing_pause_s(self) -> float:
        pause_s: float = self._limits.first_pause_s * 2 ** min(self._early_ends - 1, 16)
        return min(pause_s, self._limits.longest_pause_s)


class Supervisor:
    """See the module."""

    def __init__(self, commands: Mapping[int, Sequence[str]], show: Show, limits: Limits | None = None) -> None:
        """`commands`: command lines by number, in the order of their starts."""
        self._stopping = asyncio.Event()
        self._children = [
            _Child(number, command, show, limits or Limits(), self._stopping) for number, command in commands.items()
        ]

    async def run(self, started: Callable[[Mapping[int, str]], None]) -> int:
        """Run until `stop`, or until no child is left. Return 0 after `stop`, else 1.

        `started` is called once, when each child has been started, with the addresses of those that are ready. A child is started
        when the one before it is ready or has ended: the first one makes the lake.
        """
        stopped = asyncio.create_task(self._stopping.wait())
        tasks: list[asyncio.Task[None]] = []
        try:
            for child in self._children:
                tasks.append(child.start())
                settled = asyncio.create_task(child.settled.wait())
                await asyncio.wait({settled, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if stopped.done():
                    return 0
            started({child.number: child.address for child in self._children if child.address})
            ended = asyncio.create_task(_all_ended(tasks))
            await asyncio.wait({ended, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return 0 if stopped.done() else 1
        finally:
            self._stopping.set()
            for child in reversed(self._children[: len(tasks)]):
                await child.stop()

    def stop(self) -> None:
        """Stop all children one after another, the last first. A second call kills those that still run."""
        if self._stopping.is_set():
            for child in self._children:
                child.kill()
        self._stopping.set()


class _Child:
    """One broker. address: where its present process listens, empty until that is ready. settled: it was ready, or ended, once."""

    def __init__(
        self, number: int, command: Sequence[str], show: Show, limits: Limits, stopping: asyncio.Event
    ) -> None:
        self.number = number
        self.address = ""
        self.settled = asyncio.Event()
        self._command = command
        self._show = show
        self._limits = limits
        self._stopping = stopping
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> asyncio.Task[None]:
        """Run the child, again and again. Return the task, which ends when it is not started again."""
        self._task = asyncio.create_task(self._run())
        return self._task

    async def stop(self) -> None:
        """Stop the child in order, or kill it if that takes too long."""
        assert self._task is not None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(self._task), self._limits.stop_s)
        except TimeoutError:
            self._say(f"it did not stop in {self._limits.stop_s:.0f} s and is killed")
            self.kill()
            await self._task

    def kill(self) -> None:
        """Kill the child's process, if it runs, and those that it has started."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def _run(self) -> None:
        restarts = Restarts(self._limits)
        try:
            while not self._stopping.is_set():
                began_s = time.monotonic()
                pause_s: float | None
                try:
                    code, was_ready = await self._run_once()
                except OSError as error:
                    what, pause_s = f"it could not be started: {error.strerror}", restarts.pause_unstarted_s()
                else:
                    what = f"it has ended with {_reason(code)}"
                    pause_s = restarts.pause_s(time.monotonic() - began_s, was_ready=was_ready)
                if self._stopping.is_set():
                    return
                self._say(what if pause_s is None else f"{what}; it is started again in {pause_s:.0f} s")
                self.settled.set()
                if pause_s is None:
                    self._say("it ended again and again before it was ready, and is not started any more")
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), pause_s)
        finally:
            self.settled.set()

    async def _run_once(self) -> tuple[int, bool]:
        """Run one process to its end. Return its exit code, and whether it was ready. Raise `OSError` if there is no process."""
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: SubprocessStreamProtocol(_CHUNK_BYTES, loop),
            *self._command,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
            env=environment_of_child(),
        )
        self._process = process = Process(transport, protocol, loop)
        try:
            if self._stopping.is_set():
                process.terminate()
            assert process.stdout is not None and process.stderr is not None
            readers = asyncio.gather(self._read(process.stdout), self._read(process.stderr))
            code = await process.wait()
            with contextlib.suppress(TimeoutError):  # what the broker has started may still hold its stderr
                await asyncio.wait_for(readers, _LAST_LINES_S)
            return code, bool(self.address)
        finally:
            transport.close()  # its pipes too, which what the broker has started may still hold
            self._process, self.address = None, ""

    async def _read(self, stream: asyncio.StreamReader) -> None:
        async for line in _lines(stream):
            if line.startswith(_READY):
                self.address = line.removeprefix(_READY)
                self.settled.set()
            self._say(line)

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._show(self.number, line)


async def _all_ended(tasks: Sequence[asyncio.Task[None]]) -> bool:
    await asyncio.wait(tasks)
    return True


def _reason(code: int) -> str:
    if code >= 0:
        return f"code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:  # most real-time signals have no name
        return f"signal {-code}"


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield the lines of a stream. One longer than 64 KiB comes in pieces."""
    rest = b""
    while chunk := await stream.read(_CHUNK_BYTES):
        *whole, rest = (rest + chunk).split(b"\n")
        if len(rest) > _CHUNK_BYTES:
            whole, rest = [*whole, rest], b""
        for line in whole:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")
