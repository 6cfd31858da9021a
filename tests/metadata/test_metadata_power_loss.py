"""The machine stops at any moment: one start mends all tables, nothing durable is lost, and every reader of Delta reads them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from deltalake import DeltaTable
from forgetful_disk import ForgetfulDisk, PowerLost
from leaderships import sole_replica
from long_runs import first_of
from manual_clock import ManualClock
from memory_store import MemoryMetadataStore, MetadataStore
from metadata_rows import NOW_MS, broker_row, partition_row, published, segment_row, topic_row
from test_metadata_group_offsets import row as offset_row
from test_metadata_transactions import ROW as TRANSACTION

from kafkalake.errors import KafkaLakeError, KafkaStorageError, LakeError, TopicAlreadyExistsError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.disk import Disk
from kafkalake.metadata.paths import TABLES, table_path
from kafkalake.metadata.store import PublishedOffsets, Transactions
from kafkalake.metadata.tables import delta_table, lake_tables
from kafkalake.metadata.tables.job_tables import JOB_RUNS_SCHEMA, JobTable
from kafkalake.metadata.tables.schemas import CleaningRow

pytestmark = pytest.mark.exhaustive

POWER_LOSSES = int(os.environ.get("POWER_LOSSES", "2"))

Operation = Callable[[MetadataStore], object]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    """In memory where this machine has /dev/shm: nothing here is about the real disk."""
    shared = Path("/dev/shm")
    root = shared / f"kafkalake-test-{os.getpid()}-{tmp_path.name}" if shared.is_dir() else tmp_path / "work"
    (root / "lake").mkdir(parents=True)
    yield root / "lake"
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def short_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints every third version, and expired entries removed every fifth."""
    for name, definition in lake_tables.TABLE_DEFINITIONS.items():
        monkeypatch.setitem(lake_tables.TABLE_DEFINITIONS, name, replace(definition, checkpoint_interval=3))
    monkeypatch.setattr(delta_table, "CLEANUP_INTERVAL", 5)


def log_directory(lake: Path, table: str) -> Path:
    return table_path(lake, table) / "_delta_log"


def entries(lake: Path, table: str) -> list[Path]:
    return sorted(log_directory(lake, table).glob("*.json"))


def checkpoints(lake: Path, table: str) -> list[Path]:
    return sorted(log_directory(lake, table).glob("*.checkpoint.parquet"))


def random_operation(random: Random, number: int) -> Operation:
    """Something that a broker or a job has the store do; durable when the call returns, but for rows of `partitions`."""
    name = f"topic-{random.randrange(6)}"
    chosen, random_topic = random.randrange(11), random.randrange(40)
    if chosen == 0:
        return lambda store: store.create_topics([topic_row(name, topic_id=f"id-{number}")])
    if chosen == 1:
        return lambda store: delete_topic(store, name)
    if chosen == 2:
        return lambda store: store.acquire_broker(broker_row(number, lease_id=f"lease-{number}"), None)
    if chosen == 3:
        offsets = [offset_row(number, number, group=name, journal=random.randrange(3))]
        return lambda store: store.publish_group_offsets(
            PublishedOffsets(offsets, {offsets[0].journal_partition: number + 1})
        )
    if chosen == 4:
        transaction = replace(TRANSACTION, transactional_id=name, journal_offset=number, producer_epoch=number)
        return lambda store: store.publish_transactions(
            Transactions([transaction], {transaction.journal_partition: number + 1})
        )
    if chosen == 5:
        updates = [CleaningRow(name, f"id-{name}", 0, cleaned_offset=number)]
        return lambda store: store.update_cleaning(updates)
    if chosen == 6:
        return lambda store: store.raise_log_starts({("id-clicks", 0): number})
    if chosen == 7:
        removed = segment_row(base=100 * random.randrange(number)).key
        return lambda store: store.remove_segments([removed])
    if chosen == 8:
        return lambda store: commit_image(store, number, UUID(int=random_topic))
    rows = [partition_row(end=100_000 + number)]
    state = published(number, rows, [segment_row(base=100 * number)])
    return lambda store: store.publish(state)


def delete_topic(store: MetadataStore, name: str) -> None:
    """Delete the topic of a name, as long as there is one."""
    for row in store.load_topics():
        if row.topic == name:
            store.delete_topics([row.topic_id])


def commit_image(store: MetadataStore, number: int, topic_id: UUID) -> None:
    """Commit the next version of the cluster's image, with a change of this number."""
    image = store.control_store.load()
    partitions = {topic_id: (sole_replica(number, number),)}
    store.control_store.commit(replace(image.with_topics(partitions), controller_epoch=number))


def durable_state(store: MetadataStore) -> list[object]:
    """What must outlive a loss of power."""
    offsets, transactions = store.load_group_offsets(), store.load_transactions()
    return [
        store.load_topics(),
        store.load_brokers(),
        store.load_segments(),
        offsets.rows,
        {key: value for key, value in offsets.positions.items() if value},
        transactions.rows,
        {key: value for key, value in transactions.positions.items() if value},
        [replace(row, updated_at_ms=0) for row in store.load_cleaning()],
        store.control_store.load(),
    ]


def apply(store: MetadataStore, operation: Operation) -> type[Exception] | None:
    try:
        operation(store)
    except KafkaLakeError as error:
        return type(error)
    return None


def log_start(store: MetadataStore) -> int:
    return max((row.log_start_offset for row in store.load_partitions()), default=0)


def check_readers(lake: Path) -> None:
    """Every reader opens every table, and reads all of its rows."""
    for name in TABLES:
        DeltaTable(table_path(lake, name)).to_pyarrow_table()
    durable_state(DeltaMetadataStore(lake, create=False))


def age_entries(lake: Path) -> None:
    """Have all entries of all logs be past their retention."""
    for name in TABLES:
        for file in log_directory(lake, name).iterdir():
            os.utime(file, (time.time() - 90 * 86_400,) * 2)


@pytest.mark.parametrize("seed", range(POWER_LOSSES))
def test_nothing_durable_is_lost_wherever_the_power_fails(lake: Path, seed: int, short_logs: None) -> None:
    random = Random(seed)
    disk = ForgetfulDisk(lake, lake.parent / "aside")
    expected: list[Operation] = []
    acknowledged_start, number = 0, 0
    for _ in range(4):
        store = open_through_failures(lake, disk, random)
        known = MemoryMetadataStore(ManualClock(NOW_MS))
        for operation in expected:
            apply(known, operation)
        assert durable_state(store) == durable_state(known)
        assert log_start(store) >= acknowledged_start
        check_readers(lake)
        fails_after = random.randrange(1, 14)
        for _ in range(fails_after):
            number += 1
            if random.random() < 0.1:
                age_entries(lake)
                store.maintain()
            operation = random_operation(random, number)
            before = log_start(store)
            assert apply(store, operation) == apply(known, operation)
            expected.append(operation)
            if log_start(store) > before:  # only a job raises it, durably; rows of a publish may be lost and come again
                acknowledged_start = log_start(store)
        number += 1
        last = random_operation(random, number)
        disk.fails_at = random.randrange(14)
        try:
            apply(store, last)
            if disk.fails_at < 0:
                raise AssertionError("the power was to fail in the middle of a commit")
            happened = True
        except PowerLost:
            happened = None
        disk.fails_at = -1
        disk.lose_power(random)
        if happened is None:
            happened = has_happened(lake, disk, last, known, random)
        if happened:
            expected.append(last)


def open_through_failures(lake: Path, disk: ForgetfulDisk, random: Random) -> DeltaMetadataStore:
    """A start that is killed at any call, once, twice, also with the power; the one after it succeeds."""
    for _ in range(random.randrange(3)):
        disk.fails_at = random.randrange(30)
        try:
            DeltaMetadataStore(lake, disk=disk)
        except PowerLost:
            if random.random() < 0.5:
                disk.fails_at = -1
                disk.lose_power(random)
        disk.fails_at = -1
    return DeltaMetadataStore(lake, disk=disk)


def has_happened(
    lake: Path, disk: ForgetfulDisk, operation: Operation, known: MemoryMetadataStore, random: Random
) -> bool:
    """Whether an operation that was not acknowledged is there all the same, wholly: nothing else may differ."""
    store = open_through_failures(lake, disk, random)
    state = durable_state(store)
    if state == durable_state(known):
        return False
    apply(known, operation)
    assert state == durable_state(known)
    return True


# One fault at a time, on a lake as a broker leaves it.


@pytest.fixture
def written(lake: Path, short_logs: None) -> Path:
    store = DeltaMetadataStore(lake)
    for number in range(8):
        store.create_topics([topic_row(f"topic-{number}")])
        store.acquire_broker(broker_row(number, lease_id=f"lease-{number}"), None)
        store.publish(published(number, [partition_row(end=number)], [segment_row(base=number * 100)]))
        store.publish_group_offsets(PublishedOffsets([offset_row(number, number)], {3: number + 1}))
        store.publish_transactions(Transactions([replace(TRANSACTION, journal_offset=number)], {3: number + 1}))
        store.update_cleaning([CleaningRow("topic-0", "id-topic-0", 0, cleaned_offset=number)])
        commit_image(store, number, UUID(int=number))
    store.close()
    return lake


def empty(file: Path) -> None:
    file.write_bytes(b"")


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


def zero(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def remove(file: Path) -> None:
    file.unlink()


@pytest.mark.parametrize("damage", first_of([cut, zero, empty, remove], 2))
def test_a_checkpoint_that_did_not_reach_the_disk_costs_nothing(written: Path, damage: Callable[[Path], None]) -> None:
    before = durable_state(DeltaMetadataStore(written, create=False))
    for name in TABLES:
        damage(checkpoints(written, name)[-1])
    if damage is not zero:
        with pytest.raises(LakeError, match="starting a broker on the lake mends it"):
            DeltaMetadataStore(written, create=False).load_topics()
    for _ in range(2):
        DeltaMetadataStore(written)
        check_readers(written)
        assert durable_state(DeltaMetadataStore(written, create=False)) == before
        for name in TABLES:  # and once more, where a start had mended it
            newest = checkpoints(written, name)
            if newest:
                damage(newest[-1])


@pytest.mark.parametrize("damage", first_of([cut, zero, empty], 1))
def test_a_hint_that_did_not_reach_the_disk_costs_nothing(written: Path, damage: Callable[[Path], None]) -> None:
    before = durable_state(DeltaMetadataStore(written, create=False))
    for name in TABLES:
        damage(log_directory(written, name) / "_last_checkpoint")
    assert durable_state(DeltaMetadataStore(written)) == before
    check_readers(written)


@pytest.mark.parametrize("damage", first_of([cut, zero, empty, remove], 2))
def test_several_torn_entries_of_every_table_are_set_aside_by_one_start(
    written: Path, damage: Callable[[Path], None]
) -> None:
    store = DeltaMetadataStore(written)
    before = durable_state(store)
    versions = {name: len(entries(written, name)) for name in TABLES}
    for number in range(20, 24):
        for seed in (3, 5, 8, 10, 12, 16, 20, 27, 33):
            apply(store, random_operation(Random(seed), number))
    for name in TABLES:
        for file in checkpoints(written, name):
            if int(file.name[:20]) >= versions[name]:
                damage(file)
        for file in entries(written, name)[versions[name] :]:
            damage(file)
    assert durable_state(DeltaMetadataStore(written)) == before
    check_readers(written)
    apply(DeltaMetadataStore(written), lambda store: store.create_topics([topic_row("afterwards")]))
    assert "afterwards" in [row.topic for row in DeltaMetadataStore(written).load_topics()]


@pytest.mark.parametrize("damage", first_of([cut, zero, empty, remove], 2))
def test_an_entry_whose_data_file_did_not_reach_the_disk_is_set_aside(
    lake: Path, damage: Callable[[Path], None]
) -> None:
    store = DeltaMetadataStore(lake)
    store.create_topics([topic_row("kept")])
    store.publish(published(0, [partition_row(end=1)]))
    store.create_topics([topic_row("lost")])
    store.publish(published(1, [partition_row(end=2)]))
    store.publish(published(2, [partition_row(end=3)]))
    for name in ("topics", "partitions"):
        for uri in DeltaTable(table_path(lake, name)).file_uris():
            damage(Path(uri.removeprefix("file://")))
    restarted = DeltaMetadataStore(lake)
    assert [row.topic for row in restarted.load_topics()] == ["kept"]
    assert [row.high_watermark for row in restarted.load_partitions()] == [2]
    check_readers(lake)


def test_an_entry_cut_at_the_end_of_a_line_is_not_taken_for_whole(lake: Path) -> None:
    store = DeltaMetadataStore(lake)
    store.create_topics([topic_row("a")])
    store.create_topics([topic_row("b")])
    newest = entries(lake, "topics")[-1]
    newest.write_bytes(b"\n".join(newest.read_bytes().splitlines()[:2]))
    assert [row.topic for row in DeltaMetadataStore(lake).load_topics()] == ["a"]


def test_partitions_that_cannot_be_mended_are_begun_anew_and_said_by_the_next_publish(written: Path) -> None:
    age_entries(written)
    DeltaMetadataStore(written).maintain()
    for file in checkpoints(written, "partitions"):
        empty(file)
    store = DeltaMetadataStore(written)
    assert store.load_partitions() == []
    version = store.last_published_version("kafkalake-broker-0")
    assert version == 7
    store.publish(published(version + 1, [partition_row(end=70)]))
    assert [row.high_watermark for row in store.load_snapshot().partitions] == [70]
    check_readers(written)


def test_topics_that_cannot_be_mended_are_not_taken_for_an_empty_lake(written: Path) -> None:
    age_entries(written)
    DeltaMetadataStore(written).maintain()
    for file in checkpoints(written, "topics"):
        empty(file)
    before = sorted(log_directory(written, "topics").iterdir())
    for _ in range(2):
        with pytest.raises(LakeError, match=r"topics.*checkpoint.*cannot be read.*backup"):
            DeltaMetadataStore(written)
    assert sorted(log_directory(written, "topics").iterdir()) == before


def test_a_job_s_table_is_mended_by_the_next_job(lake: Path) -> None:
    (lake / "metadata").mkdir()
    table = JobTable(lake, "job_runs")
    rows = JOB_RUNS_SCHEMA.empty_table()
    columns = {name: [None] for name in JOB_RUNS_SCHEMA.names}
    rows = type(rows).from_pydict(columns, schema=JOB_RUNS_SCHEMA)
    for _ in range(5):
        table.append(rows)
    for file in entries(lake, "job_runs")[-3:]:
        cut(file)
    assert JobTable(lake, "job_runs").rows().num_rows == 2


@pytest.mark.parametrize("seed", range(4))
def test_a_new_lake_is_there_with_the_directories_that_lead_to_it(lake: Path, seed: int) -> None:
    disk, deep = ForgetfulDisk(lake, lake.parent / "aside"), lake / "made" / "for" / "it"
    DeltaMetadataStore(deep, disk=disk).create_topics([topic_row("kept")])
    disk.lose_power(Random(seed))
    assert [row.topic for row in DeltaMetadataStore(deep, create=False).load_topics()] == ["kept"]
    check_readers(deep)


@pytest.mark.parametrize("calls", range(5))
def test_a_table_whose_maker_was_killed_is_as_durable_as_any(lake: Path, calls: int) -> None:
    disk = ForgetfulDisk(lake, lake.parent / "aside")

    def kill_in_the_last_table(path: Path) -> None:
        if disk.fails_at < 0 and table_path(lake, "topics") in path.parents:
            disk.fails_at = calls

    disk.on_call = kill_in_the_last_table
    with pytest.raises(PowerLost):
        DeltaMetadataStore(lake, disk=disk)
    disk.on_call = lambda path: None
    DeltaMetadataStore(lake, disk=disk).create_topics([topic_row("kept")])
    disk.lose_power(Random(calls))
    assert [row.topic for row in DeltaMetadataStore(lake, disk=disk).load_topics()] == ["kept"]
    check_readers(lake)


def test_what_is_durable_waits_for_what_was_committed_before_it(lake: Path) -> None:
    """A job's commit to `partitions` stands on those of the broker, which were not forced."""
    disk = ForgetfulDisk(lake, lake.parent / "aside")
    store = DeltaMetadataStore(lake, disk=disk)
    for number in range(5):
        store.publish(published(number, [partition_row(end=100)]))
    DeltaMetadataStore(lake, create=False, disk=disk).raise_log_starts({("id-clicks", 0): 60})
    for seed in range(3):
        disk.lose_power(Random(seed))
        assert [row.log_start_offset for row in DeltaMetadataStore(lake, disk=disk).load_partitions()] == [60]


# Commits whose outcome is unknown.


def failing_after(monkeypatch: pytest.MonkeyPatch, times: int = 1) -> None:
    """The next commits are written, and the disk reports an error all the same."""
    original = delta_table.OpenDeltaTable._commit_files
    left = times

    def commit_files(self: delta_table.OpenDeltaTable, *arguments: object) -> None:
        nonlocal left
        original(self, *arguments)  # type: ignore[arg-type]
        left -= 1
        if left >= 0:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(delta_table.OpenDeltaTable, "_commit_files", commit_files)


def test_an_error_after_the_commit_was_written_is_no_error(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DeltaMetadataStore(lake)
    store.create_topics([topic_row("only")])
    failing_after(monkeypatch)
    store.delete_topics(["id-only"])  # a commit that adds no file
    assert store.load_topics() == []
    failing_after(monkeypatch, times=2)
    store.create_topics([topic_row("again")])
    store.raise_log_starts({})
    assert [row.topic for row in DeltaMetadataStore(lake).load_topics()] == ["again"]


class FailingDisk(Disk):
    def __init__(self) -> None:
        self.failures = 0
        self.replaced: list[Path] = []

    def force(self, file: Path) -> None:
        if ".json" in file.name and self.failures > 0:
            self.failures -= 1
            raise OSError(5, "Input/output error")
        super().force(file)

    def replace(self, file: Path, content: bytes, mode: int = 0o644) -> None:
        self.replaced.append(file)
        super().replace(file, content, mode)


def test_a_commit_that_cannot_be_forced_is_tried_again_and_not_believed_before(lake: Path) -> None:
    disk = FailingDisk()
    store = DeltaMetadataStore(lake, disk=disk)
    store.create_topics([topic_row("first")])
    for name in ("a", "b"):
        disk.failures = 2
        for _ in range(2):  # the second finds the row there and must not say that all is well
            with pytest.raises(KafkaStorageError, match="cannot force"):
                store.create_topics([topic_row(name)])
        store.create_topics([topic_row(name)])
        assert entries(lake, "topics")[-1] in disk.replaced, "the kernel reports a failed write only once"
    with pytest.raises(TopicAlreadyExistsError):
        store.create_topics([topic_row("b", topic_id="another")])
    assert [row.topic for row in DeltaMetadataStore(lake).load_topics()] == ["a", "b", "first"]
