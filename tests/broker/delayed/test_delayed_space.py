"""The journal stays short, however long some records wait, and says the same before and after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from broker.delayed.delayed_world import DEAD_LETTERS, ORDERS, START_MS, DelayedWorld, Sent, damage, run, started
from leaderships import THREE

from kafkalake.broker.delayed.fault_points import DelayedPoint
from kafkalake.broker.delayed.journal_state import COLUMNS
from kafkalake.delayed_journal import SEQUENCE_FIELDS, Kind, read_fields, read_tail
from kafkalake.errors import NotEnoughReplicasError, UnknownTopicIdError
from kafkalake.record.message_set import to_arrow

FAR = START_MS + 30 * 86_400_000
SEGMENT = 16 << 10


async def fill(world: DelayedWorld, batches: int, first: int = 0) -> None:
    """Hand in batches of twenty records that are due at once, the first of each batch but one far away."""
    for number in range(first, first + batches):
        due = world.clock.now_ms() + 100
        records = [Sent(b"%d" % number, FAR, b"id-%d" % number), *[Sent(b"x" * 100, due)] * 19]
        world.hand_in(records, (ORDERS, number % 2), producer_id=number % 3, sequence=20 * number)
        await world.pass_time(200, 100)


def start_of(world: DelayedWorld) -> int:
    return world.led.log.log_start_offset


def far_values(world: DelayedWorld) -> list[bytes | None]:
    return [value for each in (0, 1) for value in world.targets.values((ORDERS, each)) if value and value[:1] != b"x"]


@pytest.mark.exhaustive
def test_who_is_to_follow_waits_for_a_trim_that_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = await started(tmp_path, segment_bytes=SEGMENT)
        in_thread, trims = world.run_blocking, []

        async def run_blocking(work: Callable[[], Any]) -> Any:
            under_way, start = len(world.led.partition.under_way), start_of(world)
            found = await in_thread(work)
            if start_of(world) > start:
                trims.append(under_way)
            return found

        monkeypatch.setattr(world, "run_blocking", run_blocking)
        world.restart()
        await fill(world, 6)
        await world.pass_time(70_000, 10_000)
        assert trims
        assert set(trims) == {1}

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("kill_at", [None, DelayedPoint.CARRIED, DelayedPoint.TRIMMED])
def test_records_that_wait_long_do_not_keep_the_others(tmp_path: Path, kill_at: DelayedPoint | None) -> None:
    async def scenario() -> None:
        world = await started(tmp_path, segment_bytes=SEGMENT)
        await fill(world, 12)
        world.kill_at = kill_at
        await world.pass_time(70_000, 10_000)
        if kill_at is not None:
            assert world.kill_at is None, "the point was reached"
            world.restart()
            await world.pass_time(70_000, 10_000)
        end = world.led.log.log_end_offset
        assert start_of(world) > end // 2
        assert world.coordinator.describe().waiting == 12
        await fill(world, 12, 12)
        await world.pass_time(70_000, 10_000)
        assert start_of(world) > end
        world.restart()
        await world.settle()
        again = [
            world.hand_in([Sent(b"twice", START_MS)], (ORDERS, n % 2), producer_id=n % 3, sequence=20 * n)
            for n in (0, 22)
        ]
        world.hand_in([Sent(None, -1, b"id-4")], (ORDERS, 0))
        await world.pass_time(70_000, 10_000)
        assert again == [[None], [None]]
        assert world.coordinator.describe().waiting == 23, "a cancel is carried out long before the time"
        await world.pass_time(31 * 86_400_000, 43_200_000)
        numbers = [number for number in range(24) if number != 4]
        assert far_values(world) == [b"%d" % n for n in numbers if n % 2 == 0] + [b"%d" % n for n in numbers if n % 2]
        assert len(world.targets.values((ORDERS, 0))) + len(world.targets.values((ORDERS, 1))) == 23 + 24 * 19
        assert world.coordinator.describe().waiting == 0

    run(scenario())


@pytest.mark.exhaustive
def test_a_carry_that_is_written_twice_counts_once(tmp_path: Path) -> None:
    """As after an append that timed out and was below the watermark later."""

    async def scenario() -> None:
        world = await started(tmp_path, segment_bytes=SEGMENT)
        await fill(world, 12)
        world.twice = True
        await world.pass_time(40_000, 10_000)
        assert world.coordinator.describe().waiting == 12
        world.restart()
        await world.pass_time(31 * 86_400_000, 43_200_000)
        assert sorted(int(value or b"") for value in far_values(world)) == list(range(12))

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_on_its_way_is_not_carried_when_the_wall_clock_goes_back(tmp_path: Path, restarts: bool) -> None:
    blocked = UUID(int=55)

    async def scenario() -> None:
        world = await started(tmp_path, segment_bytes=SEGMENT)
        world.targets.refused[blocked] = NotEnoughReplicasError()
        world.hand_in([Sent(b"%d" % number, START_MS + 500) for number in range(3)], (blocked, 0))
        await world.pass_time(1_000, 100)
        await fill(world, 12)
        world.clock.jump(-600_000)
        if restarts:
            world.restart()
        end = world.led.log.log_end_offset
        await world.pass_time(70_000, 10_000)
        assert world.led.log.log_end_offset < end + 60, "no carry without end"
        del world.targets.refused[blocked]
        await world.pass_time(700_000, 10_000)
        assert world.targets.values((blocked, 0)) == [b"0", b"1", b"2"]
        assert world.coordinator.describe().waiting == 12

    run(scenario())


@pytest.mark.exhaustive
def test_what_comes_due_before_a_carry_is_written_is_not_carried(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path, segment_bytes=SEGMENT)
        world.hand_in([Sent(b"soon", START_MS + 155_000), Sent(b"later", START_MS + 400_000)])
        await fill(world, 12)
        world.hand_in([Sent(b"x", START_MS + 25_000)])
        await world.pass_time(START_MS + 24_000 - world.clock.now_ms(), 1_000)
        world.led.files.fail_at_call = world.led.files.calls + 1
        await world.pass_time(140_000, 1_000)
        world.led.files.fail_at_call = None
        await world.pass_time(400_000, 1_000)
        assert [value for value in world.targets.values() if value != b"x" * 100] == [b"x", b"soon", b"later"]
        assert start_of(world) > 2, "others are carried"

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("restarts", [False, True])
def test_a_carry_that_the_replicas_get_later_is_not_handed_over_beside_its_originals(
    tmp_path: Path, restarts: bool
) -> None:
    """The followers stop: the copies are above the watermark when their originals come due."""

    async def scenario() -> None:
        world = await started(tmp_path, THREE, segment_bytes=SEGMENT)
        world.hand_in([Sent(b"%d" % number, START_MS + 400_000) for number in range(3)])
        await fill(world, 12)
        await world.pass_time(START_MS + 25_000 - world.clock.now_ms(), 1_000)
        followers, world.following = world.following, ()
        await world.pass_time(30_000, 1_000)
        assert world.led.log.log_end_offset > world.led.log.high_watermark, "copies are in the log"
        await world.pass_time(10_000, 1_000)
        world.led.set_isr(0)
        await world.pass_time(400_000, 10_000)
        world.led.set_isr(0, 1, 2)
        world.following = followers
        if restarts:
            await world.pass_time(20, 1)
            world.restart()
        await world.pass_time(20_000, 1_000)
        assert [value for value in world.targets.values() if value != b"x" * 100] == [b"0", b"1", b"2"]
        assert world.coordinator.describe().waiting == 12

    run(scenario())


def test_cancels_are_forgotten_when_nothing_more_can_arrive(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path, segment_bytes=SEGMENT)
        world.hand_in([Sent(b"a", FAR, b"id"), Sent(None, -1, b"id"), Sent(None, -1, b"none")])
        await world.pass_time(40_000, 10_000)
        assert world.coordinator.describe().waiting == 0
        assert world.cancels() == 2
        await world.pass_time(400_000, 10_000)
        assert world.cancels() == 0
        world.restart()
        await world.pass_time(1_000)
        assert world.cancels() == 0

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", ["waits-id-1", "value-1"], ids=["headers", "value"])
def test_damage_stops_neither_cancels_nor_trimming(tmp_path: Path, fault: str) -> None:
    async def scenario() -> None:
        world = await started(tmp_path, segment_bytes=SEGMENT)
        await fill(world, 4)
        base = start_of(world)
        for number in range(3):
            world.hand_in([Sent(b"value-%d" % number, FAR, b"waits-id-%d" % number)])
            await world.pass_time(10)
        await fill(world, 12, 4)
        await world.pass_time(1_000, 100)
        damage(world, fault.encode())
        world.hand_in([Sent(None, -1, b"waits-id-2"), Sent(None, -1, b"waits-id-0"), Sent(None, -1, b"id-0")])
        waiting = world.coordinator.describe().waiting
        await world.pass_time(70_000, 10_000)
        assert world.coordinator.describe().waiting == waiting - 3
        assert start_of(world) > base
        await world.pass_time(400_000, 10_000)
        assert world.cancels() == 0

    run(scenario())


def sequences(world: DelayedWorld) -> list[tuple[UUID, int]]:
    """Return the targets in the newest snapshot of sequences in the journal."""
    found: list[tuple[UUID, int]] = []
    for messages in world.led.log.scan(start_of(world), world.led.log.high_watermark, COLUMNS):
        headers = to_arrow(messages, COLUMNS).column("headers")
        for row in np.flatnonzero(read_fields(headers)["kind"] == Kind.SEQUENCES).tolist():
            noted = np.frombuffer(read_tail(headers, row), dtype=SEQUENCE_FIELDS)
            found = [(UUID(bytes=each["id"].tobytes()), int(each["partition"])) for each in noted]
    return found


@pytest.mark.exhaustive
def test_targets_that_are_deleted_do_not_stay_in_the_snapshots(tmp_path: Path) -> None:
    gone = UUID(int=77)

    async def scenario() -> None:
        world = await started(tmp_path, segment_bytes=SEGMENT)
        world.hand_in([Sent(b"delivered", START_MS), Sent(b"waits", START_MS + 600_000)], (gone, 5))
        await world.pass_time(1_000, 100)
        for number in range(3):
            await fill(world, 12, 12 * number)
            await world.pass_time(70_000, 10_000)
            if number == 0:
                assert (gone, 5) in sequences(world)
                world.targets.deleted.add(gone)
                world.targets.refused[gone] = UnknownTopicIdError()
        assert sequences(world) == [(ORDERS, 0), (ORDERS, 1)]
        world.restart()
        await world.pass_time(1_000_000, 10_000)
        assert world.targets.values((DEAD_LETTERS, 0)) == [b"waits"], "what waits for it is told apart still"
        assert world.targets.values((gone, 5)) == [b"delivered"]

    run(scenario())
