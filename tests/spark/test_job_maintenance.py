"""The maintenance job: tables, files of removed segments while the broker is down, orphans; killed and run again."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka_reference import Kafkalake
from killed_job import run_killed_at
from long_runs import first_of
from written_lake import WrittenLake

from kafkalake.dataset import topic_dataset
from kafkalake.jobs.frame import main
from kafkalake.jobs.maintenance import Maintenance
from kafkalake.jobs.retention import Retention
from kafkalake.metadata import paths
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.lock_file import holding_logs
from kafkalake.metadata.tables.job_tables import JobTable
from kafkalake.storage.files import RealFiles
from kafkalake.storage.segment_names import file_name
from kafkalake.storage.staging import staging_path
from kafkalake.storage.state import STATE_BYTES, STATE_FILE, read_state

DEADLINE_S = 30


@pytest.fixture
def lake(tmp_path: Path) -> WrittenLake:
    """`old`: three sealed segments that retention has removed, and one that it has not; `other`: empty; no broker runs."""
    lake = WrittenLake(tmp_path / "lake")
    lake.create("other")
    lake.create("old")
    now_ms = time.time_ns() // 1_000_000
    for number in range(4):
        timestamp = now_ms if number == 3 else 1_000 * (number + 1)
        lake.append_values("old", 0, [b"%d" % (number * 10 + i) for i in range(10)], timestamp=timestamp)
        lake.roll("old")
    lake.publish()
    lake.close()
    assert main(Retention(), ["--lake", str(lake.path)]) == 0
    return lake


def run(lake: Path, *arguments: str) -> int:
    return main(Maintenance(), ["--lake", str(lake), *arguments])


def delay_passed(lake: Path) -> None:
    """Have the commits that removed segments be older than file.delete.delay.ms."""
    for table in (paths.SEGMENTS, paths.PARTITIONS):
        for entry in (paths.table_path(lake, table) / "_delta_log").glob("*.json"):
            os.utime(entry, (time.time() - 120,) * 2)


def values(lake: Path, topic: str = "old") -> list[int]:
    return sorted(int(value) for value in topic_dataset(str(lake), topic).to_table().column("value").to_pylist())


def segment_bases(lake: WrittenLake) -> list[int]:
    return sorted(int(path.name[:20]) for path in lake.directory("old").glob("*.arrow"))


def outcomes(lake: Path, action: str) -> list[str]:
    rows = JobTable(lake, paths.JOB_RUNS).rows().to_pylist()
    ordered = sorted(rows, key=lambda row: row["ended_at"])
    return [row["outcome"] for row in ordered if row["job"] == "maintenance" and row["action"] == action]


@pytest.mark.exhaustive
def test_files_of_removed_segments_go_after_the_delay(lake: WrittenLake) -> None:
    assert run(lake.path) == 0
    assert segment_bases(lake) == [0, 10, 20, 30]  # a query that was planned before may still read them
    delay_passed(lake.path)
    assert run(lake.path) == 0
    assert segment_bases(lake) == [30]
    assert run(lake.path) == 0  # twice by mistake
    assert outcomes(lake.path, "unlink segments") == ["waiting", "done"]
    assert values(lake.path) == list(range(30, 40))
    state = read_state(lake.directory("old"))
    assert (state.log_start_offset, state.high_watermark, state.clean) == (30, 40, True)


@pytest.mark.exhaustive
def test_what_a_killed_compaction_left_in_removed_segments_goes_once_the_log_begins_behind_it(
    lake: WrittenLake,
) -> None:
    """Each run planned to unlink it, and none did."""
    (lake.directory("old") / file_name(10, generation=1)).write_bytes(b"killed before its commit")
    for left in ([10, 30], [30], [30]):
        delay_passed(lake.path)
        assert run(lake.path) == 0
        assert segment_bases(lake) == left
    assert outcomes(lake.path, "unlink segments") == ["done", "done"]
    assert values(lake.path) == list(range(30, 40))


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", ["state", "directory"])
def test_a_partition_that_cannot_be_read_keeps_no_other_from_being_done(
    lake: WrittenLake, damage: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    delay_passed(lake.path)
    if damage == "state":
        (lake.directory("other") / STATE_FILE).write_bytes(bytes(STATE_BYTES))
    else:
        names = RealFiles.list

        def listed(files: RealFiles, directory: str) -> list[str]:
            if directory == str(lake.directory("other")):
                raise OSError(errno.EIO, os.strerror(errno.EIO), directory)
            return names(files, directory)

        monkeypatch.setattr(RealFiles, "list", listed)
    assert run(lake.path) == 1
    assert segment_bases(lake) == [30]
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("maintenance: other-0: ")
    assert "steps failed, the first: other-0: " in said[-1]


@pytest.mark.process
@pytest.mark.parametrize(
    "point", first_of(["log start moved", "unlinked", "planned", "cleaned brokers", "performed"], 2)
)
def test_a_killed_run_is_simply_run_again(lake: WrittenLake, point: str) -> None:
    delay_passed(lake.path)
    run_killed_at(point, "kafkalake.jobs.maintenance", lake.path)
    assert values(lake.path) == list(range(30, 40))
    delay_passed(lake.path)
    assert run(lake.path) == 0
    assert segment_bases(lake) == [30]
    assert values(lake.path) == list(range(30, 40))


@pytest.mark.process
def test_logs_that_a_broker_holds_are_left_to_it(lake: WrittenLake) -> None:
    delay_passed(lake.path)
    holding = "import sys; from pathlib import Path; from kafkalake.metadata.lock_file import holding_logs\n"
    holding += "with holding_logs(Path(sys.argv[1]), 0) as held:\n print(held, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(lake.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert run(lake.path) == 0
        assert outcomes(lake.path, "unlink segments") == ["skipped"]
        assert segment_bases(lake) == [0, 10, 20, 30]
        holder.kill()
        holder.wait()
    with holding_logs(lake.path, 0) as held:
        assert held


@pytest.mark.exhaustive
def test_what_nothing_accounts_for_is_listed_and_left_alone(
    lake: WrittenLake, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = lake.path / "logs" / "0"
    directory = lake.directory("old")
    left = [broker / "gone-0", broker / "notes", directory / "copy.txt", directory / f"{99:020}.index"]
    left[0].mkdir()
    left[1].mkdir()
    for path in left[2:]:
        path.write_bytes(b"")
    assert run(lake.path) == 0
    said = capsys.readouterr().out
    for path in left:
        assert str(path.relative_to(lake.path)) in said
        assert path.exists()
    assert outcomes(lake.path, "orphan") == ["reported"] * 4
    assert values(lake.path) == list(range(30, 40))


@pytest.mark.exhaustive
def test_what_a_killed_write_has_staged_goes_when_it_is_old(lake: WrittenLake) -> None:
    old, young = (staging_path(lake.path) / name for name in ("old-job", "young-job"))
    for directory in (old, young):
        directory.mkdir(parents=True)
        (directory / "task-0-0.arrow").write_bytes(b"staged")
    for path in (old / "task-0-0.arrow", old):
        os.utime(path, (time.time() - 3 * 3_600,) * 2)
    assert run(lake.path, "--staged-hours", "2") == 0
    assert not old.exists()
    assert (young / "task-0-0.arrow").exists()
    assert outcomes(lake.path, "remove staged files") == ["done"]


@pytest.mark.exhaustive
def test_tables_stay_small_and_old_rows_of_jobs_are_forgotten(tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    lake.create("new")
    for number in range(120):
        lake.append_values("new", 0, [b"%d" % number])
        lake.publish()
    lake.close()
    log = paths.table_path(lake.path, paths.PARTITIONS) / "_delta_log"
    for entry in log.glob("*.json"):
        os.utime(entry, (time.time() - 3 * 86_400,) * 2)
    before = len(list(log.iterdir()))
    assert run(lake.path) == 0
    assert len(list(log.iterdir())) < before / 3
    assert values(lake.path, "new") == list(range(120))
    rows = JobTable(lake.path, paths.JOB_RUNS).rows().num_rows
    assert run(lake.path, "--keep-days", "0") == 0
    left = JobTable(lake.path, paths.JOB_RUNS).rows().to_pylist()
    assert rows > 3
    assert len({row["run_id"] for row in left}) == 1


def test_metadata_retention_is_what_the_broker_was_told(
    kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path, topic: str
) -> None:
    """The broker cleans up by itself, and after it was killed and retention and maintenance have worked it goes on."""
    settings = {
        "metadata.maintenance.interval.ms": "200",
        "metadata.retention.ms": "7200000",
        "internal.segment.bytes": "20000",
        "log.retention.bytes": "40000",
        "log.segment.delete.delay.ms": "0",
    }
    broker = kafkalake_broker(settings=settings)
    lake = tmp_path / "lake"
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 50})
    for number in range(3_000):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    left = paths.table_path(lake, paths.SEGMENTS) / "left-by-a-crash.parquet"
    left.write_bytes(b"")
    os.utime(left, (time.time() - 30 * 86_400,) * 2)
    end = time.monotonic() + DEADLINE_S
    directory = paths.partition_path(lake, 0, topic, 0)
    store = DeltaMetadataStore(lake, create=False)
    while (
        left.exists()
        or len(store.load_segments(topic)) + 1 < len(list(directory.glob("*.arrow")))
        or all(row.topic != topic for row in store.load_partitions())  # without a row jobs leave a partition alone
    ):
        assert time.monotonic() < end, "the broker cleans its tables, and publishes its segments and its partition"
        time.sleep(0.05)
    history = DeltaMetadataStore(lake, create=False)._tables[paths.PARTITIONS]._table.metadata().configuration
    assert history["delta.logRetentionDuration"] == "interval 7200 seconds"
    broker.kill()
    assert main(Retention(), ["--lake", str(lake)]) == 0
    first = values(lake, topic)[0]
    assert first > 0
    assert run(lake) == 0
    assert min(int(path.name[:20]) for path in directory.glob("*.arrow")) == first
    assert values(lake, topic) == list(range(first, 3_000))
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"3000", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    assert values(lake, topic) == list(range(first, 3_001))
