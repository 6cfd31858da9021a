"""Kafka's own measuring tools, each in a JVM of its own, against any broker that speaks Kafka's protocol.

The same jar, options and JVM settings are used whichever broker is on the other side, so that what differs is the broker.
"""

from __future__ import annotations

import re
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import jars
from kafka_reference import die_with_parent
from quick_jvm import java

TOOL_HEAP = "512m"  # the heap of Kafka's own start scripts for its tools

T = TypeVar("T")

_PRODUCED = re.compile(
    r"^(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, ([\d.]+) ms max latency"
    r", (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th",
    re.MULTILINE,
)


_LATENCY = re.compile(
    r"^Avg latency: ([\d.]+) ms$.*?^Percentiles: 50th = (\d+), 99th = (\d+), ", re.MULTILINE | re.DOTALL
)


class ToolFailed(Exception):
    """A tool ended with an error, ran out of time, or moved fewer records than it was told to; the text holds its output."""


@dataclass(frozen=True)
class Produced:
    """What ProducerPerformance says at its end."""

    records: int
    records_per_s: float
    mb_per_s: float
    latency_ms_average: float
    latency_ms_median: float
    latency_ms_p99: float


@dataclass(frozen=True)
class Consumed:
    """What ConsumerPerformance says at its end; `fetch_records_per_s` leaves out the time it took to join its group."""

    records: int
    records_per_s: float
    fetch_records_per_s: float


@dataclass(frozen=True)
class Latency:
    """What EndToEndLatency says at its end."""

    average_ms: float
    p99_ms: float


def produce(
    bootstrap_servers: str,
    topic: str,
    *,
    records: int,
    record_bytes: int = 100,
    payloads: Path | None = None,
    settings: Mapping[str, str] | None = None,
    throughput: int = -1,
    timeout_s: float = 300,
) -> Produced:
    """Run `kafka-producer-perf-test` with acks=all. Raises `ToolFailed`.

    payloads: a file whose lines are the values, in any order, in place of random ones of `record_bytes`.
    """
    properties = {"bootstrap.servers": bootstrap_servers, "acks": "all", **(settings or {})}
    output = run_tool(
        "org.apache.kafka.tools.ProducerPerformance",
        [
            *("--topic", topic),
            *("--num-records", str(records)),
            *(("--record-size", str(record_bytes)) if payloads is None else ("--payload-file", str(payloads))),
            *("--throughput", str(throughput)),
            *("--producer-props", *(f"{name}={value}" for name, value in properties.items())),
        ],
        timeout_s,
    )
    found = _PRODUCED.search(output)
    if found is None or int(found[1]) != records or "Exception" in output:
        raise ToolFailed(f"ProducerPerformance did not send {records} records:\n{output[-4000:]}")
    return Produced(int(found[1]), *(float(found[index]) for index in (2, 3, 4, 6, 8)))


def consume(bootstrap_servers: str, topic: str, *, records: int, timeout_s: float = 300) -> Consumed:
    """Run `kafka-consumer-perf-test` from the beginning of the topic, in a new group. Raises `ToolFailed`."""
    output = run_tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        [
            *("--bootstrap-server", bootstrap_servers),
            *("--topic", topic),
            *("--messages", str(records)),
            *("--group", f"measure-{uuid.uuid4().hex[:12]}"),
            *("--timeout", "30000"),
            "--hide-header",
        ],
        timeout_s,
    )
    for line in output.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 10 and int(fields[4]) >= records:
            return Consumed(int(fields[4]), float(fields[5]), float(fields[9]))
    raise ToolFailed(f"ConsumerPerformance did not read {records} records:\n{output[-4000:]}")


def end_to_end_latency(bootstrap_servers: str, topic: str, records: int, record_bytes: int) -> Latency:
    """Run Kafka's `EndToEndLatency` with acks=all. Raises `ToolFailed`."""
    arguments = [bootstrap_servers, topic, str(records), "all", str(record_bytes)]
    output = run_tool("org.apache.kafka.tools.EndToEndLatency", arguments, 300)
    found = _LATENCY.search(output)
    if found is None:
        raise ToolFailed(f"EndToEndLatency has no result:\n{output[-4000:]}")
    return Latency(float(found[1]), float(found[3]))


def side_by_side(count: int, run: Callable[[], T]) -> list[T]:
    """Run a tool `count` times at once."""
    with ThreadPoolExecutor(count) as threads:
        return [each.result() for each in [threads.submit(run) for _ in range(count)]]


def tool_command(main_class: str, arguments: Sequence[str], *options: str) -> list[str]:
    """The command that runs a tool; `options` are the JVM's, without them those of Kafka's own start scripts."""
    options = options or (f"-Xmx{TOOL_HEAP}", "-XX:+UseG1GC")
    return [java(), *options, "-cp", ":".join(jars.jars("kafka")), main_class, *arguments]


def run_tool(main_class: str, arguments: list[str], timeout_s: float) -> str:
    """Run a Java tool of Kafka's and return stdout and stderr together. Raises `ToolFailed`."""
    command = tool_command(main_class, arguments)
    started = time.monotonic()
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            preexec_fn=die_with_parent,
        )
    except subprocess.TimeoutExpired as error:
        said = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else (error.stdout or "")
        raise ToolFailed(f"{main_class} took longer than {timeout_s:.0f} s:\n{said[-4000:]}") from None
    if ended.returncode:
        raise ToolFailed(
            f"{main_class} ended with {ended.returncode} after {time.monotonic() - started:.1f} s:\n{ended.stdout[-4000:]}"
        )
    return ended.stdout
