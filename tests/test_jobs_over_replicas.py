"""Jobs over partitions with several replicas, with no broker running: whose files they remove, and whose they leave."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from replicated_lake import BROKERS, ReplicatedLake

from kafkalake.dataset import topic_reader
from kafkalake.jobs.frame import main
from kafkalake.jobs.maintenance import Maintenance
from kafkalake.jobs.retention import Retention
from kafkalake.metadata import paths
from kafkalake.reader.verification import verify
from kafkalake.storage.generations import RewrittenSegment, stale_files


@pytest.fixture
def lake(tmp_path: Path) -> ReplicatedLake:
    """`old`: three segments of 1970 and one of now, sealed and published by broker 0, and led by broker 1."""
    lake = ReplicatedLake(tmp_path / "lake")
    lake.create("old")
    now_ms = time.time_ns() // 1_000_000
    for number in range(4):
        timestamp = now_ms if number == 3 else 1_000 * (number + 1)
        lake.append_values("old", 0, [b"%d" % (number * 10 + i) for i in range(10)], timestamp=timestamp)
        lake.roll("old")
    lake.publish()
    lake.close()
    lake.replicate("old")
    lake.change_state(1, "old", leader_epoch=lake.elect("old", 1))
    return lake


def values(lake: ReplicatedLake) -> list[bytes]:
    found: list[bytes] = topic_reader(lake.path, "old", columns=["value"]).read_all()["value"].to_pylist()
    return found


def segments(lake: ReplicatedLake, broker_id: int) -> list[int]:
    return sorted(int(path.name[:20]) for path in lake.directory_of(broker_id, "old").glob("*.arrow"))


@pytest.mark.exhaustive
def test_removed_segments_go_from_every_replica_but_that_of_a_killed_broker(lake: ReplicatedLake) -> None:
    """What a killed broker has lost says its own recovery, which no job takes from it."""
    lake.change_state(2, "old", clean=False)
    assert main(Retention(), ["--lake", str(lake.path)]) == 0
    assert values(lake) == [b"%d" % number for number in range(30, 40)]
    for table in (paths.SEGMENTS, paths.PARTITIONS):
        for entry in (paths.table_path(lake.path, table) / "_delta_log").glob("*.json"):
            os.utime(entry, (time.time() - 120,) * 2)  # file.delete.delay.ms has passed
    assert main(Maintenance(), ["--lake", str(lake.path)]) == 0
    assert [segments(lake, broker_id) for broker_id in BROKERS] == [[30], [30], [0, 10, 20, 30]]
    assert values(lake) == [b"%d" % number for number in range(30, 40)]
    assert list(verify(lake.store)) == []


def test_what_a_replica_has_not_got_yet_supersedes_nothing_there() -> None:
    old = [f"{base:020d}{suffix}" for base in (0, 10) for suffix in (".arrow", ".index")]
    current = [RewrittenSegment(0, 20, 1), RewrittenSegment(20, 30, 0)]
    assert stale_files(old, current, 0).superseded == []
    there = stale_files([*old, f"{0:020d}-1.arrow"], current, 0)
    assert [name for name, _ in there.superseded] == old
