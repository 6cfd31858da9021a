"""`kafkalake.ExactlyOnceSink` with a consumer on each kind of broker: a write that fails leaves no record out."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from kafka_clients import create_topic
from kafka_reference import BrokerProcess
from waiting import wait_until

import kafkalake

VALUES = [b"v%d" % number for number in range(12)]


@pytest.fixture
def settings(any_broker: BrokerProcess, topic: str) -> dict[str, object]:
    """Settings of a consumer of the test's topic, which has `VALUES`. Each poll commits what the ones before returned."""
    create_topic(any_broker.bootstrap_servers, topic, 1)
    with kafkalake.Producer(bootstrap_servers=any_broker.bootstrap_servers) as producer:
        for value in VALUES:
            producer.send(topic, value)
    reading = {"max.poll.records": 4, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 0}
    return {"bootstrap.servers": any_broker.bootstrap_servers, "group.id": topic, "group.instance.id": "one", **reading}


def written(path: Path) -> list[bytes]:
    with sqlite3.connect(path) as connection:
        return [value for (value,) in connection.execute("SELECT record_value FROM records ORDER BY record_offset")]


def write_all(settings: dict[str, object], topic: str, path: Path, failing: set[bytes], *, goes_on: bool) -> None:
    """Write until all values are there. A value of `failing` fails once: then the loop goes on, or ends with the error."""

    def insert(cursor: Any, record: Any) -> None:
        if record.value in failing:
            failing.discard(record.value)
            raise sqlite3.OperationalError("of the test")
        sink._insert_record(cursor, record)

    def write() -> bool:
        try:
            sink.write(consumer.poll(0.2))
        except sqlite3.OperationalError:
            if not goes_on:
                raise
        return VALUES[-1] in written(path)

    with kafkalake.Consumer(settings) as consumer:
        kafkalake.ExactlyOnceSink(sqlite3.connect(path))  # with its own table
        sink = kafkalake.ExactlyOnceSink(sqlite3.connect(path), insert=insert)
        consumer.subscribe(topic, listener=sink.listener(consumer))
        wait_until(write, lambda: f"{written(path)}")


def test_records_that_were_not_written_are_polled_again(
    settings: dict[str, object], topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "db"
    write_all(settings, topic, path, {VALUES[0], VALUES[1], VALUES[6], VALUES[11]}, goes_on=True)
    assert written(path) == VALUES


def test_records_that_were_not_written_are_not_committed_by_a_close(
    settings: dict[str, object], topic: str, tmp_path: Path
) -> None:
    """Nothing is stored yet when the first write fails, so the next consumer begins where the group has committed."""
    path = tmp_path / "db"
    with pytest.raises(sqlite3.OperationalError, match="of the test"):
        write_all(settings, topic, path, {VALUES[2]}, goes_on=False)
    with kafkalake.Consumer(settings) as consumer:
        sink = kafkalake.ExactlyOnceSink(sqlite3.connect(path))
        consumer.subscribe(topic, listener=sink.listener(consumer))
        wait_until(lambda: bool(consumer.poll(0.2)), lambda: "nothing polled")
        with pytest.raises(TypeError, match="not list_iterator"):
            sink.write(iter([]))  # type: ignore[arg-type]
    write_all(settings, topic, path, set(), goes_on=True)
    assert written(path) == VALUES
