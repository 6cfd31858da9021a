"""Retention of topics that keep what groups have not read, while groups and partitions come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from manual_clock import ManualClock
from record_batches import simple_batch
from storage.partition_logs import open_log

from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.retention import enforce_retention
from kafkalake.errors import KafkaError, NotLeaderOrFollowerError

NOW_MS = 10_000_000


class Broker:
    """Topics 0, 1, ... of one partition, of which retention removes all that no group waits for. asked: called when groups are.
    working: called in the thread of each partition."""

    def __init__(self, path: Path, asked: Callable[[], None] = lambda: None) -> None:
        self.parts: list[Any] = []
        self.topics: Any = self
        self.groups = SimpleNamespace(committed=self)
        self.committed: dict[Any, dict[str, int]] = {}
        self.asked = asked
        self.moved = lambda partition: None
        self.working: Callable[[], None] = lambda: None
        self._path = path

    def __iter__(self) -> Any:
        return iter({each.topic.name: each.topic for each in self.parts}.values())

    def partitions(self) -> list[Any]:
        return self.parts

    async def lowest(self, names: object) -> dict[Any, dict[str, int]]:
        found = dict(self.committed)
        self.asked()
        return found

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        self.working()
        return work()

    def add(self, guard: str = "block") -> Any:
        name = f"{len(self.parts)}"
        config = SimpleNamespace(retention_groups_guard=guard, deletes=True, retention_ms=1, retention_bytes=-1)
        log = open_log(self._path / name, ManualClock(NOW_MS))
        self.parts.append(_Partition(SimpleNamespace(name=name, config=config), log))
        return self.parts[-1]

    def enforce(self) -> list[int]:
        broker: Any = self
        asyncio.run(enforce_retention(broker))
        return [each.log.log_start_offset for each in self.parts]


class _Partition:
    change_log: Any = Partition.change_log
    removed: Any = Partition.removed

    def __init__(self, topic: Any, log: Any) -> None:
        self.topic, self.index, self.log = topic, 0, log
        self.name, self.under_way = f"{topic.name}-0", set[Any]()
        self.refusal: KafkaError | None = None

    def write(self) -> None:
        self.log.append([simple_batch([b"x"], timestamp=1_000)], 0)
        self.log.advance_high_watermark(self.log.log_end_offset)


def test_what_comes_while_groups_are_asked_stays_until_they_are_asked_again(tmp_path: Path) -> None:
    """A group may have committed its first offset after its coordinator has answered, and before that was written."""
    broker = Broker(tmp_path)
    partition = broker.add()
    partition.write()

    def asked() -> None:
        partition.write()
        broker.committed = {("0", 0): {"new": 1}}

    broker.asked = asked
    assert broker.enforce() == [0], "in one segment with what has come"
    broker.asked = lambda: None
    assert broker.enforce() == [0], "the group has not read all of the segment"
    broker.committed = {("0", 0): {"new": 2}}
    assert broker.enforce() == [2]


def test_a_partition_or_guard_that_comes_while_groups_are_asked_waits_for_the_next_time(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    first = broker.add("off")
    second = broker.add()
    for each in (first, second):
        each.write()

    def asked() -> None:
        first.topic.config.retention_groups_guard = "block"
        broker.committed = {(f"{index}", 0): {"new": 0} for index in range(3)}
        broker.add().write()

    broker.asked = asked
    assert broker.enforce() == [0, 1, 0], "the second one was there, and nobody had committed anything"
    broker.asked = lambda: None
    assert broker.enforce() == [0, 1, 0]


def test_a_partition_that_is_led_elsewhere_by_its_turn_keeps_its_segments(tmp_path: Path) -> None:
    """Its log follows another leader, in whose segments the next messages belong. Who is to follow waits for what is under way."""
    broker = Broker(tmp_path)
    first, second = broker.add("off"), broker.add("off")
    for each in (first, second):
        each.write()
    under_way = []

    def working() -> None:
        under_way.append((len(first.under_way), len(second.under_way)))
        second.refusal = NotLeaderOrFollowerError()

    broker.working = working
    assert broker.enforce() == [1, 0]
    assert under_way == [(1, 0)]
