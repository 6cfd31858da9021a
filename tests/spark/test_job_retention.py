"""The retention job on lakes: broker down, broker up with clients at work, killed and run again, a slow group."""

from __future__ import annotations

import shutil
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cleaning_clients import value_of
from cleaning_load import Load
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from group_processes import Speaker
from kafka_reference import Kafkalake
from killed_job import run_killed_at
from long_runs import first_of
from waiting import wait_until
from watermarks import watermarks
from written_lake import WrittenLake

from kafkalake.dataset import topic_dataset
from kafkalake.jobs.compaction.command import CompactionJob
from kafkalake.jobs.frame import main
from kafkalake.jobs.retention import Retention
from kafkalake.metadata import paths
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.store import PublishedOffsets
from kafkalake.metadata.tables.job_tables import JobTable
from kafkalake.metadata.tables.schemas import GroupOffsetRow, TopicRow
from kafkalake.reader.live_partitions import LivePartition, LivePartitions
from kafkalake.storage.state import STATE_BYTES, STATE_FILE, read_state

DEADLINE_S = 30
CONSUMER = Path(__file__).parents[1] / "obedient_consumer.py"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    """`old`: five sealed segments of ten records from long ago, and an active one."""
    lake = WrittenLake(tmp_path / "lake")
    lake.create("old")
    for number in range(5):
        lake.append_values("old", 0, [b"%d" % (number * 10 + i) for i in range(10)], timestamp=1_000 * (number + 1))
        lake.roll("old")
    lake.append_values("old", 0, [b"50", b"51"], timestamp=time.time_ns() // 1_000_000)
    lake.publish()
    yield lake
    lake.close()


def alter(lake: Path, topic: str, **config: str) -> None:
    store = DeltaMetadataStore(lake, create=False)
    row = next(row for row in store.load_topics() if row.topic == topic)
    changed = type(row)(row.topic, row.topic_id, row.partitions, config, row.created_at_ms)
    store.alter_topics([changed])


def values(lake: Path, topic: str) -> list[int]:
    return sorted(int(value) for value in topic_dataset(str(lake), topic).to_table().column("value").to_pylist())


def run(lake: Path, *arguments: str) -> int:
    return main(Retention(), ["--lake", str(lake), *arguments])


def commit(lake: Path, group: str, offset: int, topic: str = "old") -> None:
    now_ms = time.time_ns() // 1_000_000
    row = GroupOffsetRow(group, topic, None, 0, offset, -1, "", now_ms, None, 0, now_ms)
    DeltaMetadataStore(lake, create=False).publish_group_offsets(PublishedOffsets([row], {0: now_ms + 1}))


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", ["state", "directory"])
def test_a_partition_that_cannot_be_read_keeps_no_other_from_being_cleaned(
    lake: WrittenLake, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.create("damaged", settings={"cleanup.policy": "compact,delete"})
    lake.append_values("damaged", 0, [b"0"])
    lake.roll("damaged")
    lake.publish()
    lake.logs.pop(("damaged", 0)).close()
    if damage == "state":
        (lake.directory("damaged") / STATE_FILE).write_bytes(bytes(STATE_BYTES))
    else:
        shutil.rmtree(lake.directory("damaged"))
    assert run(lake.path, "--dry-run") == 1
    assert "retention: damaged-0: " in capsys.readouterr().err
    assert run(lake.path) == 1
    named, last = capsys.readouterr().err.splitlines()
    assert named.startswith("retention: damaged-0: ")
    assert last == f"retention: 1 of 2 steps failed, the first: {named.removeprefix('retention: ')}"
    assert values(lake.path, "old") == [50, 51]
    assert main(CompactionJob(), ["--lake", str(lake.path)]) == 1
    assert capsys.readouterr().err.startswith("compaction: damaged-0: ")
    runs = JobTable(lake.path, paths.JOB_RUNS).rows().to_pylist()
    assert {(row["job"], row["topic"]) for row in runs if row["action"] == "leave out"} == {
        ("retention", "damaged"),
        ("compaction", "damaged"),
    }


@pytest.mark.exhaustive
@pytest.mark.parametrize("comes_again", [False, True])
def test_a_topic_that_is_deleted_while_a_run_looks_at_it_is_no_failure(
    lake: WrittenLake, comes_again: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process, after the run has read the tables."""
    lake.create("gone")
    lake.append_values("gone", 0, [b"0"])
    lake.roll("gone")
    lake.publish()
    look = LivePartitions.of

    def delete_and_look(partitions: LivePartitions, topic: TopicRow, number: int) -> LivePartition:
        if topic.topic == "gone":
            lake.delete_topic("gone")
            if comes_again:
                lake.create("gone")
        return look(partitions, topic, number)

    monkeypatch.setattr(LivePartitions, "of", delete_and_look)
    assert run(lake.path) == 0
    assert capsys.readouterr().err == ""
    assert values(lake.path, "old") == [50, 51]


@pytest.mark.exhaustive
def test_old_segments_go_and_readers_begin_where_they_end(
    lake: WrittenLake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(lake.path, "--dry-run") == 0
    assert "delete segments" in capsys.readouterr().out
    assert values(lake.path, "old") == list(range(52))  # the default keeps a week, and a dry run changes nothing
    assert run(lake.path) == 0
    assert "5 segments, " in capsys.readouterr().out
    assert values(lake.path, "old") == [50, 51]
    assert DeltaMetadataStore(lake.path, create=False).load_segments("old") == []
    rows = JobTable(lake.path, paths.JOB_RUNS).rows().to_pylist()
    (step,) = [row for row in rows if row["action"] == "delete segments"]
    assert dict(step["before"])["log_start_offset"] == "0"
    assert dict(step["after"])["log_start_offset"] == "50"
    assert (step["changed_table"], step["why"]) == ("partitions", "5 older than retention.ms=604800000")
    assert run(lake.path) == 0  # twice by mistake
    assert "0 segments, 0 bytes" in capsys.readouterr().out
    assert values(lake.path, "old") == [50, 51]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "config",
    [{"retention.ms": "-1"}, {"cleanup.policy": "compact", "retention.ms": "1"}],
    ids=["for ever", "compacted only"],
)
def test_topics_that_keep_all_are_left_alone(lake: WrittenLake, config: dict[str, str]) -> None:
    alter(lake.path, "old", **config)
    assert run(lake.path) == 0
    assert values(lake.path, "old") == list(range(52))


@pytest.mark.exhaustive
def test_topics_that_are_compacted_and_deleted_lose_what_is_old(lake: WrittenLake) -> None:
    alter(lake.path, "old", **{"cleanup.policy": "compact,delete"})
    assert run(lake.path) == 0
    assert values(lake.path, "old") == [50, 51]


@pytest.mark.exhaustive
def test_size_takes_the_oldest(lake: WrittenLake) -> None:
    sizes = [row.bytes for row in lake.store.load_segments("old")]
    alter(lake.path, "old", **{"retention.ms": "-1", "retention.bytes": str(2 * sizes[-1])})
    assert run(lake.path) == 0
    assert values(lake.path, "old")[0] in (30, 40)
    assert values(lake.path, "old")[-1] == 51


@pytest.mark.exhaustive
def test_a_slow_group_is_warned_of_or_keeps_what_it_has_not_read(
    lake: WrittenLake, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(lake.path, "slow", 25)
    alter(lake.path, "old", **{"retention.groups.guard": "block"})
    assert run(lake.path) == 0
    assert "keeping" in (said := capsys.readouterr().err)
    assert "group 'slow' (at 25) has not read them yet" in said
    assert values(lake.path, "old") == list(range(20, 52))
    rows = JobTable(lake.path, paths.JOB_RUNS).rows().to_pylist()
    assert {row["outcome"] for row in rows if row["action"] == "keep segments"} == {"blocked"}
    assert run(lake.path, "--guard", "warn") == 0
    assert "removing records that group 'slow' (at 25, 25 records) has not read yet" in capsys.readouterr().err
    assert values(lake.path, "old") == [50, 51]


@pytest.mark.process
@pytest.mark.parametrize("point", first_of(["log starts raised", "segments removed", "planned", "performed"], 2))
def test_a_killed_run_is_simply_run_again(lake: WrittenLake, point: str) -> None:
    run_killed_at(point, "kafkalake.jobs.retention", lake.path)
    expected = list(range(52)) if point == "planned" else [50, 51]
    assert values(lake.path, "old") == expected  # all or nothing, and readers cope with either
    assert run(lake.path) == 0
    assert values(lake.path, "old") == [50, 51]
    store = DeltaMetadataStore(lake.path, create=False)
    assert store.load_partitions()[0].log_start_offset == 50
    assert store.load_segments("old") == []
    rows = JobTable(lake.path, paths.JOB_RUNS).rows().to_pylist()
    assert sorted(row["outcome"] for row in rows if row["action"] == "run") == ["done", "killed"]
    actions = {"planned": ["delete segments"], "log starts raised": ["finish"]}
    assert [row["action"] for row in rows if row["action"] != "run"] == actions.get(point, [])


def produce(broker: Kafkalake, topic: str, first: int, count: int, batch: int = 100) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=0)
        if number % batch == batch - 1:
            producer.flush(DEADLINE_S)
    assert producer.flush(DEADLINE_S) == 0


def create(broker: Kafkalake, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (done,) = admin.create_topics([NewTopic(topic, 1, 1, config=config)]).values()
    done.result(DEADLINE_S)


def first_offset(broker: Kafkalake, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": str(uuid.uuid4())})
    try:
        return watermarks(consumer, topic, 0)[0]
    finally:
        consumer.close()


def test_beside_a_broker_whose_clients_write_and_read_at_full_speed(
    kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path, topic: str
) -> None:
    settings = {
        "internal.segment.bytes": "1000000",
        "log.segment.delete.delay.ms": "500",
        "log.retention.bytes": "3000000",
    }
    broker = kafkalake_broker(settings=settings)
    create(broker, topic)
    lake = tmp_path / "lake"
    directory = paths.partition_path(lake, 0, topic, 0)
    store = DeltaMetadataStore(lake, create=False)
    removed = [0]
    with Load(broker.bootstrap_servers, topic, records_max=4_000_000, compacted=False) as load:
        for _ in range(2):
            load.wait_until(lambda: any(row.base_offset > removed[-1] + 100_000 for row in store.load_segments(topic)))
            load.read_again()
            assert run(lake) == 0  # settings of the broker's command line count
            removed.append(read_state(directory).log_start_offset)
        load.drain()
    end = load.written
    assert removed == sorted(set(removed))  # the running broker has moved its log start each time
    assert load.passed_to <= removed[-1] < end
    assert first_offset(broker, topic) == removed[-1]

    def stored() -> list[tuple[int, bytes]]:
        table = topic_dataset(str(lake), topic).to_table(columns=["offset", "value"])
        return list(zip(table.column("offset").to_pylist(), table.column("value").to_pylist(), strict=True))

    left = [(offset, value_of(offset)) for offset in range(removed[-1], end)]
    assert stored() == left
    wait_until(
        lambda: min(int(path.name[:20]) for path in directory.glob("*.arrow")) == removed[-1],
        lambda: sorted(directory.iterdir()),
    )
    broker.kill()
    assert stored() == left
    broker.start()
    assert first_offset(broker, topic) == removed[-1]


def test_what_retention_says_while_the_broker_is_down_its_next_start_does(
    kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path, topic: str
) -> None:
    broker = kafkalake_broker()
    create(broker, topic, **{"internal.segment.bytes": "20000", "retention.bytes": "40000"})
    produce(broker, topic, 0, 3_000)
    lake = tmp_path / "lake"
    broker.stop()
    assert run(lake) == 0
    first = values(lake, topic)[0]
    assert first > 0
    assert values(lake, topic) == list(range(first, 3_000))
    broker.start()
    assert first_offset(broker, topic) == first
    rows = DeltaMetadataStore(lake, create=False).load_segments(topic)
    assert min(row.base_offset for row in rows) == first
    produce(broker, topic, 3_000, 10)
    assert values(lake, topic) == list(range(first, 3_010))


def test_a_live_group_that_reads_slowly_keeps_what_it_needs_or_is_warned_of(
    kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = kafkalake_broker(settings={"metadata.publish.interval.ms": "100"})
    lake = tmp_path / "lake"
    store = DeltaMetadataStore(lake)
    create(broker, topic, **{"internal.segment.bytes": "2000", "retention.ms": "1", "retention.groups.guard": "block"})
    group = Speaker([sys.executable, str(CONSUMER), broker.bootstrap_servers, "slow", topic])

    def got() -> list[int]:
        return [event["value"] for event in group.events]

    def read_up_to(value: int, count: int) -> None:
        """Until the group has read it, and Delta knows."""
        group.tell(str(count))
        wait_until(
            lambda: [row.offset for row in store.load_group_offsets().rows if row.group == "slow"] == [value + 1],
            lambda: (got()[-3:], *group.others),
        )
        assert got()[-1] == value

    def sealed_ends() -> list[int]:
        return [row.next_offset for row in store.load_segments(topic)]

    def write(first: int) -> None:
        produce(broker, topic, first, 100, batch=10)
        active = read_state(paths.partition_path(lake, 0, topic, 0)).active_base_offset
        wait_until(lambda: sealed_ends()[-1:] == [active], sealed_ends)

    try:
        write(0)
        read_up_to(24, 25)
        kept_from = max(end for end in sealed_ends() if end <= 25)
        assert run(lake) == 0
        assert "group 'slow' (at 25) has not read them yet" in capsys.readouterr().err
        assert first_offset(broker, topic) == kept_from > 0
        read_up_to(99, 75)
        assert got() == list(range(100))

        last_end = sealed_ends()[-1]
        assert run(lake) == 0  # it has caught up
        assert "slow" not in capsys.readouterr().err
        assert first_offset(broker, topic) == last_end > kept_from

        write(100)
        read_up_to(109, 10)
        last_end = sealed_ends()[-1]
        set_guard(broker, topic, "warn")
        assert run(lake) == 0
        warning = f"removing records that group 'slow' (at 110, {last_end - 110} records) has not read yet"
        assert warning in capsys.readouterr().err
        assert first_offset(broker, topic) == last_end > 110
        group.tell("1000")
        wait_until(lambda: got()[-1] == 199, lambda: (got()[-3:], *group.others))
        lost = set(range(200)) - set(got())
        assert got() == sorted(set(got()))
        assert lost and lost <= set(range(110, last_end))  # a batch may have been on its way to it
    finally:
        group.kill()


def set_guard(broker: Kafkalake, topic: str, guard: str) -> None:
    entry = ConfigEntry("retention.groups.guard", guard, incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (done,) = admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])]
    ).values()
    done.result(DEADLINE_S)
