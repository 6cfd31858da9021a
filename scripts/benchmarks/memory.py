"""Memory: the broker's resident set while 10 GB pass through, written and read at the same time."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

import psutil
from kafka_reference import Kafkalake, create_topic

from benchmarks import kafka_tools
from benchmarks.plan import Plan, progress
from benchmarks.raw import Connection
from benchmarks.rows import Row

LIMIT_MIB = 1024
FLAT_MIB = 64  # how far the last quarter may lie above the second
RECORD_BYTES = 1000
TOPIC = "memory"


@dataclass
class Samples:
    """Resident set of a process and its children in MiB, taken twice a second on a thread of its own."""

    pid: int
    mib: list[float] = field(default_factory=list)

    def __enter__(self) -> Samples:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(self.pid)
            while not self._done.wait(0.5):
                family = [process, *process.children(recursive=True)]
                self.mib.append(sum(member.memory_info().rss for member in family) / 2**20)


def measure(plan: Plan) -> list[Row]:
    total_bytes = plan.size(10_000_000_000, 500_000_000)
    records = total_bytes // RECORD_BYTES
    with plan.kafkalake() as broker:
        create_topic(broker, TOPIC)
        progress(f"memory: {total_bytes / 1e9:g} GB through {broker.name}")
        with Samples(broker.pid) as samples:
            reader = _Reader(broker, records)
            reader.start()
            produced = kafka_tools.produce(
                broker.bootstrap_servers,
                TOPIC,
                records=records,
                record_bytes=RECORD_BYTES,
                settings={"batch.size": "262144", "linger.ms": "10"},
                timeout_s=1800,
            )
            read = reader.result(600)
        if not broker.is_running():
            raise kafka_tools.ToolFailed(f"the broker ended{broker.stderr_tail()}")
    return [_row(samples.mib, total_bytes, produced.records_per_s, read)]


class _Reader(threading.Thread):
    """Reads the topic to its end while it is written: raw fetches, since only the bytes' way through the broker matters."""

    def __init__(self, broker: Kafkalake, records: int) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._records = records
        self._bytes = 0
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            with Connection(self._broker.port) as connection:
                offset = 0
                ready_by = time.monotonic() + 10
                while offset < self._records:
                    try:
                        found, _ = connection.fetch(TOPIC, 0, offset, 4 * 2**20)
                    except LookupError:
                        if offset or time.monotonic() > ready_by:
                            raise
                        continue  # a new partition may not have its leader yet
                    self._bytes += len(found)
                    offset = _next_offset(found, offset)
        except Exception as error:
            self._error = error

    def result(self, timeout_s: float) -> int:
        """The bytes read, once all are. Raises what ended the reading early, or `TimeoutError`."""
        self.join(timeout_s)
        if self._error is not None:
            raise self._error
        if self.is_alive():
            raise TimeoutError(f"reading {TOPIC} took {timeout_s:.0f} s longer than writing it")
        return self._bytes


def _next_offset(records: bytes, offset: int) -> int:
    """The offset behind the last whole batch (format v2: batch length at 8, last offset delta at 23)."""
    position = 0
    while position + 61 <= len(records):
        size = 12 + int.from_bytes(records[position + 8 : position + 12], "big")
        if position + size > len(records):
            break
        base = int.from_bytes(records[position : position + 8], "big")
        offset = base + int.from_bytes(records[position + 23 : position + 27], "big") + 1
        position += size
    return offset


def _row(mib: list[float], total_bytes: int, records_per_s: float, read_bytes: int) -> Row:
    quarter = max(len(mib) // 4, 1)
    growth = statistics.median(mib[-quarter:]) - statistics.median(mib[quarter : 2 * quarter] or mib)
    half = mib[len(mib) // 2 :]
    slope = (
        statistics.linear_regression(range(len(half)), half).slope * len(mib) / (total_bytes / 1e9)
        if len(half) > 1
        else 0
    )
    return Row(
        "memory",
        f"broker memory (RSS) while {total_bytes / 1e9:g} GB are written and read",
        f"at most {max(mib):,.0f} MiB; {slope:+.1f} MiB a GB in the second half",
        "",
        "",
        f"under {LIMIT_MIB:,} MiB, flat",
        max(mib) < LIMIT_MIB and growth <= FLAT_MIB,
        {
            "rss_mib": [round(value, 1) for value in mib],
            "growth_mib": growth,
            "slope_mib_per_gb": slope,
            "produced_records_per_s": records_per_s,
            "read_bytes": read_bytes,
            "seconds": len(mib) / 2,
            "at": time.time(),
        },
    )
