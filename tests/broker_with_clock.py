"""A broker whose wall clock a test moves: `python broker_with_clock.py LAKE PORT CLOCK [NAME=VALUE...]`.

The file CLOCK holds how many milliseconds the broker's clock is ahead of the machine's.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from forked_process import look_after_logs_often

from kafkalake.clock import SystemClock
from kafkalake.process.node import Node
from kafkalake.world import World


class ShiftedClock(SystemClock):
    """The machine's clock; the wall clock is ahead by what the file says."""

    def __init__(self, ahead: Path) -> None:
        self._ahead = ahead

    def now_ms(self) -> int:
        return super().now_ms() + int(self._ahead.read_text())


async def run(node: Node) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await node.start()
    print(f"listening on {node.listeners[0].address}", flush=True)
    await stop.wait()
    await node.stop()


if __name__ == "__main__":
    look_after_logs_often()
    lake, port, ahead, *pairs = sys.argv[1:]
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", **dict(pair.split("=", 1) for pair in pairs)}
    asyncio.run(run(Node(Path(lake), settings, world=World(ShiftedClock(Path(ahead))))))
