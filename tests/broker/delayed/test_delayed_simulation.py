"""What is delivered is what a sorted list says, whatever is sent, cancelled, aborted, killed and refused on the way."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from broker.delayed.delayed_world import ORDERS, DelayedWorld, Sent, run, started
from long_runs import first_of

from kafkalake.broker.delayed.fault_points import DelayedPoint
from kafkalake.errors import KafkaStorageError, NotEnoughReplicasError, RequestTimedOutError

SEEDS = (3, 53, 124, 128, 137, *range(100))
"""The first ones have found what others do not: a cancel that was forgotten while no record was taken, and a record that was
cancelled and carried at once."""
TIGHT = range(1, 50, 2)
"""Seeds with so little room that a target that takes nothing for a while holds up others at once."""
SPANS_MS = (0, 5, 1_000, 70_000, 4_000_000, 90_000_000)


@dataclass
class Model:
    """What should be delivered: (due, place in the order of sending, value) by partition.

    `either`: values that were cancelled when they were due, so that they may have been delivered before or not.
    """

    waiting: dict[int, list[tuple[int, int, bytes]]] = field(default_factory=lambda: {0: [], 1: []})
    ids: dict[tuple[int, bytes], list[tuple[int, int, bytes]]] = field(default_factory=dict)
    either: set[bytes] = field(default_factory=set)
    placed: int = 0

    def send(self, partition: int, record: Sent, now_ms: int) -> None:
        self.placed += 1
        key = partition, record.delay_id or b""
        if record.value is None:
            for each in self.ids.pop(key, []):
                if each[0] > now_ms:
                    self.waiting[partition].remove(each)
                else:
                    self.either.add(each[2])
            return
        entry = record.due_ms, self.placed, record.value
        self.waiting[partition].append(entry)
        if record.delay_id is not None:
            self.ids.setdefault(key, []).append(entry)

    def due(self, now_ms: int) -> dict[int, list[tuple[int, int, bytes]]]:
        return {
            each: sorted(entry for entry in entries if entry[0] <= now_ms) for each, entries in self.waiting.items()
        }


class Run:
    """One run from a seed."""

    def __init__(self, world: DelayedWorld, seed: int) -> None:
        self.world = world
        self.random = Random(seed)
        self.blocks = Random(seed)
        self.model = Model()
        self.sent = 0
        self.sequences = {0: 0, 1: 0}

    async def step(self) -> None:
        world, random = self.world, self.random
        if self.blocks.random() < 0.2:
            world.targets.always = NotEnoughReplicasError() if world.targets.always is None else None
        match random.randrange(9):
            case 0 | 1 | 2 | 3:
                await self.send(aborted=False)
            case 4:
                await self.send(aborted=True)
            case 5:
                world.restart()
                await world.settle()
            case 6:
                world.kill_at = random.choice(list(DelayedPoint))
            case 7:
                faults = [NotEnoughReplicasError(), RequestTimedOutError(), KafkaStorageError()]
                chosen = world.targets.faults if random.random() < 0.5 else world.targets.faults_after
                chosen += random.sample(faults, random.randrange(3))
            case _:
                await world.pass_time(random.choice([10, 1_000, 60_000, 3_600_000]), 600_000)
        if not world.coordinator.is_loaded:
            world.restart()
            await world.settle()

    async def send(self, *, aborted: bool) -> None:
        """Send a batch as a producer does, until it is answered, and perhaps once more. It is due later than the model's now."""
        world, random = self.world, self.random
        partition = random.randrange(2)
        records = [self._record() for _ in range(random.randrange(1, 5))]
        sequence, self.sequences[partition] = self.sequences[partition], self.sequences[partition] + len(records)
        base, producer = world.appended, 50 + self.sent if aborted else partition
        for _ in range(30):
            answers = world.hand_in(
                records,
                (ORDERS, partition),
                producer_id=producer,
                sequence=sequence,
                base_offset=base,
                transactional=aborted,
            )
            await world.pass_time(8, 8)
            if answers == [None] and random.random() < 0.8:
                break
            if answers != [None]:
                world.restart()
                await world.settle()
        if aborted:
            world.end_transaction(producer, committed=False)
            return
        for record in records:
            self.model.send(partition, record, world.clock.now_ms())

    def _record(self) -> Sent:
        self.sent += 1
        random = self.random
        due = self.world.clock.now_ms() + 3_000 + random.choice(SPANS_MS) + random.randrange(3)
        delay_id = b"id-%d" % random.randrange(4) if random.random() < 0.5 else None
        is_cancel = delay_id is not None and random.random() < 0.3
        return Sent(None if is_cancel else b"%d" % self.sent, due, delay_id)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", first_of(SEEDS, 5))
def test_what_is_delivered_is_what_a_sorted_list_says(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed in TIGHT:
        monkeypatch.setattr("kafkalake.broker.delayed.delivery.HELD_BYTES_MAX", 200)

    async def scenario(directory: Path) -> None:
        world = await started(directory, segment_bytes=16 << 10)
        going = Run(world, seed)
        for _ in range(40):
            await going.step()
        world.kill_at = None
        world.targets.always = None
        world.targets.faults.clear()
        world.targets.faults_after.clear()
        world.restart()
        await world.settle()
        await world.pass_time(100_000_000, 600_000)
        for partition in (0, 1):
            delivered = world.targets.records((ORDERS, partition))
            wanted = going.model.due(world.clock.now_ms())[partition]
            values = [row[2] or b"" for row in delivered]
            assert len(set(values)) == len(values), "none doubled"
            assert set(values) | going.model.either >= {value for *_, value in wanted}, "none lost"
            assert set(values) <= {value for *_, value in wanted}, "none that was cancelled or aborted"
            due_of = {value: due for due, _, value in wanted}
            assert all(row[0] >= due_of[row[2] or b""] for row in delivered), "none early"
            places = {value: (due, place) for due, place, value in wanted}
            of_equal_due: dict[int, list[int]] = {}
            for row in delivered:
                due, place = places[row[2] or b""]
                of_equal_due.setdefault(due, []).append(place)
            assert all(each == sorted(each) for each in of_equal_due.values()), "in the order of sending"
        assert world.coordinator.describe().waiting == 0

    with tempfile.TemporaryDirectory() as directory:
        run(scenario(Path(directory)))
