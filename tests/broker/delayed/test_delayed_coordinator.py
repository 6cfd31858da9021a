"""Records are handed over when they are due: once and in order, whatever fails between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NoReturn
from uuid import UUID

import numpy as np
import pytest
from broker.delayed.delayed_world import (
    DEAD_LETTERS,
    ORDERS,
    START_MS,
    Sent,
    damage,
    run,
    started,
)
from long_runs import first_of

from kafkalake.broker.delayed import delivery, space
from kafkalake.broker.delayed.coordinator import PAUSE_MS
from kafkalake.broker.delayed.fault_points import DelayedPoint
from kafkalake.broker.delayed.hand_ins import check_hand_in
from kafkalake.broker.delayed.hand_overs import hand_over_producer_id
from kafkalake.broker.delayed.rows import WaitingRows
from kafkalake.delayed_journal import (
    FIELD_BYTES,
    SEQUENCE_FIELDS,
    Kind,
    Note,
    encode_notes,
    note,
    sequences_note,
    settled_note,
)
from kafkalake.errors import (
    InvalidRecordError,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    UnknownTopicIdError,
)
from kafkalake.record.arrays import Int64s
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.temporary_files import TemporaryFiles

SECOND = START_MS + 1_000
TARGET = ORDERS, 0
POINTS = [
    DelayedPoint.HAND_IN_JOURNALLED,
    DelayedPoint.INTENTS_JOURNALLED,
    DelayedPoint.TARGET_APPENDED,
    DelayedPoint.FINISHED_JOURNALLED,
]


@pytest.mark.exhaustive
def test_a_record_appears_when_it_is_due(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        answers = world.hand_in([Sent(b"b", START_MS + 5_000), Sent(b"a", START_MS + 3_000)])
        await world.settle()
        assert answers == [None]
        await world.pass_time(2_900, 100)
        assert world.targets.values() == []
        await world.pass_time(200, 10)
        assert world.targets.values() == [b"a"]
        await world.pass_time(3_000, 100)
        assert world.targets.values() == [b"a", b"b"]
        (first, _) = world.targets.records(TARGET)
        assert first[1:] == (
            b"a",
            b"a",
            [("h", b"1"), ("kafkalake-original-timestamp", b"%d" % START_MS), ("kafkalake-delay-ms", b"3000")],
        )
        assert START_MS + 3_000 <= first[0] <= START_MS + 3_100
        assert world.coordinator.describe().waiting == 0
        assert max(world.seen.lateness_ms) <= 100

    run(scenario())


@pytest.mark.exhaustive
def test_records_that_come_due_all_the_time_are_handed_over_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock finds a record more that is due, as on a machine that is slow for its load."""

    async def scenario() -> None:
        world = await started(tmp_path)
        world.hand_in([Sent(b"%0400d" % number, SECOND + number) for number in range(1_000)])
        await world.settle()  # the records are read ahead
        now_ms, append = world.clock.now_ms, world.targets.append
        overdue: list[int] = []

        def slow_now_ms() -> int:
            world.clock.advance(1)
            return now_ms()

        def seen_append(
            target: tuple[UUID, int], batch: ProducerBatch, done: Callable[[KafkaError | None], None]
        ) -> None:
            overdue.append(world.coordinator.describe().overdue)
            append(target, batch, done)

        world.clock.advance(SECOND - now_ms())
        monkeypatch.setattr(world.clock, "now_ms", slow_now_ms)
        monkeypatch.setattr(world.targets, "append", seen_append)
        while len(world.seen.lateness_ms) < 1_000:
            world.timers.ring()
            await world.settle()
            world.clock.advance(1)
        assert world.targets.values() == [b"%0400d" % number for number in range(1_000)]
        assert max(overdue) < 200

    run(scenario())


@pytest.mark.exhaustive
def test_targets_are_handed_over_to_in_order_each(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        for number in range(30):
            world.hand_in([Sent(b"%d" % number, SECOND - number % 3)], (ORDERS, number % 4))
        await world.pass_time(1_100, 100)
        for partition in range(4):
            sent = sorted((-(number % 3), number) for number in range(30) if number % 4 == partition)
            assert world.targets.values((ORDERS, partition)) == [b"%d" % number for _, number in sent]

    run(scenario())


def test_equal_due_times_keep_the_order_of_sending_also_if_a_batch_arrives_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        world.hand_in([Sent(b"c", SECOND)], base_offset=12)
        world.hand_in([Sent(b"a", SECOND), Sent(b"b", SECOND)], base_offset=10)
        await world.pass_time(1_100, 100)
        assert world.targets.values() == [b"a", b"b", b"c"]

    run(scenario())


def test_a_hand_in_that_is_repeated_is_delivered_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)

        def send(sequence: int, epoch: int = 0) -> list[str | None]:
            return world.hand_in([Sent(b"%d" % sequence, SECOND)], producer_id=7, epoch=epoch, sequence=sequence)

        both = send(0), send(0)
        assert both == ([], []), "both wait for the one append"
        await world.settle()
        assert both == ([None], [None])
        late = [send(sequence) for sequence in (20, 10, 30, 40, 50, 60)]
        await world.settle()
        world.restart()
        await world.settle()
        late += [send(sequence) for sequence in (60, 20, 10, 0)]
        await world.pass_time(1_100, 100)
        assert late == [[None]] * 10
        assert sorted(world.targets.values()) == [b"0", b"10", b"20", b"30", b"40", b"50", b"60"]
        send(0, epoch=1)
        await world.pass_time(1_100, 100)
        assert len(world.targets.values()) == 8, "a new epoch begins again at 0"

    run(scenario())


def test_transactions_count_when_they_are_committed(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        world.hand_in([Sent(b"committed", SECOND)], producer_id=1, sequence=0, transactional=True)
        world.hand_in([Sent(b"aborted", SECOND)], producer_id=2, sequence=0, transactional=True)
        world.hand_in([Sent(b"open", SECOND)], producer_id=3, sequence=0, transactional=True)
        world.hand_in([Sent(b"plain", SECOND)])
        await world.pass_time(10, 10)
        assert world.coordinator.describe().waiting == 1
        world.end_transaction(1, committed=True)
        world.end_transaction(2, committed=False)
        await world.pass_time(1_100, 100)
        assert world.targets.values() == [b"committed", b"plain"]
        world.restart()
        await world.pass_time(1_000, 100)
        world.end_transaction(3, committed=True)
        await world.pass_time(100, 100)
        assert world.targets.values() == [b"committed", b"plain", b"open"], "begun before the start, ended after it"
        world.restart()
        await world.pass_time(1_000, 100)
        assert len(world.targets.values()) == 3

    run(scenario())


def test_a_cancel_is_for_what_was_sent_before_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        world.hand_in([Sent(b"old", SECOND, b"id"), Sent(b"other", SECOND, b"other")])
        world.hand_in([Sent(None, -1, b"id"), Sent(b"new", SECOND, b"id")])
        await world.settle()
        world.restart()
        await world.pass_time(1_100, 100)
        assert world.targets.values() == [b"other", b"new"]
        await world.calm()
        assert world.coordinator.describe().waiting == 0

    run(scenario())


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_step_neither_loses_nor_doubles(tmp_path: Path, point: DelayedPoint) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        for round_number in range(2):  # and once more
            world.kill_at = point
            due = world.clock.now_ms() + 1_000
            records = [Sent(b"%d-%d" % (round_number, number), due) for number in range(5)]
            answers = world.hand_in(records, producer_id=7, sequence=10 * round_number)
            await world.settle()
            if answers != [None]:
                world.restart()
                await world.settle()
                again = world.hand_in(records, producer_id=7, sequence=10 * round_number)
                await world.settle()
                assert again == [None]
            await world.pass_time(1_500, 100)
            world.restart()
            await world.pass_time(1_000, 100)
            assert world.kill_at is None, "the point was reached"
        assert world.targets.values() == [b"%d-%d" % (r, n) for r in range(2) for n in range(5)]
        assert world.coordinator.describe().waiting == 0

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("error", [NotEnoughReplicasError(), RequestTimedOutError(), KafkaStorageError()])
@pytest.mark.parametrize("is_appended", [False, True])
def test_an_append_to_the_target_that_fails_is_repeated(tmp_path: Path, error: KafkaError, is_appended: bool) -> None:
    """Once and again, whether or not the target has the records."""

    async def scenario() -> None:
        world = await started(tmp_path)
        faults = world.targets.faults_after if is_appended else world.targets.faults
        for number in range(2):
            faults += [error, error]
            world.hand_in([Sent(b"%d" % number, world.clock.now_ms() + 100)])
            await world.pass_time(5_000, 100)
        assert world.targets.values() == [b"0", b"1"]
        assert world.coordinator.describe().waiting == 0

    run(scenario())


@pytest.mark.exhaustive
def test_a_journal_that_cannot_be_written_delays_and_nothing_else(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        for number in range(2):
            world.hand_in([Sent(b"%d" % number, world.clock.now_ms() + 1_000)])
            await world.settle()
            world.led.files.fail_at_call = world.led.files.calls + 1
            refused = world.hand_in([Sent(b"refused", SECOND)], producer_id=7, sequence=number)
            await world.pass_time(3_000, 100)
            assert refused == ["KAFKA_STORAGE_ERROR"]
            assert len(world.targets.values()) == 2 * number, "no intent, no hand-over"
            world.led.files.fail_at_call = None
            again = world.hand_in([Sent(b"again%d" % number, SECOND)], producer_id=7, sequence=number)
            await world.pass_time(8_000, 100)
            assert again == [None]
            assert sorted(world.targets.values()[-2:]) == [b"%d" % number, b"again%d" % number]

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("module", [delivery, space], ids=["of hand-overs", "of space"])
def test_notes_for_which_there_is_no_memory_are_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    def fail(*_: object) -> NoReturn:
        failures.append(1)
        raise MemoryError

    async def scenario() -> None:
        world = await started(tmp_path, segment_bytes=16 << 10)
        for number in range(1, 3):
            for batch in range(20):
                world.hand_in(
                    [Sent(b"x" * 1_000, world.clock.now_ms() + 100)] * 5, base_offset=1_000 * number + 5 * batch
                )
                await world.settle()
            with monkeypatch.context() as patch:
                patch.setattr(module, "encode_notes", fail)
                await world.pass_time(70_000, 5_000)
                assert len(failures) >= number
            await world.pass_time(70_000, 5_000)
            assert len(world.targets.values()) == 100 * number
        assert world.led.log.log_start_offset > 0

    failures: list[int] = []
    run(scenario())


@pytest.mark.exhaustive
def test_a_load_that_fails_is_repeated(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        world.hand_in([Sent(b"a", SECOND)])
        await world.settle()
        world.coordinator.close()
        world.read_faults = [KafkaStorageError("one"), MemoryError()]
        world.restart()
        await world.settle()
        assert world.hand_in([Sent(b"b", SECOND)]) == ["COORDINATOR_LOAD_IN_PROGRESS"]
        await world.pass_real_time(lambda: world.coordinator.is_loaded)
        world.read_faults = [KafkaStorageError("the records of a round"), MemoryError()]
        await world.pass_time(6_000, 100)
        assert world.targets.values() == [b"a"]
        world.restart()
        world.coordinator.close()
        assert world.hand_in([Sent(b"c", SECOND)]) == ["NOT_COORDINATOR"]
        await world.pass_time(2_000, 100)
        assert world.targets.values() == [b"a"]

    run(scenario())


@pytest.mark.exhaustive
def test_a_record_that_is_too_large_for_its_target_becomes_a_dead_letter_alone(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        world.targets.largest_bytes = 2_000
        world.targets.dead_letter_faults = [NotEnoughReplicasError()]
        sizes = [100, 150, 5_000, 120, 90]
        world.hand_in([Sent(b"%d" % number * size, SECOND) for number, size in enumerate(sizes)])
        await world.pass_time(1_500, 20)
        await world.pass_real_time(lambda: world.targets.values((DEAD_LETTERS, 0)) != [])
        assert [value[:1] for value in world.targets.values() if value] == [b"0", b"1", b"3", b"4"]
        (dead,) = world.targets.records((DEAD_LETTERS, 0))
        assert dead[2] == b"2" * 5_000
        assert dict(dead[3])["kafkalake-dead-letter-reason"] == b"MESSAGE_TOO_LARGE"
        assert dict(dead[3])["kafkalake-dead-letter-partition"] == b"0"
        world.hand_in([Sent(b"z", START_MS)])
        await world.pass_time(1_500, 100)
        world.restart()
        await world.pass_time(1_500, 100)
        assert world.targets.values()[-1] == b"z"
        assert (len(world.targets.values()), len(world.targets.values((DEAD_LETTERS, 0)))) == (5, 1)
        assert (world.seen.dead, world.coordinator.describe().waiting) == (1, 0)

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("restarts", [False, True])
def test_records_without_a_key_become_dead_letters_alone_when_their_target_is_compacted(
    tmp_path: Path, restarts: bool
) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        world.targets.compacted.add(ORDERS)
        names = [b"%03d" % number for number in range(100)]
        without = names[7::10]
        world.kill_at = DelayedPoint.TARGET_APPENDED if restarts else None
        world.hand_in([Sent(name, SECOND, has_key=name not in without) for name in names])
        await world.pass_time(1_500, 100)
        if restarts:
            assert world.kill_at is None, "the point was reached"
            world.restart()
        await world.pass_time(1_500, 100)
        await world.pass_real_time(lambda: world.coordinator.describe().waiting == 0)
        assert world.targets.values() == [name for name in names if name not in without]
        assert world.targets.values((DEAD_LETTERS, 0)) == without
        world.hand_in([Sent(b"next", START_MS)])
        await world.pass_time(1_000, 100)
        assert world.targets.values()[-1] == b"next"

    run(scenario())


@pytest.mark.exhaustive
def test_records_of_a_deleted_topic_become_dead_letters_after_a_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        world.targets.deleted.add(ORDERS)
        world.targets.always = UnknownTopicIdError()
        world.hand_in([Sent(b"a", SECOND), Sent(b"b", SECOND)])
        await world.pass_time(25_000, 500)
        assert world.targets.values((DEAD_LETTERS, 0)) == [], "it may be a topic that is not known here yet"
        world.hand_in([Sent(b"c", START_MS)])
        await world.pass_time(15_000, 500)
        await world.pass_real_time(lambda: len(world.targets.values((DEAD_LETTERS, 0))) == 3)
        assert world.targets.values((DEAD_LETTERS, 0)) == [b"a", b"b", b"c"]
        await world.calm()
        assert world.coordinator.describe().waiting == 0

    run(scenario())


@pytest.mark.exhaustive
def test_a_topic_that_is_known_again_gets_its_records(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        world.targets.deleted.add(ORDERS)
        world.targets.always = UnknownTopicIdError()
        world.hand_in([Sent(b"a", SECOND)])
        await world.pass_time(20_000, 500)
        world.targets.deleted.clear()
        await world.pass_time(20_000, 500)
        world.targets.always = None
        await world.pass_time(10_000, 500)
        assert world.targets.values() == [b"a"]

    run(scenario())


@pytest.mark.exhaustive
def test_a_target_that_has_lost_records_is_handed_over_to_in_a_new_epoch(tmp_path: Path) -> None:
    """As after an unclean election: the sequences that follow the lost ones are refused."""

    async def scenario() -> None:
        world = await started(tmp_path)
        for number in range(2):
            world.hand_in([Sent(b"%d" % number, world.clock.now_ms() + 100)])
            await world.pass_time(1_000, 100)
        world.targets.lose_all(TARGET)
        world.hand_in([Sent(b"x", world.clock.now_ms() + 100)])
        await world.pass_time(1_000, 100)
        world.targets.append_others(TARGET)
        for number in range(2):
            world.hand_in([Sent(b"later%d" % number, world.clock.now_ms() + 100)])
            await world.pass_time(1_000, 100)
        found = [value for value in world.targets.values() if value != b"lost"]
        assert found == [b"x", b"later0", b"later1"]

    run(scenario())


@pytest.mark.exhaustive
def test_a_batch_is_as_large_as_its_target_takes(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        world.hand_in([Sent(b"%04d" % number, SECOND) for number in range(5_000)])
        await world.pass_time(1_500, 100)
        assert world.targets.values() == [b"%04d" % number for number in range(5_000)]
        assert [rows for _, rows in world.targets.appends] == [2_000, 2_000, 1_000]

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("work", ["Queued", "take", "sizes", "delivered_batch"])
@pytest.mark.parametrize("restarts", first_of([True, False], 1))
def test_many_targets_that_are_due_together_do_not_hold_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, restarts: bool
) -> None:
    targets = [(UUID(int=1_000 + number), 0) for number in range(100)]
    in_turn = [0]

    async def scenario() -> None:
        world = await started(tmp_path)
        loop = asyncio.get_running_loop()
        is_property = work == "sizes"
        done: Callable[..., object] = WaitingRows.sizes.__get__ if is_property else getattr(delivery, work)

        def work_for_a_millisecond(*arguments: object) -> object:
            if not in_turn[-1]:
                loop.call_soon(in_turn.append, 0)
            in_turn[-1] += 1
            world.clock.advance(1)
            return done(*arguments)

        if is_property:
            monkeypatch.setattr(WaitingRows, work, property(work_for_a_millisecond))
        else:
            monkeypatch.setattr(delivery, work, work_for_a_millisecond)
        for target in targets:
            world.hand_in([Sent(b"a", SECOND), Sent(b"b", SECOND)], target)
        world.targets.always = NotEnoughReplicasError() if restarts else None
        await world.pass_time(1_500, 100)
        if restarts:
            world.restart()
            world.targets.always = None
        await world.pass_time(1_500, 100)
        assert [world.targets.values(target) for target in targets] == [[b"a", b"b"]] * 100
        assert max(in_turn) <= 35, "of the alarm, and of the journal's answer"

    run(scenario())


def test_producer_ids_of_journal_partitions_differ() -> None:
    ids = {hand_over_producer_id((topic, index)) for topic in (ORDERS, DEAD_LETTERS) for index in range(200)}
    assert len(ids) == 400
    assert min(ids) >= 1 << 62
    assert max(ids) < 1 << 63


def test_records_that_are_late_come_in_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        dues = [5, 3, 9, 3, 7_200_000, 90_000_000, 61_000]
        for number, due in enumerate(dues):
            world.hand_in([Sent(b"%d" % number, START_MS + due)])
        await world.settle()
        world.coordinator.close()
        world.clock.advance(100_000_000)
        world.restart()
        await world.calm()
        assert world.targets.values() == [b"1", b"3", b"0", b"2", b"6", b"4", b"5"]

    run(scenario())


def test_none_is_early_when_the_wall_clock_goes_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        world.hand_in([Sent(b"a", START_MS + 10_000)])
        await world.settle()
        world.clock.jump(-20_000)
        await world.pass_time(20_000, 1_000)
        assert world.targets.values() == []
        world.clock.jump(20_000)
        await world.pass_time(31_000, 1_000)
        assert world.targets.values() == [b"a"], "within the time between two looks"

    run(scenario())


@pytest.mark.exhaustive
def test_a_small_world_is_the_same_with_far_entries_in_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("kafkalake.broker.delayed.coordinator.IN_MEMORY_MAX", 3)
        world = await started(tmp_path)
        world.hand_in([Sent(b"%02d" % number, START_MS + 7_200_000 * (number % 5)) for number in range(20)])
        await world.pass_time(10, 10)
        assert list((tmp_path / "journal").glob("*.tmp"))
        await world.pass_time(5 * 7_200_000, 600_000)
        assert world.targets.values() == [b"%02d" % number for number in sorted(range(20), key=lambda n: n % 5)]
        assert not list((tmp_path / "journal").glob("*.tmp"))

    run(scenario())


@pytest.mark.exhaustive
def test_loads_that_fail_leave_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load is repeated each second, for as long as the journal cannot be read."""
    monkeypatch.setattr("kafkalake.broker.delayed.coordinator.IN_MEMORY_MAX", 4)
    reads: list[int] = []

    def unreadable(log: object, offsets: Int64s, end_offset: int) -> WaitingRows:
        reads.append(len(offsets))
        raise KafkaStorageError("of the test")

    def files() -> list[str]:
        return sorted(each.name for each in (tmp_path / "journal").glob("*.tmp"))

    async def scenario() -> None:
        world = await started(tmp_path)
        world.targets.always = NotLeaderOrFollowerError()
        far = [Sent(b"%d" % number, START_MS + 3_600_000 * (10 + number)) for number in range(10)]
        world.hand_in([Sent(b"now", START_MS), *far])
        await world.pass_time(2_000, 100)
        held = len(files())
        assert held
        with monkeypatch.context() as patch:
            patch.setattr("kafkalake.broker.delayed.coordinator.read_waiting", unreadable)
            world.restart()
            await world.pass_real_time(lambda: len(reads) == 2)
            await world.settle()
            assert files() == []
        world.targets.always = None
        await world.pass_real_time(lambda: world.coordinator.is_loaded)
        assert len(files()) == held
        await world.pass_time(5_000, 100)
        assert world.targets.values() == [b"now"]

    run(scenario())


@pytest.mark.exhaustive
def test_a_load_that_was_given_up_does_not_write_into_the_files_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread may be at work still when the partition is led here again."""
    monkeypatch.setattr("kafkalake.broker.delayed.coordinator.IN_MEMORY_MAX", 3)
    far = [START_MS + 86_400_000 + 60_000 * number for number in range(12)]

    async def scenario() -> None:
        world = await started(tmp_path)
        for number, due in enumerate(far):
            world.hand_in([Sent(b"%02d" % number, due)])
            await world.pass_time(10, 10)
        given_up = world.coordinator
        given_up.close()
        write, is_first = TemporaryFiles.write, True

        def write_late(files: TemporaryFiles, name: str, position: int, data: bytes) -> None:
            nonlocal is_first
            if is_first:
                is_first = False
                world.coordinator = world._start()  # it loads all before the thread goes on
                state = world.coordinator._new_state()
                world.coordinator._read_journal(state)
                world.coordinator._begin(state, [])
                data = bytes(len(data))
            write(files, name, position, data)

        monkeypatch.setattr(TemporaryFiles, "write", write_late)
        given_up._is_closed = False
        given_up._read_journal(given_up._new_state())
        assert not is_first
        await world.pass_time(90_000_000, 600_000)
        assert world.targets.values() == [b"%02d" % number for number in range(12)]

    run(scenario())


BROKEN = [
    note(Note(Kind.INTENT, TARGET, 0, 0, np.zeros(1, dtype=np.int64)))[:-1],
    note(Note(Kind.FINISHED, TARGET, 0, 0, np.zeros(0, dtype=np.int64)))[:1] + b"\xff" * (FIELD_BYTES - 1),
    sequences_note(np.zeros(1, dtype=SEQUENCE_FIELDS)) + b"x",
]


@pytest.mark.parametrize("text", BROKEN, ids=["intent", "reason", "sequences"])
def test_a_note_that_cannot_be_read_keeps_nothing_back(tmp_path: Path, text: bytes) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        world.hand_in([Sent(b"a", SECOND)])
        await world.settle()
        world.coordinator.hand_in(encode_notes([text]), lambda error: None)
        await world.settle()
        world.hand_in([Sent(b"b", SECOND)])
        await world.pass_time(100, 10)
        for restarts in (True, False):
            if restarts:
                world.restart()
            await world.pass_time(2_000, 100)
            assert world.coordinator.is_loaded
        assert world.targets.values() == [b"a", b"b"]

    run(scenario())


@pytest.mark.parametrize(
    "text", [*BROKEN, b"", settled_note(9)], ids=["intent", "reason", "sequences", "no", "settled"]
)
def test_only_records_that_wait_and_cancels_are_handed_in_by_other_brokers(text: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        check_hand_in(encode_notes([text]))


def test_what_a_broker_hands_in_is_taken(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        taken: list[ProducerBatch] = []
        world.coordinator.hand_in = lambda batch, done: taken.append(batch)  # type: ignore[method-assign]
        world.hand_in([Sent(b"a", SECOND), Sent(None, 0, b"id"), Sent(b"b", SECOND, b"id")], producer_id=5, sequence=3)
        check_hand_in(taken[0])
        world.hand_in([Sent(b"a", -5)])
        with pytest.raises(InvalidRecordError):
            check_hand_in(taken[1])

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("restarts", [False, True])
def test_a_damaged_record_keeps_no_other_back(tmp_path: Path, restarts: bool) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        for number in range(20):
            world.hand_in([Sent(b"value-%02d" % number, START_MS + 3_600_000)], (ORDERS, number % 2))
            await world.pass_time(10, 10)
        damage(world, b"value-07")
        if restarts:
            world.restart()
        await world.pass_time(3_700_000, 60_000)
        world.hand_in([Sent(b"later", world.clock.now_ms())])
        await world.pass_time(5_000, 500)
        delivered = [*world.targets.values(), *world.targets.values((ORDERS, 1))]
        assert sorted(map(bytes, filter(None, delivered))) == sorted(
            [b"later", *(b"value-%02d" % number for number in range(20) if number != 7)]
        )
        assert world.coordinator.describe().waiting == 1, "it is not forgotten"

    run(scenario())


@pytest.mark.exhaustive
def test_a_damaged_record_that_was_being_handed_over_keeps_no_other_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        world = await started(tmp_path)
        world.targets.always = NotLeaderOrFollowerError()
        world.hand_in([Sent(b"damaged", START_MS + 10)])
        await world.pass_time(2_000, 100)
        damage(world, b"damaged")
        world.restart()
        world.targets.always = None
        await world.pass_time(5_000, 100)
        assert world.coordinator.is_loaded
        world.hand_in([Sent(b"next", START_MS)])
        await world.pass_time(5_000, 100)
        assert world.targets.values() == [b"next"]

    run(scenario())


@pytest.mark.exhaustive
def test_a_dead_letter_topic_that_is_deleted_is_replaced(tmp_path: Path) -> None:
    another = UUID(int=99)

    async def scenario() -> None:
        world = await started(tmp_path)
        world.targets.always = InvalidRecordError()
        world.targets.refused[DEAD_LETTERS] = UnknownTopicIdError()
        world.targets.refused[another] = NotLeaderOrFollowerError()
        for number in range(3):
            world.hand_in([Sent(b"%d" % number, START_MS)])
            await world.pass_time(1_000, 100)
        world.targets.deleted.add(DEAD_LETTERS)
        world.targets.dead_letters = another
        world.targets.always = None
        await world.pass_time(40_000, 500)
        del world.targets.refused[another]
        await world.pass_time(10_000, 500)
        assert sorted(map(bytes, filter(None, world.targets.values((another, 0))))) == [b"0", b"1", b"2"]
        reasons = {dict(row[3])["kafkalake-dead-letter-reason"] for row in world.targets.records((another, 0))}
        assert reasons == {b"INVALID_RECORD"}
        world.hand_in([Sent(b"next", START_MS)])
        await world.pass_time(1_000, 100)
        assert world.targets.values() == [b"next"]

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("restarts", [False, True])
def test_a_target_that_takes_nothing_for_a_while_keeps_no_other_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    monkeypatch.setattr("kafkalake.broker.delayed.delivery.HELD_BYTES_MAX", 2_000)
    monkeypatch.setattr("kafkalake.broker.delayed.delivery.BATCH_ROWS_MAX", 3)
    blocked = UUID(int=55)
    names = [b"%03d" % number for number in range(100)]

    async def scenario() -> None:
        world = await started(tmp_path)
        world.targets.refused[blocked] = NotEnoughReplicasError()
        for begin in range(0, 100, 20):
            world.hand_in([Sent(name, START_MS + 100 + begin) for name in names[begin : begin + 20]], (blocked, 0))
            await world.pass_time(400, 100)
        for number in range(3):
            world.hand_in([Sent(b"%d" % number, START_MS)])
            await world.pass_time(2_000, 100)
            assert world.targets.values() == [b"%d" % each for each in range(number + 1)]
        assert world.coordinator.describe().overdue == 100
        if restarts:
            world.restart()
            await world.pass_time(2_000, 100)
        del world.targets.refused[blocked]
        await world.pass_time(8_000, 100)
        assert world.targets.values((blocked, 0)) == names, "in order, and each once"
        assert (world.coordinator.describe().waiting, world.coordinator.describe().overdue) == (0, 0)

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", first_of(["restarts", "no topic", "refuses", "no replicas in sync"], 2))
def test_dead_letters_that_nobody_takes_keep_no_record_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr("kafkalake.broker.delayed.delivery.HELD_BYTES_MAX", 2_000)
    monkeypatch.setattr("kafkalake.broker.delayed.delivery.BATCH_ROWS_MAX", 3)
    refusing, deleted = UUID(int=55), UUID(int=56)
    names = [b"%03d" % number for number in range(100)]

    async def scenario() -> None:
        world = await started(tmp_path)
        world.targets.refused |= {refusing: InvalidRecordError(), deleted: UnknownTopicIdError()}
        world.targets.deleted.add(deleted)
        if fault == "no topic":
            world.targets.dead_letter_faults = [NotEnoughReplicasError()] * 10_000
        else:
            world.targets.refused[DEAD_LETTERS] = (
                InvalidRecordError() if fault == "refuses" else NotEnoughReplicasError()
            )
        for begin in range(0, 100, 20):
            for target in (refusing, deleted):
                named = [Sent(name + b"%d" % target.int, START_MS + 100 + begin) for name in names[begin : begin + 20]]
                world.hand_in(named, (target, 0))
            await world.pass_time(400, 100)
        await world.pass_time(40_000, 1_000)
        for number in range(3):
            world.hand_in([Sent(b"%d" % number, START_MS)])
            await world.pass_time(2_000, 100)
            assert world.targets.values() == [b"%d" % each for each in range(number + 1)]
        assert world.coordinator.describe().overdue == 200
        if fault == "restarts":
            world.restart()
            await world.pass_time(2_000, 100)
        world.targets.refused.pop(DEAD_LETTERS, None)
        world.targets.dead_letter_faults.clear()
        for _ in range(60):
            await world.pass_time(1_000, 100)
            await asyncio.sleep(0.02)
        found = world.targets.values((DEAD_LETTERS, 0))
        assert sorted(map(bytes, filter(None, found))) == sorted(name + end for name in names for end in (b"55", b"56"))
        assert (world.coordinator.describe().waiting, world.coordinator.describe().overdue) == (0, 0)
        assert (world.seen.dead, world.targets.values((refusing, 0)), world.targets.values((deleted, 0))) == (
            200,
            [],
            [],
        )

    run(scenario())


@pytest.mark.exhaustive
@pytest.mark.parametrize("restarts", [False, True])
def test_a_dead_letter_that_its_topic_refuses_keeps_no_other_back(tmp_path: Path, restarts: bool) -> None:
    bad = {b"3", b"8"}

    async def scenario() -> None:
        world = await started(tmp_path)
        world.targets.always = InvalidRecordError()
        world.targets.refused_dead_letters = set(bad)
        world.hand_in([Sent(b"%d" % number, START_MS) for number in range(10)])
        await world.pass_time(2_000, 100)
        if restarts:
            world.restart()
            await world.pass_time(1_000, 500)
        world.hand_in([Sent(b"later", START_MS)])
        await world.pass_time(2_000, 500)
        assert not bad.intersection(world.targets.values((DEAD_LETTERS, 0)))
        assert world.coordinator.describe().waiting == 2
        await world.pass_time(120_000, 20_000)
        assert world.coordinator.describe().waiting == 2
        world.targets.refused_dead_letters.clear()
        world.read_faults = [MemoryError()]
        await world.pass_time(120_000, 20_000)
        await world.pass_real_time(lambda: world.coordinator.describe().waiting == 0)
        found = [bytes(each or b"") for each in world.targets.values((DEAD_LETTERS, 0))]
        assert sorted(found) == sorted([b"later", *(b"%d" % number for number in range(10))])
        assert (world.coordinator.describe().waiting, world.coordinator.describe().overdue) == (0, 0)

    run(scenario())


@pytest.mark.exhaustive
def test_dead_letters_that_are_all_refused_are_read_a_batch_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are, what is due for other topics is not late meanwhile."""
    monkeypatch.setattr("kafkalake.broker.delayed.delivery.HELD_BYTES_MAX", 2_000)
    monkeypatch.setattr("kafkalake.broker.delayed.delivery.BATCH_ROWS_MAX", 8)
    refusing = UUID(int=55)
    names = [b"%03d" % number for number in range(100)]

    async def scenario() -> None:
        world = await started(tmp_path)
        world.targets.refused |= {refusing: InvalidRecordError(), DEAD_LETTERS: InvalidRecordError()}
        world.hand_in([Sent(name, START_MS) for name in names], (refusing, 0))
        await world.pass_time(2_000, 100)
        for number in range(3):
            world.hand_in([Sent(b"%d" % number, START_MS)])
            await world.pass_time(1_000, 100)
            assert world.targets.values() == [b"%d" % each for each in range(number + 1)]
        world.targets.refused.pop(DEAD_LETTERS)
        for _ in range(60):
            await world.pass_time(4_000, 1_000)
            if not world.coordinator.describe().waiting:
                break
        assert sorted(map(bytes, filter(None, world.targets.values((DEAD_LETTERS, 0))))) == names
        assert (world.coordinator.describe().waiting, world.coordinator.describe().overdue) == (0, 0)

    run(scenario())


@pytest.mark.exhaustive
def test_cancels_have_a_bound_and_are_taken_again_when_others_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkalake.broker.delayed.hand_ins.CANCELS_MAX", 3)

    def cancels(*names: bytes) -> list[Sent]:
        return [Sent(None, -1, name) for name in names]

    async def scenario() -> None:
        world = await started(tmp_path)
        first = world.hand_in(cancels(b"a", b"b"), producer_id=5, sequence=0, base_offset=0)
        await world.pass_time(10)
        opened = world.hand_in(cancels(b"c"), producer_id=7, sequence=0, transactional=True)
        await world.pass_time(10)
        for _ in range(2):
            refused = world.hand_in(cancels(b"d"), producer_id=5, sequence=2, base_offset=2)
            repeated = world.hand_in(cancels(b"a", b"b"), producer_id=5, sequence=0, base_offset=0)
            waiting = world.hand_in([Sent(b"waits", SECOND)])
            await world.pass_time(10)
            assert refused == ["NOT_ENOUGH_REPLICAS_AFTER_APPEND"]
            assert first == opened == repeated == waiting == [None]
        world.end_transaction(7, committed=False)
        await world.pass_time(10)
        assert world.cancels() == 2
        await world.pass_time(400_000, 10_000)
        again = world.hand_in(cancels(b"d"), producer_id=5, sequence=2, base_offset=2)
        await world.pass_time(10)
        assert (again, world.cancels()) == ([None], 1)

    run(scenario())


def test_a_coordinator_that_is_replaced_waits_no_more_for_a_journal_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def unreadable(partition: object, state: object, max_bytes: int) -> None:
        asked.append(max_bytes)
        raise KafkaStorageError("of the test")

    async def scenario() -> None:
        world = await started(tmp_path)
        world.hand_in([Sent(b"a", SECOND)])
        await world.pass_time(900, 100)
        with monkeypatch.context() as patch:
            patch.setattr("kafkalake.broker.delayed.coordinator.take_in", unreadable)
            await world.pass_time(3_000, 100)
        assert asked and not world.targets.values()
        world.restart()
        await world.pass_real_time(lambda: world.coordinator.is_loaded)
        await world.pass_time(5_000, 100)
        assert world.targets.values() == [b"a"]
        scheduled: list[int] = []
        schedule = world.timers.schedule

        def note(delay_ms: int, action: Callable[[], None]) -> object:
            scheduled.append(delay_ms)
            return schedule(delay_ms, action)

        monkeypatch.setattr(world.timers, "schedule", note)
        await world.pass_time(10_000)
        assert PAUSE_MS not in scheduled

    run(scenario())
