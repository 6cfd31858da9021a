"""One process runs a broker of a lake; the second is told who does; a dead one is replaced."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from manual_clock import ManualClock
from memory_store import MemoryMetadataStore
from metadata_processes import SPAWN, hold_lease
from metadata_rows import NOW_MS, broker_row

from kafkalake.errors import KafkaStorageError, LakeError, LeaseHeldError
from kafkalake.metadata import lease, paths, reserve
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.lease import Decision, decide
from kafkalake.metadata.lock_file import LockRow, Machine
from kafkalake.metadata.tables.schemas import BROKERS_SCHEMA, BrokerRow, to_table
from kafkalake.ownership import Ownership

DEADLINE_S = 60
HERE = Machine("here", "boot-1")
THERE = Machine("there", "boot-2")
LEASE_MS = 3_000


@pytest.mark.parametrize(
    ("row", "flock_free", "has_ended", "unchanged_ms", "decision"),
    [
        (None, True, False, 0, Decision.TAKE),
        (None, False, False, 0, Decision.REFUSE),
        (broker_row(), True, True, 0, Decision.TAKE),
        (broker_row(), False, True, 1 << 40, Decision.REFUSE),
        (broker_row(), True, False, 0, Decision.WAIT),
        (broker_row(expires=0), True, False, 0, Decision.WAIT),
        (broker_row(lease_duration=5_000), True, False, 4_999, Decision.WAIT),
        (broker_row(lease_duration=5_000), True, False, 5_000, Decision.TAKE_OVER),
        # Version 0.1 does not say how long its leases are.
        (broker_row(), True, False, lease.LEASE_MS - 1, Decision.WAIT),
        (broker_row(), True, False, lease.LEASE_MS, Decision.TAKE_OVER),
    ],
)
def test_who_may_take_a_lease(
    row: lease.BrokerRow | None, flock_free: bool, has_ended: bool, unchanged_ms: int, decision: Decision
) -> None:
    found = decide(row, flock_free=flock_free, has_ended=has_ended, unchanged_ms=unchanged_ms, lease_ms=LEASE_MS)
    assert found is decision


@pytest.mark.parametrize(
    ("machine", "boot_id", "locked_by", "proves"),
    [
        (HERE, "boot-1", "lease", True),
        (HERE, "boot-2", "lease", False),  # the same host name on another machine
        (HERE, None, "lease", False),  # version 0.1
        (HERE, "boot-1", "another", False),  # the lock file is not the one that it had locked
        (HERE, "boot-1", None, False),
        (Machine("here", None), None, "lease", False),
        (Machine("here", "boot-2", alone=True), "boot-1", "lease", True),  # the machine was started again
        (Machine("here", "boot-2", alone=True), "boot-1", "another", False),
    ],
)
def test_what_a_free_lock_proves(machine: Machine, boot_id: str | None, locked_by: str | None, proves: bool) -> None:
    holder = None if locked_by is None else broker_row(lease_id=locked_by)
    assert machine.proves_end_of(broker_row(lease_id="lease", boot_id=boot_id), holder) is proves


@pytest.fixture
def store() -> MemoryMetadataStore:
    return MemoryMetadataStore()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


def acquire(
    store: MemoryMetadataStore, lake: Path, clock: ManualClock, machine: Machine = HERE, *, wait_ms: int = 0
) -> lease.Lease:
    def sleep(seconds: float) -> bool:
        clock.advance(int(seconds * 1000))
        return False

    return lease.acquire(store, lake, 0, "127.0.0.1", 9092, clock, machine=machine, wait_ms=wait_ms, sleep=sleep)


def kill(held: lease.Lease) -> None:
    """End a holder as SIGKILL does."""
    os.close(held._descriptor)
    held._descriptor = -1


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


class Killed(BaseException):
    """Ends an acquisition as SIGKILL ends the process: the lock is free, and nothing is cleared up."""


def kill_at_commit(store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool) -> None:
    """Kill the next process that acquires a lease before or right after its row is committed."""
    acquire_broker = store.acquire_broker

    def killed(row: BrokerRow, replacing: BrokerRow | None) -> None:
        monkeypatch.setattr(store, "acquire_broker", acquire_broker)
        if is_committed:
            acquire_broker(row, replacing)
        raise Killed

    monkeypatch.setattr(store, "acquire_broker", killed)


@pytest.mark.parametrize("has_run", [False, True])
@pytest.mark.parametrize("kills", [(False,), (True,), (True, True), (False, True), (True, False)])
def test_a_process_that_is_killed_as_it_takes_a_lease_is_replaced_at_once(
    store: MemoryMetadataStore,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kills: tuple[bool, ...],
    has_run: bool,
) -> None:
    """Before or after its row is committed, also if there was a process before it, which was killed too."""
    if has_run:
        kill(acquire(store, tmp_path, clock))
    for is_committed in kills:
        kill_at_commit(store, monkeypatch, is_committed=is_committed)
        with pytest.raises(Killed):
            acquire(store, tmp_path, clock)
    held = acquire(store, tmp_path, clock)
    assert not held.took_over
    held.renew()
    kill(held)
    acquire(store, tmp_path, clock).release()


@pytest.mark.parametrize("is_committed", [False, True])
def test_who_is_killed_as_it_takes_a_lease_over_proves_nothing_of_a_holder_that_may_still_run(
    store: MemoryMetadataStore,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_committed: bool,
) -> None:
    theirs = acquire(store, tmp_path / "there", clock, THERE)
    kill_at_commit(store, monkeypatch, is_committed=is_committed)
    with pytest.raises(Killed):
        acquire(store, tmp_path / "here", clock, wait_ms=2 * lease.LEASE_MS)
    with pytest.raises(LeaseHeldError):
        acquire(store, tmp_path / "here", clock)
    assert acquire(store, tmp_path / "here", clock, wait_ms=2 * lease.LEASE_MS).took_over
    theirs.release()


@pytest.mark.parametrize("end", [kill, lease.Lease.release])
def test_a_takeover_that_is_not_complete_is_the_next_ones(
    store: MemoryMetadataStore,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[lease.Lease], None],
) -> None:
    """Whoever was paused has files of the logs open, however often its successors end before they have replaced them."""
    theirs = acquire(store, tmp_path / "there", clock, THERE)
    ours = acquire(store, tmp_path / "here", clock, wait_ms=2 * lease.LEASE_MS)
    assert ours.took_over
    ours.renew()
    end(ours)
    kill_at_commit(store, monkeypatch, is_committed=True)
    with pytest.raises(Killed):
        acquire(store, tmp_path / "here", clock)
    ours = acquire(store, tmp_path / "here", clock)
    assert ours.took_over
    ours.note_takeover()
    ours.renew()
    end(ours)
    assert not acquire(store, tmp_path / "here", clock).took_over
    theirs.release()


@pytest.mark.parametrize(
    ("machine", "proves"),
    [(HERE, True), (THERE, False), (Machine("there", None, alone=True), True), (Machine("there", None), False)],
)
def test_a_candidate_proves_the_end_of_who_was_before_it_where_it_would_hold_the_lock(
    machine: Machine, proves: bool
) -> None:
    candidate = LockRow(**asdict(broker_row(lease_id="new", boot_id="boot-1")), replaces="old")
    assert machine.proves_end_of(broker_row(lease_id="old", boot_id="boot-0"), candidate) is proves
    assert machine.proves_end_of(broker_row(lease_id="new", boot_id="boot-1"), candidate) is proves
    assert not machine.proves_end_of(broker_row(lease_id="another", boot_id="boot-1"), candidate)


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
    other = acquire(store, tmp_path, clock, machine=THERE)
    held.release()
    assert [row.machine for row in store.load_brokers()] == ["there"]
    other.release()


@pytest.mark.exhaustive
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


def test_a_holder_elsewhere_is_waited_for_until_it_has_not_renewed_for_a_lease(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    """Two directories stand for two machines whose file system shares no locks."""
    theirs = acquire(store, tmp_path / "there", clock, THERE)
    with pytest.raises(LeaseHeldError, match="on there"):
        acquire(store, tmp_path / "here", clock)
    with pytest.raises(LeaseHeldError, match="on there"):
        acquire(store, tmp_path / "here", clock, wait_ms=lease.LEASE_MS - 1_000)
    began_ms = clock.now_ms()
    ours = acquire(store, tmp_path / "here", clock, wait_ms=2 * lease.LEASE_MS)
    assert ours.took_over
    assert lease.LEASE_MS <= clock.now_ms() - began_ms <= lease.LEASE_MS + 1_000
    assert not theirs.ownership.is_certain()
    with pytest.raises(LeaseHeldError, match="on here"):
        theirs.renew()
    theirs.release()
    assert [row.machine for row in store.load_brokers()] == ["here"]
    ours.release()


def test_a_holder_that_renews_is_not_taken_over_whatever_the_wall_clock_says(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    theirs = acquire(store, tmp_path / "there", clock, THERE)
    clock.jump(10 * lease.LEASE_MS)  # all that its row says is long over

    def sleep(seconds: float) -> bool:
        clock.advance(int(seconds * 1000))
        if theirs.ownership.until_ms - clock.elapsed_ms() < 10_000:
            theirs.renew()
        return False

    with pytest.raises(LeaseHeldError, match="on there"):
        lease.acquire(store, tmp_path / "here", 0, "h", 1, clock, machine=HERE, wait_ms=5 * lease.LEASE_MS, sleep=sleep)
    assert theirs.ownership.is_certain()
    theirs.release()


def test_waiting_for_a_lease_can_be_given_up(store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path) -> None:
    theirs = acquire(store, tmp_path / "there", clock, THERE)
    with pytest.raises(LeaseHeldError, match="on there"):
        lease.acquire(
            store, tmp_path / "here", 0, "h", 1, clock, machine=HERE, wait_ms=1 << 40, sleep=lambda seconds: True
        )
    theirs.release()


def test_a_refusal_leaves_the_lock_free(store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path) -> None:
    theirs = broker_row(machine="there")
    store.acquire_broker(theirs, None)
    for _ in range(2):
        with pytest.raises(LeaseHeldError, match="on there"):
            acquire(store, tmp_path, clock)
    store.release_broker(0, theirs.lease_id)
    acquire(store, tmp_path, clock).release()


def test_ownership_ends_before_the_lease_does_and_a_renewal_counts_from_its_start(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    held = acquire(store, tmp_path, clock)
    assert held.ownership.is_certain()
    clock.advance(lease.LEASE_MS * 5 // 6)
    assert not held.ownership.is_certain()
    renew_broker = store.renew_broker

    def renew_slowly(row: lease.BrokerRow) -> None:
        clock.advance(lease.LEASE_MS // 2)
        renew_broker(row)

    store.renew_broker = renew_slowly  # type: ignore[method-assign]
    held.renew()
    assert held.ownership.is_certain()
    clock.advance(lease.LEASE_MS // 3)
    assert not held.ownership.is_certain()
    held.release()


class TestTableThatCannotBeWritten:
    """Its disk is full, say."""

    def fail(self, store: MemoryMetadataStore) -> None:
        store.fail_next = [KafkaStorageError("no space left on device")]

    def test_the_lock_file_keeps_the_lease(
        self, store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
    ) -> None:
        held = acquire(store, tmp_path, clock, THERE)
        size, [row] = paths.lock_path(tmp_path, 0).stat().st_size, store.load_brokers()

        def sleep(seconds: float) -> bool:
            clock.advance(int(seconds * 1000))
            if held.ownership.until_ms - clock.elapsed_ms() < 10_000:
                self.fail(store)
                held.renew()
            return False

        waiting = lease._Waiting(store, paths.lock_path(tmp_path, 0), 0, clock, HERE, lease.LEASE_MS)
        for _ in range(10 * lease.LEASE_MS // 1_000):
            assert waiting.look(flock_free=True)[1] is Decision.WAIT
            sleep(1.0)
            assert held.ownership.is_certain()
        assert store.load_brokers() == [row]
        assert paths.lock_path(tmp_path, 0).stat().st_size == size, "a full disk has no room for more"
        held.release()

    def test_the_lock_file_does_not_count_once_the_lease_has_run_out(
        self, store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
    ) -> None:
        held = acquire(store, tmp_path, clock)
        clock.advance(lease.LEASE_MS)
        self.fail(store)
        with pytest.raises(KafkaStorageError):
            held.renew()
        assert not held.ownership.is_certain()
        held.renew()  # the table can: nobody has taken the lease
        assert held.ownership.is_certain()
        held.release()

    def test_the_lock_file_does_not_count_where_it_was_removed(
        self, store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
    ) -> None:
        held = acquire(store, tmp_path, clock)
        paths.lock_path(tmp_path, 0).unlink()
        self.fail(store)
        with pytest.raises(KafkaStorageError):
            held.renew()
        held.release()

    def test_the_lease_of_another_is_not_renewed_in_the_lock_file(
        self, store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
    ) -> None:
        held = acquire(store, tmp_path, clock)
        store.acquire_broker(broker_row(lease_id="another", machine="there"), replacing=held.row)
        self.fail(store)
        with pytest.raises(LeaseHeldError, match="on there"):
            held.renew()
        assert not held.ownership.is_certain()
        held.release()


def test_the_lock_is_free_even_when_the_row_cannot_be_taken_out(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path
) -> None:
    held = acquire(store, tmp_path, clock)
    store.fail_next = [KafkaStorageError("no space left on device")]
    with pytest.raises(KafkaStorageError):
        held.release()
    acquire(store, tmp_path, clock).release()


def test_space_kept_for_a_start_is_freed_by_whoever_may_start(
    store: MemoryMetadataStore, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = acquire(store, tmp_path, clock)
    kept = paths.reserve_path(tmp_path, 0)
    reserve.keep(kept)
    assert kept.stat().st_size == reserve.RESERVE_BYTES
    monkeypatch.setattr(reserve, "_free_bytes", lambda file: 50_000)
    with pytest.raises(LeaseHeldError):
        acquire(store, tmp_path, clock)
    assert kept.stat().st_size == reserve.RESERVE_BYTES, "it is the running broker's"
    held.release()
    held = acquire(store, tmp_path, clock)
    assert kept.stat().st_size == 0
    reserve.keep(kept)
    assert kept.stat().st_size == 50_000
    held.release()


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


@pytest.mark.exhaustive
def test_the_lease_of_version_0_1_is_read_taken_over_and_renewed(clock: ManualClock, tmp_path: Path) -> None:
    """Its table has neither boot ids nor the length of leases."""
    DeltaMetadataStore(tmp_path)
    old = pa.schema([column for column in BROKERS_SCHEMA if column.name not in ("boot_id", "lease_duration")])
    table = paths.table_path(tmp_path, paths.BROKERS)
    shutil.rmtree(table)
    row = broker_row(machine="there")
    write_deltalake(table, to_table(BROKERS_SCHEMA, [row]).select(old.names).cast(old))
    assert DeltaMetadataStore(tmp_path, create=False).load_brokers() == [row]
    store = DeltaMetadataStore(tmp_path)
    assert store.load_brokers() == [row]

    held = acquire(store, tmp_path, clock, wait_ms=2 * lease.LEASE_MS)  # type: ignore[arg-type]
    assert held.took_over
    held.renew(port=1)
    (renewed,) = DeltaMetadataStore(tmp_path, create=False).load_brokers()
    assert (renewed.boot_id, renewed.lease_duration, renewed.port) == ("boot-1", lease.LEASE_MS, 1)
    DeltaMetadataStore(tmp_path)
    held.release()


def test_an_ownership_that_has_ended_is_not_renewed(clock: ManualClock) -> None:
    ownership = Ownership(clock)
    ownership.renewed(clock.elapsed_ms(), lease.LEASE_MS)
    assert ownership.is_certain()
    ownership.end()
    ownership.renewed(clock.elapsed_ms(), lease.LEASE_MS)  # by a renewal that was under way
    assert not ownership.is_certain()
