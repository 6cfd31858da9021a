"""The lag job on a lake whose broker is down, and beside one that runs: what it says, keeps, draws and alerts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka_reference import Kafkalake
from killed_job import run_killed_at
from long_runs import first_of
from manual_clock import ManualClock
from written_lake import WrittenLake

from kafkalake.jobs.frame import main
from kafkalake.jobs.lag.command import ALERT_EXIT_CODE, LagJob, lag_table
from kafkalake.jobs.lag.report import Lag
from kafkalake.metadata import paths
from kafkalake.metadata.store import PublishedOffsets
from kafkalake.metadata.tables.job_tables import JobTable
from kafkalake.metadata.tables.schemas import GroupOffsetRow
from kafkalake.storage.segment_reader import SEGMENTS, MessageRun
from kafkalake.storage.state import STATE_BYTES, STATE_FILE

DEADLINE_S = 30
NOW_MS = time.time_ns() // 1_000_000


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[WrittenLake]:
    """`clicks`: 2 partitions of 100 records, one every second up to now; sealed up to 60."""
    lake = WrittenLake(tmp_path / "lake")
    lake.create("clicks", 2)
    for partition in range(2):
        for start in range(0, 100, 10):
            times = [NOW_MS - 1000 * (100 - start - i) for i in range(10)]
            lake.append("clicks", partition, [(at, None, b"value", []) for at in times])
            if start == 50:
                lake.roll("clicks", partition)
    lake.publish()
    yield lake
    lake.close()


def commit(
    lake: WrittenLake,
    number: int,
    offsets: dict[tuple[str, int], int],
    at_ms: int = NOW_MS,
    topic_id: str | None = None,
) -> None:
    topic_id = topic_id or lake.topics["clicks"].topic_id
    rows = [
        GroupOffsetRow(group, "clicks", topic_id, partition, offset, -1, "", at_ms, None, 0, number)
        for (group, partition), offset in offsets.items()
    ]
    lake.store.publish_group_offsets(PublishedOffsets(rows, {0: number + 1}))


@contextmanager
def webhook(*statuses: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the URL of a webhook that answers so, one after the other, and what it has received."""
    received: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(statuses[len(received) - 1])
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/alerts", received
    finally:
        server.shutdown()
        server.server_close()


def run(lake: Path, *arguments: str, at_ms: int | None = None) -> int:
    clock = None if at_ms is None else ManualClock(at_ms)
    return main(LagJob(), ["--lake", str(lake), *arguments], clock=clock)


def rows(lake: Path) -> list[dict[str, object]]:
    return [row for row in JobTable(lake, paths.LAG).rows().to_pylist() if not str(row["run_id"]).startswith("history")]


@pytest.mark.exhaustive
def test_lag_in_records_and_seconds_of_groups_that_nobody_is_in(
    lake: WrittenLake, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(lake, 0, {("slow", 0): 0, ("slow", 1): 0}, NOW_MS - 400_000)
    commit(lake, 1, {("slow", 0): 30, ("slow", 1): 75, ("done", 0): 100}, NOW_MS - 100_000)
    lake.logs["clicks", 1].delete_records_before(80)
    assert main(LagJob(), ["--lake", str(lake.path)], clock=ManualClock(NOW_MS)) == 0
    assert "2 groups in 3 partitions, 1 behind, by 95 records in all" in capsys.readouterr().out
    found = {(row["group"], row["partition"]): row for row in rows(lake.path)}
    assert {key: row["lag"] for key, row in found.items()} == {("slow", 0): 70, ("slow", 1): 25, ("done", 0): 0}
    assert found["slow", 0]["lag_seconds"] == pytest.approx(70)  # in the sealed segment
    assert found["slow", 1]["lag_seconds"] == pytest.approx(20)  # in the active one
    assert (found["done", 0]["lag_seconds"], found["done", 0]["catch_up_seconds"]) == (0, 0)
    assert (found["slow", 1]["lost"], found["slow", 0]["lost"]) == (5, 0)
    assert found["slow", 0]["rate_out"] == pytest.approx(30 / 400, rel=0.01)


@pytest.mark.exhaustive
def test_the_past_is_measured_from_the_history_of_the_tables(lake: WrittenLake) -> None:
    commit(lake, 0, {("etl", 0): 10}, NOW_MS - 60_000)
    lake.publish()
    commit(lake, 1, {("etl", 0): 90})
    past: list[dict[str, Any]] = []
    end = time.monotonic() + DEADLINE_S
    while not past:  # the lake must be older than the youngest of 24 looks within seven seconds
        assert time.monotonic() < end
        assert run(lake.path, "--history", "0.002") == 0
        table = JobTable(lake.path, paths.LAG).rows().to_pylist()
        past = [row for row in table if row["run_id"].startswith("history")]
    assert {row["lag"] for row in past} <= {90, 10}


@pytest.mark.exhaustive
def test_alerts_set_the_exit_code_and_reach_the_webhook(lake: WrittenLake, capsys: pytest.CaptureFixture[str]) -> None:
    commit(lake, 0, {("slow", 0): 30, ("fast", 0): 99})
    with webhook(200, 500) as (url, received):
        assert run(lake.path, "--max-lag", "50", "--webhook", url) == ALERT_EXIT_CODE
        assert "lag: alert: group 'slow' is 70 records behind in clicks, above 50" in capsys.readouterr().err
        (told,) = received
        assert [(each["group"], each["rule"], each["value"]) for each in told["alerts"]] == [("slow", "max-lag", 70)]
        assert run(lake.path, "--max-lag", "70", "--webhook", url) == 0
        assert len(received) == 1
        assert run(lake.path, "--max-lag-seconds", "1", "--webhook", url) == 1
        assert "2 alerts were raised, and the webhook" in capsys.readouterr().err
    notes = [row for row in JobTable(lake.path, paths.JOB_RUNS).rows().to_pylist() if row["action"] == "alert"]
    assert dict(notes[0]["after"])["group"] == "slow"


@pytest.mark.process
def test_alerts_are_posted_and_recorded_whether_or_not_the_results_can_be_printed(
    lake: WrittenLake, tmp_path: Path
) -> None:
    commit(lake, 0, {("slow", 0): 30})
    reader, gone = os.pipe()
    os.close(reader)
    page = tmp_path / "lag.html"
    command = [sys.executable, "-m", "kafkalake", "jobs", "run", "lag", "--lake", str(lake.path)]
    answers = [*first_of([200, 200, 200], 1), 500]
    with webhook(*answers) as (url, received), open("/dev/full", "wb") as full:
        alerting = [*command, "--max-lag", "50", "--webhook", url, "--html"]
        for stdout, stderr in first_of([(full, full), (gone, subprocess.PIPE), (full, subprocess.PIPE)], 1):
            ended = subprocess.run([*alerting, str(page)], stdout=stdout, stderr=stderr, check=False)
            assert (ended.returncode, page.exists()) == (ALERT_EXIT_CODE, True), ended.stderr
            page.unlink()
        without_page = subprocess.run([*alerting, str(tmp_path / "no" / "lag.html")], capture_output=True, check=False)
        assert (without_page.returncode, len(received)) == (1, len(answers))
        unshown = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert (unshown.returncode, unshown.stderr) == (
            1,
            "lag: its results could not be printed: No space left on device\n",
        )
        assert subprocess.run(command, stdout=gone, stderr=full, check=False).returncode == 0
    os.close(gone)
    runs = [row for row in JobTable(lake.path, paths.JOB_RUNS).rows().to_pylist() if row["action"] == "run"]
    assert [row["outcome"] for row in sorted(runs, key=lambda row: row["ended_at"])] == [
        *["done" for answer in answers if answer == 200],
        "failed",
        "done",
        "done",
    ]


@pytest.mark.exhaustive
def test_a_lag_that_grows_run_after_run_is_an_alert(lake: WrittenLake) -> None:
    commit(lake, 0, {("slow", 0): 30})
    codes = []
    minute = NOW_MS // 60_000 * 60_000 + 60_000
    for after_ms in (8_000, 9_000, 10_000):  # in the order of time, not of its digits
        codes.append(run(lake.path, "--growing", "2", at_ms=minute + after_ms))
        lake.append_values("clicks", 0, [b"more"], timestamp=NOW_MS)
    assert codes == [0, 0, ALERT_EXIT_CODE]
    commit(lake, 1, {("slow", 0): 60})
    assert run(lake.path, "--growing", "2", at_ms=minute + 11_000) == 0


@pytest.mark.exhaustive
def test_only_runs_that_measured_the_topic_count_and_older_rows_are_not_read(
    lake: WrittenLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.create("orders")
    lake.publish()
    commit(lake, 0, {("slow", 0): 30})
    row = GroupOffsetRow("slow", "orders", lake.topics["orders"].topic_id, 0, 0, -1, "", NOW_MS, None, 0, 1)
    lake.store.publish_group_offsets(PublishedOffsets([row], {0: 2}))
    measured = Lag("slow", "clicks", 0, 0, 0, 0, 0, 0, None, None, None, None, 0)
    old = [replace(measured, lag=number) for number in range(1_000)]
    JobTable(lake.path, paths.LAG).append(lag_table("old", NOW_MS - 20 * 86_400_000, old))
    read: list[int] = []
    of_table = JobTable.rows

    def counted(*arguments: Any, **named: Any) -> pa.Table:
        found = of_table(*arguments, **named)
        read.append(found.num_rows)
        return found

    monkeypatch.setattr(JobTable, "rows", counted)
    codes = []
    for number in range(3):  # two schedules
        codes.append(run(lake.path, "--topic=clicks", "--growing=2", at_ms=NOW_MS + number * 60_000))
        run(lake.path, "--topic=orders", "--growing=2", at_ms=NOW_MS + number * 60_000 + 1)
        lake.append_values("clicks", 0, [b"more"], timestamp=NOW_MS)
    assert codes == [0, 0, ALERT_EXIT_CODE]
    read.clear()
    assert run(lake.path, "--topic=clicks", "--growing=2", at_ms=NOW_MS + 180_000) == ALERT_EXIT_CODE
    assert sum(read) < 10, "of the last runs"


@pytest.mark.exhaustive
def test_a_damaged_record_hides_the_lag_of_no_group(lake: WrittenLake, capsys: pytest.CaptureFixture[str]) -> None:
    commit(lake, 0, {("stuck", 0): 30, ("before", 0): 20, ("behind", 0): 40, ("elsewhere", 1): 90})
    segment = lake.directory("clicks", 0) / f"{0:020}.arrow"
    with SEGMENTS.open(segment) as reader:
        run_of_messages = next(reader.runs())
        assert isinstance(run_of_messages, MessageRun)
        damaged = run_of_messages.position + int(run_of_messages.messages.positions[3])  # offsets 30 to 39
    with segment.open("r+b") as file:
        file.seek(damaged)
        file.write(bytes(64))
    assert run(lake.path, "--max-lag", "60", at_ms=NOW_MS) == ALERT_EXIT_CODE
    assert "lag: alert: group 'stuck' is 70 records behind in clicks" in capsys.readouterr().err
    found = {row["group"]: (row["lag"], row["lag_seconds"]) for row in rows(lake.path)}
    assert (found["before"], found["elsewhere"]) == ((80, 80), (10, 10))
    assert found["stuck"] == (70, 40), "of the next record that can be read, in the segment after it"
    assert found["behind"][0] == 60


@pytest.mark.exhaustive
def test_an_offset_of_an_earlier_topic_of_the_name_does_not_count(lake: WrittenLake) -> None:
    commit(lake, 0, {("etl", 0): 90, ("web", 0): 80}, NOW_MS - 60_000, lake.topics["clicks"].topic_id)
    lake.delete_topic("clicks")
    lake.create("clicks", 2)
    lake.append_values("clicks", 0, [b"value"] * 10)
    lake.publish()
    commit(lake, 1, {("web", 0): 4}, topic_id=lake.topics["clicks"].topic_id)
    assert run(lake.path, "--max-lag", "5", at_ms=NOW_MS) == ALERT_EXIT_CODE
    (web,) = rows(lake.path)
    assert (web["group"], web["committed_offset"], web["lag"]) == ("web", 4, 6)
    assert web["rate_out"] is None, "its first commit to this topic"


@pytest.mark.exhaustive
def test_the_past_of_an_earlier_topic_of_the_name_is_not_that_of_the_topic(lake: WrittenLake) -> None:
    then_ms = time.time_ns() // 1_000_000
    lake.delete_topic("clicks")
    lake.create("clicks", 2)
    commit(lake, 0, {("etl", 0): 10}, NOW_MS - 60_000)  # by a broker whose clock was behind
    lake.publish()
    assert run(lake.path, "--history", "0.001", at_ms=then_ms + 150) == 0  # a look every 150 ms
    past = [row for row in JobTable(lake.path, paths.LAG).rows().to_pylist() if row["run_id"].startswith("history")]
    assert not past


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", ["state", "directory"])
def test_a_partition_that_cannot_be_read_hides_the_lag_of_no_other(
    lake: WrittenLake, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(lake, 0, {("etl", 0): 30, ("etl", 1): 60})
    lake.logs.pop(("clicks", 1)).close()
    if damage == "state":
        (lake.directory("clicks", 1) / STATE_FILE).write_bytes(bytes(STATE_BYTES))
    else:
        shutil.rmtree(lake.directory("clicks", 1))
    assert run(lake.path, "--max-lag", "60", at_ms=NOW_MS) == 1
    *_, named, alert, last = capsys.readouterr().err.splitlines()
    assert named.startswith("lag: clicks-1: ")
    assert alert == "lag: alert: group 'etl' is 70 records behind in clicks, above 60"
    assert last.startswith("lag: 1 of 3 steps failed, the first: clicks-1: ")
    assert [(row["partition"], row["lag"]) for row in rows(lake.path)] == [(0, 70)]


@pytest.mark.process
def test_the_page_needs_nothing_from_elsewhere(lake: WrittenLake, tmp_path: Path) -> None:
    commit(lake, 0, {("<slow> & co", 0): 30, ("fast", 1): 100})
    assert run(lake.path) == 0
    assert run(lake.path, "--html", str(tmp_path / "lag.html"), "--max-lag", "5") == ALERT_EXIT_CODE
    page = (tmp_path / "lag.html").read_text()
    assert "&lt;slow&gt; &amp; co" in page
    assert "<slow>" not in page
    sources = re.findall(r"(?:src|href)='([^'#][^']*)'", page)
    assert re.findall("href='#([^']*)'", page) == re.findall("<h2 id='([^']*)'", page)
    assert len(sources) == 3
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert "<script" not in page


@pytest.mark.process
@pytest.mark.parametrize("point", first_of(["appended", "planned", "measured"], 1))
def test_a_killed_report_is_simply_run_again(lake: WrittenLake, point: str) -> None:
    commit(lake, 0, {("slow", 0): 30})
    run_killed_at(point, "kafkalake.jobs.lag.command", lake.path)
    assert run(lake.path) == 0
    assert [row["lag"] for row in rows(lake.path)] == [70] * (2 if point == "appended" else 1)


@pytest.mark.exhaustive
def test_wrong_arguments_are_one_sentence(lake: WrittenLake, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["--webhook", "secret"], "lag: --webhook is no URL: it begins with http"),
        (["--max-lag", "-1"], "lag: --max-lag -1: it cannot be negative"),
        (["--growing", "0"], "lag: --growing 0: it takes at least one run"),
        (["--group", "(x"], "lag: --group '(x' is no regular expression"),
        (["--window", "0"], "lag: --window 0: a window is longer than 0 seconds"),
    ):
        assert run(lake.path, *arguments) == 1
        assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e30", "x"])
@pytest.mark.parametrize("option", ["--window", "--history", "--max-lag-seconds"])
@pytest.mark.exhaustive
def test_what_is_no_number_of_this_world_is_a_usage_error(
    lake: WrittenLake, capsys: pytest.CaptureFixture[str], option: str, text: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(lake.path, f"{option}={text}")
    assert ended.value.code == 2
    assert f"lag: error: argument {option}: " in capsys.readouterr().err


@pytest.mark.exhaustive
def test_the_past_begins_with_the_lake_however_many_hours_are_asked_for(lake: WrittenLake) -> None:
    commit(lake, 0, {("slow", 0): 30})
    assert run(lake.path, "--history", "1e9") == 0


def test_lag_is_the_clients_with_the_broker_up_and_after_it_was_killed(
    kafkalake_broker: Callable[..., Kafkalake], tmp_path: Path, topic: str
) -> None:
    broker = kafkalake_broker(settings={"metadata.publish.interval.ms": "50"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(500):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "etl"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 123)], asynchronous=False)
    consumer.close()
    lake = tmp_path / "lake"
    end = time.monotonic() + DEADLINE_S
    while not rows_of(lake):
        assert time.monotonic() < end, "the committed offset is published"
        time.sleep(0.05)
    assert [(row["lag"], row["committed_offset"]) for row in rows_of(lake)] == [(377, 123)]
    broker.kill()
    assert {(row["lag"], row["log_end_offset"]) for row in rows_of(lake)} == {(377, 500)}


def rows_of(lake: Path) -> list[dict[str, object]]:
    assert run(lake) == 0
    return rows(lake)[-1:]
