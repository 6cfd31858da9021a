"""How much to measure, the two brokers that take turns, and what their work costs in processor time."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil
from kafka_reference import PERFORMANCE_JVM, ApacheKafka, BrokerProcess, Cluster, Kafkalake

from benchmarks.rows import Cost

APACHE_KAFKA_HEAP = "1g"  # KAFKA_HEAP_OPTS of Kafka's own start script: -Xmx1G -Xms1G


@dataclass(frozen=True)
class Plan:
    """Sizes of a run: `quick` is a tenth or less of everything, to see that it works and not to be quoted.

    `rows` are the keys of the rows to measure; without one, all. refill_bytes: of the log that an empty replica gets, 0: as
    `quick` says.
    """

    directory: Path
    quick: bool = False
    rounds: int = 5
    partitions: int = 1
    settings: tuple[tuple[str, str], ...] = ()
    rows: frozenset[str] = frozenset()
    refill_bytes: int = 0

    def wants(self, key: str) -> bool:
        """Return whether the row is to be measured."""
        return not self.rows or key in self.rows

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    @contextlib.contextmanager
    def brokers(
        self, settings: Mapping[str, str] | None = None, *, start_timeout_s: float = 60
    ) -> Iterator[tuple[Kafkalake, ApacheKafka]]:
        """Both brokers, running, with their data in a directory of this measure that is removed at the end.

        settings: those of both kinds.
        """
        of_both = dict(settings or {})
        with tempfile.TemporaryDirectory(
            prefix="kafkalake-benchmark-", dir=self.directory, ignore_cleanup_errors=True
        ) as d:
            ours = Kafkalake(
                directory=Path(d) / "kafkalake",
                settings=of_both | dict(self.settings),
                start_timeout_s=start_timeout_s,
            )
            theirs = ApacheKafka(
                Path(d) / "apache-kafka",
                settings=of_both,
                heap=APACHE_KAFKA_HEAP,
                jvm=PERFORMANCE_JVM,
                start_timeout_s=start_timeout_s,
            )
            with ours, theirs:
                yield ours, theirs

    @contextlib.contextmanager
    def kafkalake(self) -> Iterator[Kafkalake]:
        """A kafkalake broker alone."""
        with (
            tempfile.TemporaryDirectory(
                prefix="kafkalake-benchmark-", dir=self.directory, ignore_cleanup_errors=True
            ) as d,
            Kafkalake(directory=Path(d) / "kafkalake", settings=dict(self.settings)) as ours,
        ):
            yield ours


@contextlib.contextmanager
def costing(cost: Cost, broker: BrokerProcess | Cluster, *units: float) -> Iterator[list[float]]:
    """Add to `cost` the processor time that the brokers and their children take in the block, which does `units` of work.

    A block that knows its units only at its end appends them to the list it gets.
    """
    done = list(units)
    before = _processor_seconds(broker)
    yield done
    cost.seconds.setdefault(broker.name, []).append((_processor_seconds(broker) - before) / sum(done))


def _processor_seconds(broker: BrokerProcess | Cluster) -> float:
    if isinstance(broker, Cluster):
        return sum(_processor_seconds(each) for each in broker.brokers)
    process = psutil.Process(broker.pid)
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return sum(each.user + each.system for each in times)


Worker = TypeVar("Worker", BrokerProcess, Cluster)
"""Who takes turns: a broker, or a cluster of them."""


def take_turns(
    name: str, rounds: int, brokers: tuple[Worker, ...], work: Callable[[Worker], float], unit: str
) -> list[list[float]]:
    """Each round lets every broker work once, in turning order; returns each broker's figures, round by round.

    Dirty pages go to the disk before each turn, so that no turn pays for what the one before it wrote.
    """
    figures: list[list[float]] = [[0.0] * rounds for _ in brokers]
    for round_number in range(rounds):
        order = range(len(brokers)) if round_number % 2 == 0 else reversed(range(len(brokers)))
        for index in order:
            os.sync()
            figures[index][round_number] = work(brokers[index])
            progress(
                f"{name}: round {round_number + 1}, {brokers[index].name}: {figures[index][round_number]:,.4g} {unit}"
            )
    return figures


def progress(text: str) -> None:
    """One line to stderr with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
