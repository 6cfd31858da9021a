"""Brokers that answer what no broker should: clients end in clear errors or go on, in bounded time and memory, and never hang."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from client.consuming.test_consumer_core import World
from long_runs import first_of
from simulated_network import SimulatedBroker
from simulated_producer import SimulatedProducer

from kafkalake.errors import KafkaLakeError

Change = Callable[[bytes, Random], bytes]


def flipped(frame: bytes, random: Random) -> bytes:
    """Some bytes are others."""
    changed = bytearray(frame)
    for _ in range(random.randint(1, 4)):
        changed[random.randrange(8, len(changed))] = random.choice((0, 1, 127, 128, 255, random.randrange(256)))
    return bytes(changed)


def cut(frame: bytes, random: Random) -> bytes:
    """The end is missing, and the size says so."""
    end = random.randrange(8, len(frame))
    return (end - 4).to_bytes(4, "big") + frame[4:end]


def longer(frame: bytes, random: Random) -> bytes:
    """There is more than belongs to the response."""
    more = random.randbytes(random.randint(1, 50))
    return (len(frame) - 4 + len(more)).to_bytes(4, "big") + frame[4:] + more


def misdirected(frame: bytes, random: Random) -> bytes:
    """The correlation id is another one."""
    return frame[:4] + random.randbytes(4) + frame[8:]


SEEDS = 50
SHARE = 0.3
CHANGES = [flipped, cut, longer, misdirected]


class Hostile:
    """Brokers change a share of their answers while `change` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.change: Change | None = None
        self.random = Random(0)
        answer = SimulatedBroker.answer

        def changed(broker: SimulatedBroker, frame: bytes) -> bytes:
            found = answer(broker, frame)
            is_changed = found and self.change is not None and self.random.random() < SHARE
            return self.change(found, self.random) if is_changed and self.change is not None else found

        monkeypatch.setattr(SimulatedBroker, "answer", changed)

    def begin(self, change: Change, seed: int) -> None:
        self.change, self.random = change, Random(seed)

    def end(self) -> None:
        self.change = None


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Hostile:
    return Hostile(monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("seed", first_of(range(SEEDS), 6))
def test_a_producer_ends_each_record_whatever_brokers_answer(hostile: Hostile, change: Change, seed: int) -> None:
    settings: dict[str, Any] = {"request.timeout.ms": 1_000, "delivery.timeout.ms": 8_000, "linger.ms": 0}
    producer = SimulatedProducer(seed=seed, **settings).start()
    hostile.begin(change, seed)
    futures = []
    for number in range(20):
        futures.append(producer.send(b"%d" % number, number % 2))
        producer.run(200)
    hostile.end()
    producer.run(9_000)
    futures.append(producer.send(b"after"))
    producer.run(9_000)
    assert all(future.is_done for future in futures)
    assert producer.core.accumulator.used_bytes == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("seed", first_of(range(SEEDS), 6))
def test_a_consumer_raises_what_is_clear_and_goes_on(hostile: Hostile, change: Change, seed: int) -> None:
    world = World(**{"request.timeout.ms": 1_000})
    world.assign()
    hostile.begin(change, seed)
    found: list[bytes] = []
    for number in range(20):
        world.logs["t", number % 2].append(b"%d" % number)
        world.end_waits()
        with contextlib.suppress(KafkaLakeError):
            found += world.read(500)
    hostile.end()
    for _ in range(3):
        world.end_waits()
        with contextlib.suppress(KafkaLakeError):  # of what was answered before
            found += world.read(3_000)
    if change is not flipped:  # offsets are under no checksum
        assert sorted(found) == sorted(b"%d" % number for number in range(20))
