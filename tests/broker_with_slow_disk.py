"""A broker whose disk takes its time: `python broker_with_slow_disk.py LAKE PORT SECONDS [NAME=VALUE...]`.

The fsync of the first decision of a staged append takes so many seconds. What the append asks of the transaction coordinator is
given up after one second.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from broker_with_clock import run

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.staged import transaction
from kafkalake.internal_topics import TRANSACTION_JOURNAL
from kafkalake.process.node import Node
from kafkalake.storage.files import RealFiles

sync_at_once = RealFiles.sync
end_at_once = transaction.ApplicationTransaction.end
delays_s: list[float] = []
started: list[bool] = []


def sync(self: RealFiles, descriptor: int) -> None:
    if started and delays_s and TRANSACTION_JOURNAL in os.readlink(f"/proc/self/fd/{descriptor}"):
        time.sleep(delays_s.pop())
    sync_at_once(self, descriptor)


async def end(self: transaction.ApplicationTransaction, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
    started.append(True)
    await end_at_once(self, producer, committed=committed)


if __name__ == "__main__":
    lake, port, seconds, *pairs = sys.argv[1:]
    delays_s.append(float(seconds))
    RealFiles.sync = sync  # type: ignore[method-assign]
    transaction.ApplicationTransaction.end = end  # type: ignore[method-assign]
    transaction.ANSWER_TIMEOUT_S = 1.0
    settings = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", **dict(pair.split("=", 1) for pair in pairs)}
    asyncio.run(run(Node(Path(lake), settings)))
