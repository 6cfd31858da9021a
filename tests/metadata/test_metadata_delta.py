"""What only the Delta store has: other writers, crashes between commits, a full disk, many segments, checkpoints."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from memory_store import MemoryMetadataStore
from metadata_processes import SPAWN, create_topics, die_while_publishing, publish_often, publish_on_a_full_disk
from metadata_rows import partition_row, published, segment_row, topic_row

from kafkalake.broker.publishing.reconcile import reconcile
from kafkalake.errors import KafkaStorageError, LakeError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.paths import TABLES, table_path
from kafkalake.metadata.tables import delta_table, lake_tables
from kafkalake.metadata.tables.data_files import TableDefinition
from kafkalake.metadata.tables.delta_table import CommitConflict, OpenDeltaTable, TableChange
from kafkalake.metadata.tables.schemas import SEGMENTS_SCHEMA, SegmentRow, to_table
from kafkalake.metadata.tables.segments import FILE_ROWS, FILES_MAX

pytestmark = pytest.mark.exhaustive

DEADLINE_S = 60


def log_directory(lake: Path, table: str) -> Path:
    return table_path(lake, table) / "_delta_log"


def data_files(lake: Path, table: str) -> list[str]:
    return DeltaTable(table_path(lake, table)).file_uris()


def test_the_tables_are_what_any_delta_reader_understands(tmp_path: Path) -> None:
    DeltaMetadataStore(tmp_path)
    for name in TABLES:
        table = DeltaTable(table_path(tmp_path, name))
        assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
        assert table.metadata().configuration["delta.logRetentionDuration"].startswith("interval ")
    assert DeltaTable(table_path(tmp_path, "partitions")).metadata().partition_columns == ["leader"]


def test_a_publish_is_one_commit_and_carries_deltas_transaction(tmp_path: Path) -> None:
    store = DeltaMetadataStore(tmp_path)
    store.publish(published(5, [partition_row()], [segment_row(base=base) for base in range(0, 1_000, 100)]))
    for name in ("partitions", "segments"):
        table = DeltaTable(table_path(tmp_path, name))
        assert (table.version(), table.transaction_version("kafkalake-broker-0")) == (1, 5)


def test_a_second_handle_sees_what_the_first_commits(tmp_path: Path) -> None:
    first, second = DeltaMetadataStore(tmp_path), DeltaMetadataStore(tmp_path)
    first.create_topics([topic_row("a")])
    second.create_topics([topic_row("b")])
    first.publish(published(0, [partition_row(leader=0)], [segment_row(broker=0)], leader=0))
    second.publish(published(0, [partition_row(partition=1, leader=1)], [segment_row(partition=1)], leader=1))
    first.publish(published(1, [partition_row(leader=0, end=9)], [segment_row(base=100)], leader=0))
    assert [row.topic for row in first.load_topics()] == ["a", "b"]
    assert [row.high_watermark for row in second.load_partitions()] == [9, 0]
    assert len(second.load_segments()) == 3


@pytest.mark.parametrize("crashed", [False, True])
def test_a_reader_that_was_idle_for_longer_than_entries_are_kept_sees_the_newest_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crashed: bool
) -> None:
    """It looks for the next version's entry, which the cleanup has removed, with its own or, where it crashed, alone."""
    writer, reader = DeltaMetadataStore(tmp_path), DeltaMetadataStore(tmp_path, create=False)
    for number in range(2):
        writer.publish(published(number, [partition_row(end=number)]))
    assert reader.load_partitions()[0].high_watermark == 1
    for number in range(2, 5):
        writer.publish(published(number, [partition_row(end=number)]))
    writer.maintain()  # with a checkpoint
    log = log_directory(tmp_path, "partitions")
    for version in range(3 if crashed else 0, 4):
        (log / f"{version:020}.json").unlink()
    if crashed:
        monkeypatch.setattr(delta_table, "REFRESH_INTERVAL_S", 0)
    assert reader.load_partitions()[0].high_watermark == 4


def test_a_publish_that_another_process_has_committed_changes_nothing_and_leaves_no_file(tmp_path: Path) -> None:
    """The second handle has not seen the first's commit when it begins."""
    first, second = DeltaMetadataStore(tmp_path), DeltaMetadataStore(tmp_path)
    first.publish(published(4, [partition_row(end=1)]))
    version = second.publish(published(4, [partition_row(end=2)]))
    assert version == 1
    assert [row.high_watermark for row in second.load_partitions()] == [1]
    leader = table_path(tmp_path, "partitions") / "leader=0"
    assert [str(file) for file in leader.iterdir()] == data_files(tmp_path, "partitions")


def test_segments_that_are_all_there_already_are_no_commit(tmp_path: Path) -> None:
    store = DeltaMetadataStore(tmp_path)
    store.publish(published(0, [], [segment_row()]))
    store.publish(published(1, [], [segment_row()], [segment_row("unknown").key]))
    assert DeltaTable(table_path(tmp_path, "segments")).version() == 1


@pytest.mark.process
def test_two_processes_that_create_the_same_topics_get_each_name_once(tmp_path: Path) -> None:
    DeltaMetadataStore(tmp_path)
    names = [f"topic-{number:02}" for number in range(15)]
    pipes, processes = [], []
    for number, order in enumerate((names, names)):
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=create_topics, args=(tmp_path, order, f"writer-{number}", theirs))
        process.start()
        pipes.append(ours)
        processes.append(process)
    won = start_together(pipes)
    for process in processes:
        process.join(DEADLINE_S)
    assert sorted(won[0] + won[1]) == names
    topics = DeltaMetadataStore(tmp_path).load_topics()
    assert [row.topic for row in topics] == names
    assert {row.topic for row in topics if row.topic_id == "writer-0"} == set(won[0])


@pytest.mark.process
def test_two_leaders_that_publish_at_once_both_get_through(tmp_path: Path) -> None:
    DeltaMetadataStore(tmp_path)
    pipes, processes = [], []
    for leader in (0, 1):
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=publish_often, args=(tmp_path, leader, 20, theirs))
        process.start()
        pipes.append(ours)
        processes.append(process)
    assert start_together(pipes) == ["done", "done"]
    for process in processes:
        process.join(DEADLINE_S)
    store = DeltaMetadataStore(tmp_path)
    assert [(row.leader, row.high_watermark) for row in store.load_partitions()] == [(0, 19), (1, 19)]
    keys = [(row.partition, row.base_offset) for row in store.load_segments()]
    assert keys == [(leader, base * 100) for leader in (0, 1) for base in range(20)]


def start_together(pipes: list) -> list:
    for pipe in pipes:
        assert pipe.poll(DEADLINE_S) and pipe.recv() == "ready"
    for pipe in pipes:
        pipe.send("go")
    answers = []
    for pipe in pipes:
        assert pipe.poll(DEADLINE_S)
        answers.append(pipe.recv())
    return answers


@pytest.mark.process
@pytest.mark.parametrize(
    ("at_commit", "before", "segments_then", "end_then"),
    [(0, True, [0], 100), (0, False, [0, 100], 100), (1, True, [0, 100], 100), (1, False, [0, 100], 200)],
)
def test_a_kill_at_any_commit_of_a_publish_is_repaired_by_the_next(
    tmp_path: Path, at_commit: int, before: bool, segments_then: list[int], end_then: int
) -> None:
    store = DeltaMetadataStore(tmp_path)
    store.publish(published(0, [partition_row(end=100)], [segment_row(base=0)]))
    process = SPAWN.Process(target=die_while_publishing, args=(tmp_path, at_commit, before))
    process.start()
    process.join(DEADLINE_S)
    assert process.exitcode == -9

    restarted = DeltaMetadataStore(tmp_path)
    assert [row.base_offset for row in restarted.load_segments()] == segments_then
    assert [row.high_watermark for row in restarted.load_partitions()] == [end_then]
    assert [row.base_offset for row in restarted.load_snapshot().segments] == [0, 100][: end_then // 100]

    on_disk = [segment_row(base=base) for base in (0, 100, 200)]
    repair = reconcile(on_disk, restarted.load_segments())
    version = restarted.last_published_version("kafkalake-broker-0") + 1
    restarted.publish(published(version, [partition_row(end=300)], repair.missing, repair.gone))
    assert restarted.load_segments() == on_disk
    assert [row.high_watermark for row in restarted.load_partitions()] == [300]
    assert restarted.load_snapshot().segments == on_disk


@pytest.mark.process
def test_a_full_disk_is_an_error_and_nothing_is_left_half_written(tmp_path: Path) -> None:
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=publish_on_a_full_disk, args=(tmp_path, theirs))
    process.start()
    assert ours.poll(DEADLINE_S) and ours.recv() == ["refused", "refused"]
    process.join(DEADLINE_S)
    store = DeltaMetadataStore(tmp_path)
    assert store.load_topics() == [topic_row()]
    assert [row.base_offset for row in store.load_segments()] == [0, 100]
    assert [row.high_watermark for row in store.load_snapshot().partitions] == [200]


def test_a_commit_whose_checkpoint_fails_has_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    definition = lake_tables.TABLE_DEFINITIONS["topics"]
    monkeypatch.setitem(lake_tables.TABLE_DEFINITIONS, "topics", replace_interval(definition, 3))
    store = DeltaMetadataStore(tmp_path)
    for version in range(1, 6):
        (log_directory(tmp_path, "topics") / f"{version:020}.checkpoint.parquet").mkdir()
    for number in range(5):
        store.create_topics([topic_row(f"topic-{number}")])
    assert len(store.load_topics()) == 5


def replace_interval(definition: TableDefinition, interval: int) -> TableDefinition:
    return TableDefinition(definition.schema, definition.history, definition.partition_by, interval)


@pytest.mark.parametrize("kept", [0, 1, 40, -1])
@pytest.mark.parametrize("table", ["partitions", "segments"])
def test_a_log_entry_cut_by_a_loss_of_power_is_set_aside_by_the_next_broker(
    tmp_path: Path, table: str, kept: int
) -> None:
    store = DeltaMetadataStore(tmp_path)
    for version in range(3):
        store.publish(published(version, [partition_row(end=version)], [segment_row(base=version * 100)]))
    entry = log_directory(tmp_path, table) / f"{3:020}.json"
    entry.write_bytes(entry.read_bytes()[:kept])
    if kept:
        with pytest.raises(LakeError, match=f"{table}.*starting a broker on the lake mends it"):
            DeltaMetadataStore(tmp_path, create=False).load_snapshot()
    restarted = DeltaMetadataStore(tmp_path)
    version = restarted.last_published_version("kafkalake-broker-0") + 1
    restarted.publish(published(version, [partition_row(end=9)], [segment_row(base=base) for base in (0, 100, 200)]))
    assert [row.high_watermark for row in restarted.load_snapshot().partitions] == [9]
    assert [row.base_offset for row in restarted.load_snapshot().segments] == [0, 100, 200]


def test_maintenance_keeps_what_time_travel_needs_and_removes_what_crashes_left(tmp_path: Path) -> None:
    store = DeltaMetadataStore(tmp_path)
    for version in range(4):
        store.publish(published(version, [partition_row(end=version)]))
    leader = table_path(tmp_path, "partitions") / "leader=0"
    (leader / "being-written.parquet").write_bytes(b"")
    (leader / "left-by-a-crash.parquet").write_bytes(b"")
    for file in leader.iterdir():
        if file.name != "being-written.parquet":
            os.utime(file, (time.time() - 30 * 86_400,) * 2)
    store.maintain()
    assert {file.name for file in leader.iterdir() if "-" in file.name and len(file.name) < 30} == {
        "being-written.parquet"
    }
    ends = [store.load_partitions(version=version)[0].high_watermark for version in (1, 2, 3, 4)]
    assert ends == [0, 1, 2, 3]


def test_log_entries_past_their_retention_go_and_later_versions_stay(tmp_path: Path) -> None:
    store = DeltaMetadataStore(tmp_path)
    for version in range(250):
        store.publish(published(version, [partition_row(end=version)]))
    log = log_directory(tmp_path, "partitions")
    for version in range(230):
        for entry in log.glob(f"{version:020}.*"):
            os.utime(entry, (time.time() - 30 * 86_400,) * 2)
    store.maintain()
    assert not (log / f"{0:020}.json").exists()
    assert len(list(log.iterdir())) < 100
    assert [row.high_watermark for row in store.load_partitions(version=240)] == [239]
    with pytest.raises(LakeError, match="versions older than 1 days are removed"):
        store.load_partitions(version=5)


def test_a_writer_that_always_loses_gives_up_with_a_retriable_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DeltaMetadataStore(tmp_path)
    attempts = 0

    def lose(*_: object, **__: object) -> None:
        nonlocal attempts
        attempts += 1
        raise CommitConflict

    monkeypatch.setattr(OpenDeltaTable, "commit", lose)
    with pytest.raises(KafkaStorageError, match="other writers were faster") as raised:
        store.create_topics([topic_row()])
    assert raised.value.retriable
    assert attempts == delta_table.ATTEMPTS_MAX


def test_segments_stay_few_files_and_a_removal_rewrites_little(tmp_path: Path) -> None:
    store = DeltaMetadataStore(tmp_path)
    many = [segment_row(partition=number % 10, base=number * 100) for number in range(2 * FILE_ROWS)]
    store.publish(published(0, [], many))
    assert len(data_files(tmp_path, "segments")) == 2
    for version in range(1, FILES_MAX + 20):
        store.publish(published(version, [], [segment_row(topic="other", base=version * 100)]))
        assert len(data_files(tmp_path, "segments")) <= FILES_MAX + 1
    before = set(data_files(tmp_path, "segments"))
    store.publish(published(999, [], [], [many[0].key]))
    assert len(before - set(data_files(tmp_path, "segments"))) == 1
    assert len(store.load_segments()) == len(many) + FILES_MAX + 18


def test_a_large_lake_loads_well_under_a_second(tmp_path: Path) -> None:
    store = DeltaMetadataStore(tmp_path)
    partitions = [partition_row(f"topic-{number // 100}", number % 100) for number in range(10_000)]
    sealed = [segment_row(row.topic, row.partition, base=base) for row in partitions for base in (0, 100)]
    store.publish(published(0, partitions, sealed))
    loads_s = []
    for _ in range(5):  # the fastest: other processes make the processor itself slower
        started = time.thread_time()
        snapshot = DeltaMetadataStore(tmp_path, create=False).load_snapshot()
        loads_s.append(time.thread_time() - started)
    assert min(loads_s) < 1
    assert (len(snapshot.partitions), len(snapshot.segments)) == (10_000, 20_000)


def test_checkpoints_are_written_so_that_opening_reads_a_short_log(tmp_path: Path) -> None:
    store = DeltaMetadataStore(tmp_path)
    for version in range(120):
        store.publish(published(version, [partition_row(end=version)]))
    log = log_directory(tmp_path, "partitions")
    assert list(log.glob("*.checkpoint.parquet"))
    assert (log / "_last_checkpoint").exists()
    assert [row.high_watermark for row in DeltaMetadataStore(tmp_path).load_partitions()] == [119]
    assert DeltaMetadataStore(tmp_path).last_published_version("kafkalake-broker-0") == 119


_key = st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 1))
_steps = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.tuples(_key, st.sampled_from([50, 100])), max_size=4), st.lists(_key)),
    max_size=8,
)


@examples(15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_steps)
def test_any_series_of_publishes_reads_like_the_store_in_memory(
    tmp_path_factory: pytest.TempPathFactory, steps: list
) -> None:
    stores = [DeltaMetadataStore(tmp_path_factory.mktemp("lake")), MemoryMetadataStore()]
    versions = []
    for number, (leader, sealed, removed) in enumerate(steps):
        rows = [partition_row(partition=partition, leader=leader, end=number) for partition in (leader * 2, 1)]
        segments = [segment_row(partition=p, base=b * 100, size=s, generation=g) for (p, b, g), s in sealed]
        gone = [segment_row(partition=p, base=b * 100, generation=g).key for p, b, g in removed]
        versions.append([store.publish(published(number, rows, segments, gone, leader=leader)) for store in stores])
    assert stores[0].load_segments() == stores[1].load_segments()
    for ours, theirs in versions:
        one, other = stores[0].load_snapshot(version=ours), stores[1].load_snapshot(version=theirs)
        assert one.segments == other.segments
        assert one.partitions == other.partitions


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../other/logs/0/clicks-0/00000000000000000000.arrow",
        "logs/0/clicks-0/../../../../etc/00.arrow",
        "logs/0/../clicks-0/00000000000000000000.arrow",
        "logs/0/clicks-0/..",
        "logs/0/clicks-0//etc/passwd",
        "metadata/topics/00000000000000000000.arrow",
        "",
    ],
)
def test_a_segment_that_leads_out_of_the_logs_is_refused_by_whoever_reads_the_table(tmp_path: Path, path: str) -> None:
    """The planner, the jobs and the broker ask one of these."""
    DeltaMetadataStore(tmp_path).publish(
        published(0, [partition_row(end=100)], [segment_row(), replace(segment_row(base=100, generation=1), path=path)])
    )
    for create in (False, True):
        store = DeltaMetadataStore(tmp_path, create=create)
        for read in (
            store.load_segments,
            store.load_snapshot,
            lambda store=store: store.load_swapped(None),
            lambda store=store: store.remove_segments([segment_row().key]),
            lambda store=store: store.load_segments(version=1),
        ):
            with pytest.raises(LakeError, match="names a file outside of the lake's logs"):
                read()


def test_a_segments_broker_is_found_where_an_earlier_version_wrote_no_such_column(tmp_path: Path) -> None:
    old = replace(
        lake_tables.TABLE_DEFINITIONS["segments"],
        schema=SEGMENTS_SCHEMA.remove(SEGMENTS_SCHEMA.get_field_index("broker_id")),
        accept=lambda rows: rows,
    )
    rows = [segment_row(base=base, broker=broker) for base, broker in ((0, 1), (100, 10), (200, 1))]
    DeltaMetadataStore(tmp_path)
    path = table_path(tmp_path, "segments")
    shutil.rmtree(path)

    def write_as_before(row: SegmentRow) -> pa.Table:
        table = OpenDeltaTable(path, old, create=True)
        table.commit(TableChange(add=[to_table(SEGMENTS_SCHEMA, [row]).select(old.schema.names)]))
        return table.read()

    write_as_before(rows[0])
    assert DeltaMetadataStore(tmp_path, create=False).load_segments() == rows[:1]
    store = DeltaMetadataStore(tmp_path)
    assert "broker_id" in {column.name for column in DeltaTable(path).schema().fields}
    store.publish(published(1, [partition_row(leader=10)], rows[1:2], leader=10))
    assert write_as_before(rows[2]).column("path").to_pylist() == [row.path for row in (rows[2], rows[1], rows[0])]
    assert store.load_segments() == rows
    compacted = segment_row(base=0, broker=1, generation=1)
    store.swap_segments(rows[:1], [compacted])
    store.remove_segments([rows[2].key])
    assert DeltaMetadataStore(tmp_path, create=False).load_segments() == [compacted, rows[1]]
    assert sorted(DeltaTable(path).to_pyarrow_table().column("broker_id").to_pylist()) == [1, 10]


def test_no_offset_goes_back_to_what_a_controller_has_read_before_the_last_publish_of_an_earlier_one(
    tmp_path: Path,
) -> None:
    earlier, later = (DeltaMetadataStore(tmp_path / "lake") for _ in range(2))

    def publish(store: DeltaMetadataStore, version: int, stable: int) -> int:
        row = replace(partition_row(end=12), last_stable_offset=stable)
        store.publish(published(version, [row], app_id="controller"))
        [found] = store.load_partitions()
        return found.last_stable_offset

    assert publish(earlier, 1, stable=2) == 2
    later.load_partitions()
    assert publish(earlier, 2, stable=7) == 7
    assert publish(later, 1 << 32, stable=4) == 7
    assert publish(later, (1 << 32) + 1, stable=5) == 7
    assert publish(later, (1 << 32) + 2, stable=9) == 9
    with pytest.raises(KafkaStorageError, match="is late"):
        publish(earlier, 3, stable=11)
