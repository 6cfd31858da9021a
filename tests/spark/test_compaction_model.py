"""Compaction against a plain model of Kafka's rules: topics that hypothesis writes, and a job killed at every point."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import local_compaction
import pytest
from compacted_lake import DAY_MS, CompactedTopic, compact
from compaction_model import compacted
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from long_runs import ALL
from topic_operations import Operation, act, operations

from kafkalake.cli.log import problems_of
from kafkalake.clock import SystemClock
from kafkalake.errors import RecordsLostError
from kafkalake.jobs.compaction import command as compaction
from kafkalake.metadata import paths
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.job_tables import JobTable
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.plan import plan_slices
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import parse_options
from kafkalake.record import layout as at
from kafkalake.storage.config import LogConfig
from kafkalake.storage.generations import RewrittenSegment, stale_files
from kafkalake.storage.log import Log

HERE = Path(__file__).parent
POINTS = ["leftovers removed", "segments written", "a segment moved", "segments moved", "committed", "remembered"]
KILL_AT = """
import os, signal, sys
import local_compaction
from compacted_lake import compact
from kafkalake.jobs import frame

def die(point):
    if point == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)

frame.on_fault_point = die
local_compaction.install()
compact(sys.argv[2], "here")
"""


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    local_compaction.install(monkeypatch)


@pytest.mark.exhaustive
@examples(25 if ALL else 12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.lists(operations, min_size=1, max_size=25), then=st.lists(operations, max_size=15))
def test_what_is_left_is_what_the_rules_keep(first: list[Operation], then: list[Operation]) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        topic = CompactedTopic(Path(directory) / "lake", **{"internal.segment.bytes": "6000"})
        act(topic, first)
        topic.seal()
        cleaned_to = topic.publish()
        compact(topic.lake.path, "here")
        if topic.records:
            assert topic.stored() == topic.sealed(compacted(topic.records, cleaned_to))
        follow(topic)
        act(topic, then)
        topic.seal()
        again_to = max(topic.publish(), cleaned_to)
        compact(topic.lake.path, "here", 12 * DAY_MS)
        if topic.records:
            expired_to = cleaned_to if again_to > cleaned_to else 0
            assert topic.stored() == topic.sealed(compacted(topic.records, again_to, expired_to=expired_to))
        assert list(problems_of(topic.lake.path)) == []
        topic.lake.close()
        reopened(topic)


def follow(topic: CompactedTopic) -> None:
    """Have the log read what the job has written, as its broker does; the sealed segments are known to Delta already."""
    rows = topic.lake.store.load_segments("states")
    topic.lake._published |= {row.key for row in rows}
    swapped = [RewrittenSegment(row.base_offset, row.next_offset, row.generation) for row in rows if row.generation]
    assert topic.log.adopt_rewritten(swapped) == []


def reopened(topic: CompactedTopic) -> None:
    """A log that starts with what Delta says reads every offset, and what it reads is what Delta names."""
    rows = topic.lake.store.load_segments("states")
    swapped = [RewrittenSegment(row.base_offset, row.next_offset, row.generation) for row in rows if row.generation]
    log = Log.open(str(topic.lake.directory("states")), LogConfig(), SystemClock(), swapped=swapped)
    expected = [record.offset for record in topic.stored()]
    (snapshot,) = begin_read(
        parse_options({"lake": str(topic.lake.path), "path": "states", "isolation": "read_uncommitted"})
    ).partitions
    assert (snapshot.start_offset, snapshot.end_offset) == (log.log_start_offset, log.high_watermark)
    for offset in range(log.log_start_offset, log.high_watermark):
        messages = log.read(offset, 1, log.high_watermark)
        assert offset < messages.next_offset
        assert (
            messages.rows
            or not any(each >= offset for each in expected)
            or (messages.headers[:, at.ATTRIBUTES] & at.ATTRIBUTE_CONTROL).any()
        )
    found = log.offset_for_timestamp(0)
    assert (None if found is None else found.offset) == next(iter(expected), None)
    log.close()


def small_topic(path: Path) -> CompactedTopic:
    topic = CompactedTopic(path, **{"internal.segment.bytes": "9000"})
    for number in range(8):
        for batch in range(4):
            topic.write([(b"k%d" % ((number * 5 + batch * 3 + i) % 9), b"v" * 40) for i in range(6)])
        topic.seal()
    topic.write([(b"k1", b"active")])
    topic.publish()
    return topic


@pytest.fixture
def topic(tmp_path: Path) -> Iterator[CompactedTopic]:
    topic = small_topic(tmp_path / "lake")
    yield topic
    topic.lake.close()


@pytest.mark.process
@pytest.mark.parametrize("point", POINTS if ALL else ["a segment moved", "committed"])
def test_a_job_that_is_killed_leaves_the_old_or_the_new_and_the_next_finishes(
    topic: CompactedTopic, point: str
) -> None:
    lake, directory = topic.lake.path, topic.lake.directory("states")
    before, after = topic.sealed(topic.records), topic.sealed(compacted(topic.records, topic.publish()))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path])}
    killed = subprocess.run([sys.executable, "-c", KILL_AT, point, str(lake)], env=environment, timeout=120)
    assert killed.returncode == -9
    assert topic.stored() == (after if POINTS.index(point) >= POINTS.index("committed") else before)
    assert list(problems_of(lake)) == []
    committed = DeltaMetadataStore(lake, create=False).load_segments("states")
    compact(lake, "here")
    assert topic.stored() == after
    rows = topic.lake.store.load_segments("states")
    if POINTS.index(point) >= POINTS.index("committed"):
        assert rows == committed  # the same range is not compacted again
    (cleaning,) = topic.lake.store.load_cleaning()
    assert (cleaning.cleaned_offset, cleaning.generation) == (rows[-1].next_offset, 1)
    runs = JobTable(lake, paths.JOB_RUNS).rows().to_pylist()
    assert sorted(row["outcome"] for row in runs if row["action"] == "run") == ["done", "killed"]
    actions = {"committed": ["remember"], "remembered": []}
    assert [row["action"] for row in runs if row["action"] != "run"] == actions.get(point, ["compact"])
    current = [RewrittenSegment(row.base_offset, row.next_offset, row.generation) for row in rows]
    assert stale_files(os.listdir(directory), current, 0).uncommitted == []
    assert not list(directory.glob(".compaction-*"))
    assert list(problems_of(lake)) == []


@pytest.mark.exhaustive
def test_running_it_twice_does_nothing_more(topic: CompactedTopic) -> None:
    compact(topic.lake.path, "here")
    rows = topic.lake.store.load_segments("states")
    compact(topic.lake.path, "here")
    assert topic.lake.store.load_segments("states") == rows


@pytest.mark.exhaustive
def test_a_dry_run_says_why_and_changes_nothing(topic: CompactedTopic, capsys: pytest.CaptureFixture[str]) -> None:
    rows = topic.lake.store.load_segments("states")
    assert compaction.main(["--lake", str(topic.lake.path), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "dirty ratio 1.00 is above min.cleanable.dirty.ratio" in out and "states-0" in out
    assert topic.lake.store.load_segments("states") == rows


@pytest.mark.exhaustive
def test_files_that_were_replaced_go_with_the_next_run_when_no_broker_runs(topic: CompactedTopic) -> None:
    old = topic.lake.store.load_segments("states")
    compact(topic.lake.path, "here")
    assert all((topic.lake.path / row.path).exists() for row in old)
    compact(topic.lake.path, "here", 10 * DAY_MS + 60_000)
    assert not any((topic.lake.path / row.path).exists() for row in old)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("config", "compacts"),
    [
        ({"min.cleanable.dirty.ratio": "1"}, False),
        ({"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "1000"}, True),
        ({"min.compaction.lag.ms": str(20 * DAY_MS)}, False),
        ({"cleanup.policy": "delete"}, False),
        ({"cleanup.policy": "compact,delete"}, True),
    ],
)
def test_settings_say_when_a_topic_is_compacted(tmp_path: Path, config: dict[str, str], compacts: bool) -> None:
    topic = CompactedTopic(tmp_path / "lake", **config)
    topic.write([(b"a", b"1"), (b"a", b"2")])
    topic.seal()
    topic.publish()
    compact(topic.lake.path, "here")
    assert len(topic.stored()) == (1 if compacts else 2)
    topic.lake.close()


@pytest.mark.exhaustive
def test_a_segment_that_says_that_records_are_lost_stays_as_it_is(tmp_path: Path) -> None:
    """A consumer of the lake is told of the loss after compaction as before, between segments that become one each."""
    topic = CompactedTopic(tmp_path / "lake")
    directory, ends = topic.lake.directory("states"), []
    segment = directory / f"{20:020d}.arrow"
    for number in range(5):
        topic.write([(b"k%d" % i, b"%d" % number) for i in range(10)])
        ends.append(segment.stat().st_size if segment.exists() else 0)
        if number == 1:
            topic.seal()
    os.truncate(segment, ends[2])  # the machine stopped, and its disk had no more
    lost = topic.records[30:50]
    topic.log = topic.lake.logs["states", 0] = Log.open(str(directory), LogConfig(), SystemClock())
    for _ in range(2):
        topic.write([(b"k%d" % i, b"later") for i in range(5)])
        topic.seal()
    cleaned_to = topic.publish()
    assert cleaned_to == 60
    options = parse_options({"lake": str(topic.lake.path), "path": "states"})
    for _ in range(2):
        with pytest.raises(RecordsLostError, match="offsets 30 to 49"):
            plan_slices(begin_read(options), Selection())
        compact(topic.lake.path, "here")
    rows = topic.lake.store.load_segments("states")
    assert [(row.base_offset, row.next_offset, row.generation) for row in rows] == [
        (0, 30, 1),
        (30, 50, 0),
        (50, 60, 1),
    ]
    left = [record for record in topic.records if record not in lost]
    assert topic.stored() == compacted(left, cleaned_to)
    (problem,) = problems_of(topic.lake.path)
    assert "lost" in str(problem)
    follow(topic)
    topic.lake.close()
