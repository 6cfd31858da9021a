"""Records with delays under faults: a producer that goes on, and what has become of each of its records."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from waiting import wait_until

from kafkalake.delayed_headers import DELAY_MS

IMPATIENT = {"reconnect.backoff.max.ms": 200}
"""Of clients: else they wait up to ten seconds before they look for a broker again that was killed."""
TIMEOUT_S = 60.0
NOT_DELAYED = 5
"""One of so many records is not delayed."""


KILLS = int(os.environ.get("DELAYED_KILLS", "2"))
SECONDS = float(os.environ.get("DELAYED_S", "inf"))
"""How long brokers are killed, at most."""


class Killed(Protocol):
    """A broker."""

    def kill(self) -> object: ...

    def start(self) -> object: ...


class DelayedLoad:
    """An idempotent producer of numbered records, delayed up to `delay_ms_max` by a seed. Use as a context manager."""

    def __init__(self, servers: str, topic: str, partitions: int, *, delay_ms_max: int = 1_500, seed: int = 0) -> None:
        self._servers = servers
        self._topic = topic
        self._partitions = partitions
        seed = seed or int(os.environ.get("DELAYED_SEED", "0")) or random.randrange(1, 2**31)
        print(f"DELAYED_SEED={seed}")
        self._random, self._chooser = random.Random(seed), random.Random(seed)
        self._delay_ms_max = delay_ms_max
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "log_level": 0,
                "message.timeout.ms": 60_000,
                **IMPATIENT,
            }
        )
        self.earliest_ms: dict[bytes, int] = {}
        """When each record is due, at the earliest."""
        self.acknowledged: set[bytes] = set()
        self.failed: list[KafkaError] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(message.value())
        else:
            self.failed.append(error)

    def _send(self, number: int) -> None:
        value = b"%d" % number
        delay_ms = 0 if number % NOT_DELAYED == 0 else self._random.randrange(1, self._delay_ms_max)
        self.earliest_ms[value] = time.time_ns() // 1_000_000 + delay_ms
        headers = [(DELAY_MS, b"%d" % delay_ms)] if delay_ms else []
        partition = number % self._partitions
        self._producer.produce(self._topic, value, None, partition, headers=headers, on_delivery=self._delivered)

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            for _ in range(20):
                self._send(number)
                number += 1
            self._producer.poll(0.02)
            while len(self._producer) > 500 and not self._ended.is_set():
                self._producer.poll(0.05)
        self._producer.flush(TIMEOUT_S)

    def __enter__(self) -> DelayedLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def go_on(self, records: int = 500) -> None:
        """Return once so many more records are acknowledged."""
        target = len(self.acknowledged) + records
        wait_until(lambda: len(self.acknowledged) >= target, lambda: f"{len(self.acknowledged)} of {target}")

    def kill_at_random(self, brokers: Sequence[Killed], recovered: Callable[[], None], at_most: int) -> None:
        """Kill one broker after the other, at any moment, and let the load go on before and after its restart.

        at_most: the records that are acknowledged between one step and the next. `recovered` returns once all is well again.
        """
        ends = time.monotonic() + SECONDS
        for number in range(KILLS):
            self.go_on(self._chooser.randrange(50, at_most))
            killed = self._chooser.choice(brokers)
            killed.kill()
            if len(brokers) > 1:
                self.go_on(self._chooser.randrange(50, at_most))
            killed.start()
            recovered()
            print(f"{number + 1} kills, {len(self.acknowledged)} records acknowledged")
            if time.monotonic() >= ends:
                break
        self.go_on(200)

    def check(self, *, may_be_early: bool = False) -> None:
        """Assert that each acknowledged record was delivered, and no record twice or early."""
        found = self._read(lambda seen: self.acknowledged <= seen.keys())
        counts = Counter(value for value, _ in found)
        missing = self.acknowledged - counts.keys()
        assert not missing, f"{len(missing)} of {len(self.acknowledged)} lost, as {sorted(missing)[:5]}"
        doubled = [value for value, count in counts.items() if count > 1]
        assert not doubled, f"{len(doubled)} delivered twice, as {doubled[:5]}"
        early = [value for value, at_ms in found if at_ms < self.earliest_ms[value]]
        assert may_be_early or not early, f"{len(early)} delivered early, as {early[:5]}"
        assert not self.failed, self.failed[:3]

    def _read(self, is_complete: Callable[[Counter[bytes]], bool]) -> list[tuple[bytes, int]]:
        """Read the topic until it is complete and nothing follows. Return the values, and when each was read (ms since 1970).

        Of records that are not delayed, the time is that of their sending.
        """
        settings = {"bootstrap.servers": self._servers, "group.id": "none", "enable.auto.commit": False, "log_level": 0}
        consumer = Consumer(settings | IMPATIENT)
        found: list[tuple[bytes, int]] = []
        seen: Counter[bytes] = Counter()
        ends = time.monotonic() + TIMEOUT_S
        try:
            consumer.assign([TopicPartition(self._topic, each, 0) for each in range(self._partitions)])
            while time.monotonic() < ends:
                messages = consumer.consume(1_000, 0.5)
                for message in messages:
                    if message.error() is None:
                        found.append((message.value(), message.timestamp()[1]))
                        seen[message.value()] += 1
                if not messages and is_complete(seen):
                    break
        finally:
            consumer.close()
        return found
