"""A broker removes by itself what retention no longer keeps: alone, beside the job, and killed while it does."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.wire_client import WireClient, batch, code, create_topic, fetch, produce, values_of
from kafka_clients import Confluent, Record
from kafka_reference import Kafkalake
from test_group_offsets_durable import coordinator
from test_offset_expiry import BrokerWithClock
from waiting import wait_until

from kafkalake.jobs.frame import main
from kafkalake.jobs.retention import Retention
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.storage.state import read_state

HOUR_MS = 3_600_000
pytestmark = pytest.mark.process

SETTINGS = {
    "log.initial.task.delay.ms": "0",
    "log.retention.check.interval.ms": "20",
    "log.segment.delete.delay.ms": "100",
    "metadata.publish.interval.ms": "50",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerWithClock]:
    broker = BrokerWithClock(tmp_path / "lake", directory=tmp_path / "broker", settings=SETTINGS)
    broker.move_clock(0)
    broker.start()
    yield broker
    broker.close()


def log_start(broker: Kafkalake, topic: str) -> int:
    return read_state(broker.lake / "logs" / "0" / f"{topic}-0").log_start_offset


def data_files(broker: Kafkalake, topic: str) -> list[str]:
    return sorted(path.name for path in (broker.lake / "logs" / "0" / f"{topic}-0").glob("*.arrow"))


def write(client: WireClient, topic: str, number: int, ahead_ms: int = 0) -> None:
    now_ms = time.time_ns() // 1_000_000 + ahead_ms
    assert code(produce(client, topic, batch([(b"k", b"%d" % number)], timestamp=now_ms)).error_code) == 0


def test_segments_go_by_the_brokers_clock_as_topics_say(broker: BrokerWithClock) -> None:
    configs = {
        "expiring": {"retention.ms": str(HOUR_MS)},
        "kept": {"retention.ms": "-1"},
        "compacted": {"retention.ms": str(HOUR_MS), "cleanup.policy": "compact"},
        "both": {"retention.ms": str(HOUR_MS), "cleanup.policy": "compact,delete"},
        "guarded": {"retention.ms": str(HOUR_MS), "retention.groups.guard": "block"},
        "small": {"retention.bytes": "0"},
    }
    with coordinator(broker, "etl") as client:
        for topic, config in configs.items():
            create_topic(client, topic, 1, **config)
            write(client, topic, 0)
        commit_of(client, "guarded", 0)
        wait_until(lambda: log_start(broker, "small") == 1)
        broker.move_clock(2 * HOUR_MS)
        wait_until(lambda: [log_start(broker, topic) for topic in ("expiring", "both")] == [1, 1])
        assert [log_start(broker, topic) for topic in ("kept", "compacted", "guarded")] == [0, 0, 0]
        commit_of(client, "guarded", 1)
        wait_until(lambda: log_start(broker, "guarded") == 1)
        assert code(fetch(client, "expiring", 0, max_wait=0).error_code) == 1  # OFFSET_OUT_OF_RANGE
        write(client, "expiring", 1, 2 * HOUR_MS)
        assert values_of(fetch(client, "expiring", 1).records) == [(1, b"1")]
    wait_until(lambda: data_files(broker, "expiring") == [f"{1:020}.arrow"])
    wait_until(lambda: {row.topic: row.log_start_offset for row in published(broker)}.get("expiring") == 1)
    assert [row for row in store_of(broker).load_segments() if row.topic == "expiring"] == []


def commit_of(client: WireClient, topic: str, offset: int) -> None:
    partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
    answer = client.call(
        "OffsetCommit",
        8,
        group_id="etl",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": topic, "partitions": partitions}],
    )
    assert code(answer.topics[0].partitions[0].error_code) == 0


def store_of(broker: Kafkalake) -> DeltaMetadataStore:
    return DeltaMetadataStore(broker.lake, create=False)


def published(broker: Kafkalake) -> list:
    return store_of(broker).load_partitions()


@pytest.mark.long
def test_kills_while_it_removes_leave_a_whole_log_and_a_job_may_do_the_same(kafkalake_broker) -> None:  # type: ignore[no-untyped-def]
    broker = kafkalake_broker(settings={**SETTINGS, "log.flush.interval.messages": "1000"})
    size = 1_048_576
    with WireClient(broker.bootstrap_servers) as client:
        create_topic(
            client, "clicks", 1, **{"segment.bytes": str(size), "retention.bytes": str(2 * size), "retention.ms": "-1"}
        )
    value = bytes(100_000)
    written = 0
    for round_number in range(2):
        records = [Record(b"%d" % (written + n), value, timestamp_ms=1_000) for n in range(45)]
        acknowledged = Confluent().write(broker.bootstrap_servers, "clicks", 0, records, "none")
        assert acknowledged == list(range(written, written + 45))
        written += 45
        if round_number == 1:  # at the same time
            assert main(Retention(), ["--lake", str(broker.lake)]) == 0
        wait_until(lambda: len(data_files(broker, "clicks")) < 6)
        broker.kill()
        broker.start()
        start, end = Confluent().bounds(broker.bootstrap_servers, "clicks", 0)
        assert (end, 0 < start < end) == (written, True)
        found = Confluent().read(broker.bootstrap_servers, "clicks", 0, start, end - start)
        assert [int(record.key or b"") for record in found] == list(range(start, end))
    broker.stop()
    command = [sys.executable, "-m", "kafkalake", "log", "verify", str(broker.lake)]
    verified = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
