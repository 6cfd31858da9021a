"""Records that are to be delivered later, from each client: by a header, and through the topic of a level."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
import pytest
from kafka_clients import CLIENTS, TIMEOUT_S, Client, Record, create_topic
from kafka_reference import Kafkalake, topic_name
from quick_jvm import kafka_command
from waiting import wait_until

import kafkalake
from kafkalake.delayed_headers import DELAY_MS, DELIVER_AT, ORIGINAL_TIMESTAMP
from kafkalake.reader.delayed import delayed_records

SENT_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
SETTINGS = {"delayed.delivery.enable": "true", "delay.levels": "400ms, 1h"}
PROGRAM = Path(__file__).parent / "DelayedProducer.java"


class Ours:
    """`kafkalake.Producer`."""

    name = "kafkalake"

    def write(self, servers: str, topic: str, partition: int, records: Sequence[Record], codec: str) -> list[int]:
        with kafkalake.Producer(bootstrap_servers=servers, linger_ms=5) as producer:
            sent = [
                producer.send(
                    topic,
                    each.value,
                    key=each.key,
                    headers=each.headers,
                    partition=partition,
                    timestamp=each.timestamp_ms,
                )
                for each in records
            ]
            return [future.get(30).offset for future in sent]


class Java:
    """Kafka's own client."""

    name = "java"

    def write(self, servers: str, topic: str, partition: int, records: Sequence[Record], codec: str) -> list[int]:
        words: list[str] = []
        for each in records:
            headers = [f"{key}={_text(value)}" for key, value in each.headers]
            words += [_text(each.value), *(headers or [""])]
        command = [*kafka_command("-Xmx256m"), str(PROGRAM)]
        run = subprocess.run(
            [*command, servers, topic, str(records[0].timestamp_ms), *words], capture_output=True, text=True, timeout=60
        )
        assert run.returncode == 0, run.stderr
        return [int(line) for line in run.stdout.split()]


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


def header(name: str, milliseconds: int) -> tuple[tuple[str, bytes], ...]:
    return ((name, b"%d" % milliseconds),)


@pytest.mark.parametrize("writer", [*CLIENTS, Ours(), Java()], ids=lambda client: client.name)
def test_every_client_sends_records_that_are_delivered_later(_shared_kafkalake: Kafkalake, writer: Client) -> None:
    servers, topic = _shared_kafkalake.bootstrap_servers, topic_name("orders")
    create_topic(servers, topic, config=SETTINGS)
    began_ms = time.time_ns() // 1_000_000
    at_ms = began_ms + 1_000
    records = [
        Record(b"k", b"first", (), SENT_MS),
        Record(b"k", b"delayed", header(DELAY_MS, 500), SENT_MS),
        Record(b"k", b"second", (), SENT_MS),
        Record(b"k", b"at", header(DELIVER_AT, at_ms), SENT_MS),
    ]
    assert writer.write(servers, topic, 0, records, "none") == [0, 1, 2, 3]
    level_ms = time.time_ns() // 1_000_000 + 400
    assert writer.write(servers, f"{topic}-delay-400ms", 0, [Record(b"k", b"level", (), SENT_MS)], "none") == [0]
    read = CLIENTS[0].read(servers, topic, 0, 0, 5)
    assert [(each.offset, each.value) for each in read[:2]] == [(0, b"first"), (2, b"second")]
    later = {each.value: each for each in read[2:]}
    for value, due_ms in ((b"delayed", began_ms + 500), (b"level", level_ms), (b"at", at_ms)):
        assert later[value].timestamp_ms >= due_ms
    assert sorted(each.offset for each in later.values()) == [4, 5, 6]
    for each in later.values():
        assert each.key == b"k"
        assert dict(each.headers)[ORIGINAL_TIMESTAMP] == b"%d" % SENT_MS
        assert DELIVER_AT not in dict(each.headers)
    assert (dict(later[b"delayed"].headers)[DELAY_MS], dict(later[b"level"].headers)[DELAY_MS]) == (b"500", b"400")


def test_what_was_sent_in_a_transaction_waits_once_it_is_committed(_shared_kafkalake: Kafkalake, topic: str) -> None:
    servers = _shared_kafkalake.bootstrap_servers
    create_topic(servers, topic, config=SETTINGS)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": f"id-{topic}"})
    producer.init_transactions(TIMEOUT_S)
    for key in (b"aborted", b"committed"):
        producer.begin_transaction()
        producer.produce(topic, b"now", key, 0)
        producer.produce(topic, b"soon", key, 0, headers=list(header(DELAY_MS, 200)))
        producer.produce(topic, b"far", key, 0, headers=list(header(DELAY_MS, HOUR_MS)))
        assert producer.flush(TIMEOUT_S) == 0
        (producer.commit_transaction if key == b"committed" else producer.abort_transaction)(TIMEOUT_S)
    read = CLIENTS[0].read(servers, topic, 0, 0, 2, "read_committed")
    assert [(each.key, each.value) for each in read] == [(b"committed", b"now"), (b"committed", b"soon")]

    def waiting() -> list[bytes]:
        found: list[bytes] = delayed_records(_shared_kafkalake.lake, ["key"], topic=topic).read_all()["key"].to_pylist()
        return found

    wait_until(lambda: waiting() == [b"committed"], waiting)
