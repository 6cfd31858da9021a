"""One process runs a broker of a lake; the second is told who does; a dead one is replaced."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from metadata_processes import SPAWN, hold_lease
from metadata_rows import NOW_MS, broker_row

from kafkalake.clock import ManualClock
from kafkalake.errors import KafkaStorageError, LakeError, LeaseHeldError
from kafkalake.metadata import lease, paths
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.lease import Decision, decide
from kafkalake.metadata.memory import MemoryMetadataStore

DEADLINE_S = 60
HERE_LIVE = broker_row(machine="here", expires=NOW_MS + 1)
HERE_EXPIRED = broker_row(machine="here", expires=NOW_MS)
THERE_LIVE = broker_row(machine="there", expires=NOW_MS + 1)
THERE_EXPIRED = broker_row(machine="there", expires=NOW_MS)


@pytest.mark.parametrize(
    ("row", "flock_free", "decision"),
    [
        (None, True, Decision.TAKE),
        (HERE_LIVE, True, Decision.TAKE),
        (HERE_EXPIRED, True, Decision.TAKE),
        (THERE_LIVE, True, Decision.REFUSE),
        (THERE_EXPIRED, True, Decision.TAKE),
        (None, False, Decision.REFUSE),
        (HERE_LIVE, False, Decision.REFUSE),
        (HERE_EXPIRED, False, Decision.REFUSE),
        (THERE_LIVE, False, Decision.REFUSE),
        (THERE_EXPIRED, False, Decision.REFUSE),
    ],
)
def test_who_may_take_a_lease(row: lease.BrokerRow | None, flock_free: bool, decision: Decision) -> None:
    assert decide(row, now_ms=NOW_MS, machine="here", flock_free=flock_free) is decision


@pytest.fixture
def store() -> MemoryMetadataStore:
    return MemoryMetadataStore()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


def acquire(store: MemoryMetadataStore, lake: Path, clock: ManualClock, machine: str = "here") -> lease.Lease:
    return lease.acquire(store, lake, 0, "127.0.0.1", 9092, clock, machine=machine)


def test_an_acquired_lease_is_in_the_table_with_all_that_finds_its_holder(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    held = acquire(store, tmp_path, clock)
    [row] = store.load_brokers()
    assert (row.broker_id, row.host, row.port, row.machine) == (0, "127.0.0.1", 9092, "here")
    assert (row.pid, row.log_dir, row.started_at_ms) == (os.getpid(), "logs/0", NOW_MS)
    assert row.lease_expires_at_ms == NOW_MS + lease.LEASE_MS
    assert held.renew_interval_ms == lease.LEASE_MS // 3
    held.release()


def test_a_renewed_lease_expires_later_and_may_name_the_port_that_is_known_now(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    held = acquire(store, tmp_path, clock)
    clock.advance(10_000)
    held.renew(port=12_345)
    [row] = store.load_brokers()
    assert (row.port, row.lease_expires_at_ms) == (12_345, NOW_MS + 10_000 + lease.LEASE_MS)
    held.release()


def test_a_released_lease_is_free_at_once_and_is_released_once(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    held = acquire(store, tmp_path, clock)
    held.release()
    assert store.load_brokers() == []
    other = acquire(store, tmp_path, clock, machine="there")
    held.release()
    assert [row.machine for row in store.load_brokers()] == ["there"]
    other.release()


def test_the_second_on_a_machine_is_told_who_holds_the_lease(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    held = acquire(store, tmp_path, clock)
    with pytest.raises(
        LeaseHeldError,
        match=rf"broker 0 of this lake is already run by 127.0.0.1:9092 \(pid {os.getpid()} on here, since "
        r"2023-11-14 22:13:20 UTC; its lease expires at 2023-11-14 22:13:50 UTC\)",
    ):
        acquire(store, tmp_path, clock)
    clock.advance(10 * lease.LEASE_MS)
    with pytest.raises(LeaseHeldError):
        acquire(store, tmp_path, clock)
    held.release()


def test_a_holder_that_is_just_starting_is_named_as_such(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    """It has the flock, and has written neither the lock file nor its row."""
    held = acquire(store, tmp_path, clock)
    store.release_broker(0, held.row.lease_id)
    paths.lock_path(tmp_path, 0).write_text("")
    with pytest.raises(LeaseHeldError, match="just starting"):
        acquire(store, tmp_path, clock)
    held.release()


def test_a_holder_elsewhere_is_believed_until_its_lease_expires(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    """Two directories stand for two machines whose file system shares no locks."""
    theirs = acquire(store, tmp_path / "there", clock, machine="there")
    clock.advance(lease.LEASE_MS - 1)
    with pytest.raises(LeaseHeldError, match="on there"):
        acquire(store, tmp_path / "here", clock)
    clock.advance(1)
    ours = acquire(store, tmp_path / "here", clock)
    with pytest.raises(LeaseHeldError, match="on here"):
        theirs.renew()
    theirs.release()
    assert [row.machine for row in store.load_brokers()] == ["here"]
    ours.release()


def test_a_refusal_leaves_the_lock_free(store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path) -> None:
    store.acquire_broker(broker_row(machine="there", expires=NOW_MS + 1), None)
    for _ in range(2):
        with pytest.raises(LeaseHeldError, match="on there"):
            acquire(store, tmp_path, clock)
    clock.advance(1)
    acquire(store, tmp_path, clock).release()


def test_a_lease_that_could_not_be_renewed_stands_until_it_expires(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    held = acquire(store, tmp_path, clock)
    clock.advance(10_000)
    store.fail_next = [KafkaStorageError("no space left on device")]
    with pytest.raises(KafkaStorageError):
        held.renew()
    held.renew()
    assert store.load_brokers()[0].lease_expires_at_ms == NOW_MS + 10_000 + lease.LEASE_MS
    held.release()


def test_the_lock_is_free_even_when_the_row_cannot_be_taken_out(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    held = acquire(store, tmp_path, clock)
    store.fail_next = [KafkaStorageError("no space left on device")]
    with pytest.raises(KafkaStorageError):
        held.release()
    acquire(store, tmp_path, clock).release()


def test_a_lock_file_that_cannot_be_made_is_an_error(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    (tmp_path / "logs").write_text("a file where a directory belongs")
    with pytest.raises(LakeError, match="cannot open the lock file"):
        acquire(store, tmp_path, clock)


class Holder:
    """A process that holds, or is refused, the lease of broker 0."""

    def __init__(self, lake: Path) -> None:
        self.pipe, theirs = SPAWN.Pipe()
        self.process: BaseProcess = SPAWN.Process(target=hold_lease, args=(lake, theirs))
        self.process.start()
        theirs.close()

    def says(self) -> str:
        assert self.pipe.poll(DEADLINE_S)
        answer = self.pipe.recv()
        assert isinstance(answer, str)
        return answer

    def kill(self) -> None:
        if self.process.is_alive() and self.process.pid is not None:
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(DEADLINE_S)


@pytest.fixture
def holders() -> Iterator[list[Holder]]:
    started: list[Holder] = []
    yield started
    for holder in started:
        holder.kill()


def start(lake: Path, holders: list[Holder]) -> Holder:
    holders.append(Holder(lake))
    return holders[-1]


@pytest.mark.process
def test_of_two_processes_one_gets_the_lease_and_its_death_frees_it(tmp_path: Path, holders: list[Holder]) -> None:
    DeltaMetadataStore(tmp_path)
    first = start(tmp_path, holders)
    assert first.says() == "held"
    second = start(tmp_path, holders)
    assert f"already run by 127.0.0.1:9092 (pid {first.process.pid} on " in second.says()

    first.kill()
    third = start(tmp_path, holders)
    assert third.says() == "held"
    assert [row.pid for row in DeltaMetadataStore(tmp_path).load_brokers()] == [third.process.pid]

    third.pipe.send("release")
    assert third.says() == "released"
    assert DeltaMetadataStore(tmp_path).load_brokers() == []


@pytest.mark.process
def test_of_many_processes_that_start_at_once_on_no_lake_exactly_one_gets_the_lease(
    tmp_path: Path, holders: list[Holder]
) -> None:

    for _ in range(4):
        start(tmp_path, holders)
    answers = [holder.says() for holder in holders]
    assert answers.count("held") == 1
    assert all(answer == "held" or "already run by" in answer for answer in answers)
