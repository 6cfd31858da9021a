"""Memory of a producer under back-pressure: its broker stands still, and it sends until `buffer.memory` is used up.

`python -m benchmarks.client_memory SERVERS TOPIC` is the producer. It prints a line when it is warm, waits for one, and prints by
how many bytes its resident set grew at most.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
from kafka_reference import Kafkalake, create_topic

from benchmarks.plan import Plan, progress
from benchmarks.rows import Row

KEY = "client-memory"
BUFFER_BYTES = 33_554_432
MORE_BYTES = 100_000_000
BLOCK_MS = 2_000
WARM_RECORDS = 50_000
LOOK_RECORDS = 5_000


def measure(plan: Plan) -> Row:
    """Return the row."""
    progress(KEY)
    grown = []
    with plan.kafkalake() as broker:
        create_topic(broker, KEY, partitions=4)
        grown = [_grown(broker) for _ in range(plan.rounds)]
    most = max(grown)
    return Row(
        KEY,
        "resident set of a producer whose broker stands still, when `buffer.memory` (33.6 MB) is used up, above before",
        f"{most / 1e6:.0f} MB",
        "",
        "",
        f"{(BUFFER_BYTES + MORE_BYTES) / 1e6:.0f} MB",
        most <= BUFFER_BYTES + MORE_BYTES,
        {"kafkalake": grown, "unit": "bytes"},
    )


def _grown(broker: Kafkalake) -> int:
    command = [sys.executable, "-m", "benchmarks.client_memory", broker.bootstrap_servers, KEY]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as producer:
        assert producer.stdin is not None and producer.stdout is not None
        producer.stdout.readline()
        os.kill(broker.pid, signal.SIGSTOP)
        try:
            producer.stdin.write("\n")
            producer.stdin.flush()
            return int(producer.stdout.readline())
        finally:
            os.kill(broker.pid, signal.SIGCONT)


def main() -> None:
    from kafkalake import Producer
    from kafkalake.client.errors import BufferExhaustedError

    servers, topic = sys.argv[1:3]
    resident = psutil.Process().memory_info
    with Producer(bootstrap_servers=servers, buffer_memory=BUFFER_BYTES, max_block_ms=BLOCK_MS) as producer:
        for _ in range(WARM_RECORDS):
            producer.send(topic, os.urandom(100))
        producer.flush()
        before = most = resident().rss
        print("warm", flush=True)
        sys.stdin.readline()
        kept = []
        try:
            while True:
                kept.append(producer.send(topic, os.urandom(100)))
                if len(kept) % LOOK_RECORDS == 0:
                    most = max(most, resident().rss)
        except BufferExhaustedError:
            print(max(most, resident().rss) - before, flush=True)


if __name__ == "__main__":
    main()
