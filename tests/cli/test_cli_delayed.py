"""`kafkalake delayed`, and what waits in `kafkalake sql`: from the files of a lake."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from delayed_lake import DelayedLake, Waiting
from kafka_reference import Kafkalake, create_topic
from waiting import wait_until

from kafkalake.cli.record_output import as_text

HOUR_MS = 3_600_000


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[DelayedLake]:
    lake = DelayedLake(tmp_path / "lake")
    lake.hand_in(("orders", 0), [Waiting(HOUR_MS + i, b"%d" % i, b"x" * i, b"id-%d" % i) for i in range(3)])
    yield lake
    lake.close()


@pytest.mark.exhaustive
def test_sql_reads_what_waits(kafkalake: Run, lake: DelayedLake) -> None:
    query = (
        "SELECT a.topic, text(a.key) AS key, a.due FROM lake.delayed a JOIN lake.delayed b USING (key) ORDER BY a.due"
    )
    ended = kafkalake("sql", query, "--lake", str(lake.path), "--json")
    first, *_ = map(json.loads, ended.stdout.splitlines())
    assert first == {"topic": "orders", "key": "0", "due": "1970-01-01T01:00:00.000Z"}
    past = kafkalake("sql", "SELECT * FROM lake.delayed", "--lake", str(lake.path), "--as-of", "1s")
    assert (past.code, past.stderr) == (1, "error: lake.delayed has no past: it is what waits now\n")
    shown = kafkalake("sql", "SHOW ALL TABLES", "--lake", str(lake.path), "--csv").stdout
    assert "memory,lake,delayed," in shown
    assert "_delayed" not in shown.replace("__delayed", "")


@pytest.mark.exhaustive
def test_what_waits_is_listed_in_order_of_due_times(kafkalake: Run, lake: DelayedLake) -> None:
    lake.hand_in(("orders", 1), [Waiting(1_000, b"\xff", None)], source=("orders-delay-5s", 1))
    ended = kafkalake("delayed", "list", "--lake", str(lake.path))
    assert (ended.code, ended.stderr) == (0, "")
    header, first, second, *_ = (line.split() for line in ended.stdout.splitlines())
    assert header == ["Topic", "Partition", "Due", "Key", "Size", "DelayId", "Sent", "Source", "Journal"]
    assert first[:6] == ["orders", "1", "1970-01-01T00:00:01.000Z", "\\xff", "-", "-"]
    assert (first[7], second[7]) == ("orders-delay-5s", "-")
    listed = kafkalake("delayed", "list", "--lake", str(lake.path), "--max-rows", "2", "--json")
    assert [row["dueMs"] for row in json.loads(listed.stdout)] == [1_000, HOUR_MS]
    assert listed.stderr == "The next 2 of 4 that wait; --max-rows shows more.\n"
    assert json.loads(listed.stdout)[1] | {"journalPartition": 0} == {
        "topic": "orders", "partition": 0, "dueMs": HOUR_MS, "key": "0", "size": 0, "delayId": "id-0", "sentMs": 1_000,
        "source": "orders", "sourcePartition": 0, "journalPartition": 0, "journalOffset": 0,
    }  # fmt: skip
    before = kafkalake(
        "delayed", "list", "orders", "--due-before", "1970-01-01T01:00:00.001Z", "--lake", str(lake.path), "--json"
    )
    assert [row["dueMs"] for row in json.loads(before.stdout)] == [1_000, HOUR_MS]


@pytest.mark.exhaustive
def test_what_waits_is_described_by_target_and_by_id(kafkalake: Run, lake: DelayedLake) -> None:
    described = json.loads(kafkalake("delayed", "describe", "--lake", str(lake.path), "--json").stdout)
    assert described == [
        {
            "topic": "orders",
            "partition": 0,
            "waiting": 3,
            "overdue": 3,
            "bytes": 3,
            "nextDueMs": HOUR_MS,
            "lastDueMs": HOUR_MS + 2,
        }
    ]
    assert kafkalake("delayed", "describe", "orders-delay-5s", "--lake", str(lake.path), "--json").stdout == "[]\n"
    one = kafkalake("delayed", "describe", "orders", "id-2", "--lake", str(lake.path))
    assert [line.split(":")[0] for line in one.stdout.splitlines()] == [
        "Delay id", "Delivered to", "Sent to", "Due", "Timestamp", "Key", "Value", "Stored in",
    ]  # fmt: skip


@pytest.mark.exhaustive
def test_a_typo_is_answered_with_what_there_is(kafkalake: Run, lake: DelayedLake) -> None:
    wrong = kafkalake("delayed", "list", "order", "--lake", str(lake.path))
    assert (wrong.code, wrong.stderr) == (1, "error: topic 'order' does not exist; did you mean 'orders'?\n")
    wrong = kafkalake("delayed", "describe", "orders", "id-3", "--lake", str(lake.path))
    assert wrong.code == 1
    assert "nothing with delay id 'id-3' waits in topic 'orders'" in wrong.stderr
    assert "did you mean 'id-" in wrong.stderr
    wrong = kafkalake("delayed", "list", "--due-before", "15m", "--lake", str(lake.path))
    assert (wrong.code, wrong.stderr.split(",")[0]) == (
        2,
        "error: --due-before takes a time as 2026-11-21T08:00:00Z or milliseconds since 1970",
    )
    both = kafkalake("produce", "orders", "--delay", "5m", "--deliver-at", "2026-12-01")
    assert (both.code, both.stderr) == (2, "error: --deliver-at and --delay exclude one another\n")


def test_a_broker_tells_what_waits_and_takes_cancels(kafkalake: Run, _shared_kafkalake: Kafkalake, topic: str) -> None:
    create_topic(_shared_kafkalake, topic, partitions=2, config={"delayed.delivery.enable": "true"})
    on = partial(kafkalake, environment={"KAFKALAKE_BOOTSTRAP_SERVERS": _shared_kafkalake.bootstrap_servers})
    for key in ("a", "b"):
        header = f"kafkalake-delay-id={key}"
        sent = on("produce", topic, "--delay", "P1D", "-H", header, "--key-separator", "=", "-q", stdin=f"{key}=v")
        assert (sent.code, sent.stderr) == (0, "")

    def listed() -> list[str]:
        return sorted(row["key"] for row in json.loads(on("delayed", "list", topic, "--json").stdout))

    assert listed() == ["a", "b"]
    due_now = on("produce", topic, "-H", "kafkalake-delay-ms=1", "-q", stdin="v")
    assert (due_now.code, due_now.stderr) == (0, "")

    def is_counted() -> bool:
        metrics = shown_metrics()
        return bool(metrics["recent"] and metrics["waiting"] >= 2 and not metrics["overdue"])

    def shown_metrics() -> dict[str, Any]:
        (found,) = json.loads(on("delayed", "metrics", "--json").stdout)
        assert isinstance(found, dict)
        return found

    wait_until(is_counted, shown_metrics)
    metrics = shown_metrics()
    assert (metrics["loading"], metrics["deadLetters"]) == (0, 0)
    assert metrics["handedOver"] >= 1 and metrics["nextDueMs"] > time.time_ns() // 1_000_000
    assert 0 <= metrics["latenessMsP50"] <= metrics["latenessMsP99"] <= metrics["latenessMsMax"]
    assert on("delayed", "metrics").stdout.split()[:3] == ["Broker", "Partitions", "Loading"]
    ended = on("delayed", "cancel", topic, "a")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.startswith("Cancelled a, due ")
    assert listed() == ["b"]
    again = on("delayed", "cancel", topic, "a")
    assert (again.code, again.stderr.splitlines()[0]) == (
        1,
        f"error: nothing with delay id 'a' waits in topic '{topic}'",
    )


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_cancel_names_the_id_that_was_sent_and_is_taken_by_any_topic(
    kafkalake: Run, _shared_kafkalake: Kafkalake, topic: str, policy: str
) -> None:
    """Ids are any bytes, and are listed as text; compacted topics take no record without a key."""
    create_topic(_shared_kafkalake, topic, config={"delayed.delivery.enable": "true", "cleanup.policy": policy})
    on = partial(kafkalake, environment={"KAFKALAKE_BOOTSTRAP_SERVERS": _shared_kafkalake.bootstrap_servers})
    ids = [b"\xff\x01\xe9", rb"\xff", b"\xff", b"plain"]
    records = [
        {"key": "k", "value": "v", "headers": [{"key": "kafkalake-delay-id", "value": as_text(each)}]} for each in ids
    ]
    lines = "\n".join(map(json.dumps, records))
    sent = on("produce", topic, "--delay", "P1D", "--format", "records", "-q", stdin=lines)
    assert (sent.code, sent.stderr) == (0, "")

    def listed() -> list[str]:
        return sorted(row["delayId"] for row in json.loads(on("delayed", "list", topic, "--json").stdout))

    assert listed() == sorted(["\\xff\x01\\xe9", "\\xff", "\\xff", "plain"])
    for named, left in (("\\xff\x01\\xe9", 3), ("\udcff", 1), ("plain", 0)):
        ended = on("delayed", "cancel", topic, named)
        assert (ended.code, ended.stderr) == (0, "")
        assert ended.stdout.startswith("Cancelled ")
        assert len(listed()) == left


def test_a_topic_that_delivers_at_once_takes_no_delay(kafkalake: Run, _shared_kafkalake: Kafkalake, topic: str) -> None:
    create_topic(_shared_kafkalake, topic)
    servers = _shared_kafkalake.bootstrap_servers
    ended = kafkalake("produce", topic, "--delay", "5m", "-b", servers, stdin="x")
    assert ended.code == 1
    assert f"error: topic {topic} delivers at once: its setting delayed.delivery.enable is not true\n" in ended.stderr
