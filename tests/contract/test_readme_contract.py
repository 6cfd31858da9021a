"""The examples of the README's section on the Python client do what it says, with each kind of broker."""

from __future__ import annotations

import importlib
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from kafka_clients import create_topic
from kafka_reference import BrokerProcess
from waiting import wait_until

import kafkalake
from kafkalake.client.consuming.records import ConsumerRecord

README = Path(__file__).parents[2] / "README.md"
TIMEOUT_S = 120
RECORDS = 10


def examples(servers: str, topic: str) -> list[str]:
    """Return the examples, for a broker, and with names of the test's own."""
    section = README.read_text().split("### The Python client\n")[1].split("\n### ")[0]
    found = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(found) == 5
    renamed = [block.replace("localhost:9092", servers).replace('"orders"', f'"{topic}"') for block in found]
    return [re.sub(r'"(bills|billing[-1]*|workers|cache-)', rf'"{topic}-\1', block) for block in renamed]


def write(servers: str, topic: str, values: Collection[bytes]) -> None:
    with kafkalake.Producer(bootstrap_servers=servers) as producer:
        sent = [producer.send(topic, value, partition=number % 2) for number, value in enumerate(values)]
    assert all(future.get(0) for future in sent)


def run(example: str, names: dict[str, Any]) -> None:
    exec(compile(example, str(README), "exec"), names)


def test_the_examples_run(any_broker: BrokerProcess, topic: str, capfd: pytest.CaptureFixture[str]) -> None:
    servers = any_broker.bootstrap_servers
    for each in (topic, f"{topic}-bills"):
        create_topic(servers, each, 2)
    names: dict[str, Any] = {"pyarrow_table": pa.table({"value": [b"from arrow"] * 3})}
    producing, consuming, sharing, _, administering = examples(servers, topic)
    run(producing, names)
    wait_until(lambda: run(consuming, names) or names["records"] or names["batches"])
    assert all(isinstance(each, ConsumerRecord) for each in names["records"])
    assert all(isinstance(each, pa.RecordBatch) for each in names["batches"])
    run(sharing, names)
    readers = names["workers"] + names["caches"]
    seen: list[list[bytes]] = [[] for _ in readers]

    def have_all(number: int) -> bool:
        for reader, values in zip(readers, seen, strict=True):
            values += [record.value for record in reader.poll(0.05)]
        return len(seen[0]) + len(seen[1]) >= number and min(map(len, seen[2:])) >= number

    wait_until(lambda: have_all(5) and all(reader.assignment() for reader in readers))
    write(servers, topic, [b"%d" % number for number in range(8)])
    wait_until(lambda: have_all(13))
    assert seen[0] and seen[1] and sorted(seen[0] + seen[1]) == sorted(seen[2]) == sorted(seen[3])
    for reader in readers:
        reader.close()
    run(administering.replace(f'"{topic}"', f'"{topic}-made"').replace("): 42}", "): 0}"), names)
    assert f"('{topic}" in capfd.readouterr().out


def test_the_parts_that_are_named_are_there() -> None:
    section = README.read_text().split("### The Python client\n")[1].split("\n### ")[0]
    named = re.findall(r"`(kafkalake(?:\.\w+)+)\.([A-Z]\w+)(?:\([^`]*)?`(?: and `\.([A-Z]\w+)`)?", section)
    assert len(named) == 7
    for module, *names in named:
        assert all(isinstance(getattr(importlib.import_module(module), name), type) for name in names if name)


CRASHES = """
import json, os, sqlite3, sys
from kafkalake import Consumer, ExactlyOnceSink

servers, topic, directory, example = sys.argv[1:]
exec(example)


def work(records):
    if records:
        print(json.dumps([name, [record.value.decode() for record in records]]), flush=True)
        os._exit(9)


class Crashing(Consumer):
    written = False

    def poll(self, timeout_s):
        if self.written:
            os._exit(9)
        records = super().poll(timeout_s)
        self.written = bool(records)
        return records


def begin(kind):
    settings = {"bootstrap.servers": servers, "group.id": f"{topic}-{name}", "group.instance.id": "one", "max.poll.records": 4}
    settings |= {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 0}
    return kind(settings, enable_auto_commit=name == "at least once")


def run():
    if name == "exactly once":
        exactly_once(begin(Crashing), sqlite3.connect(f"{directory}/exactly.db"))
    consumer = begin(Consumer)
    consumer.subscribe(topic)
    while True:
        (at_least_once if name == "at least once" else at_most_once)(consumer)


for _ in range(3):
    for name in ("at least once", "at most once", "exactly once"):
        if not (child := os.fork()):
            run()
        os.waitpid(child, 0)
"""


@pytest.mark.long("apache-kafka")
def test_a_crash_repeats_or_leaves_out_or_does_neither(any_broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    """A process is killed at its work, three times, with static members, which are back at once."""
    servers = any_broker.bootstrap_servers
    create_topic(servers, topic, 1)
    values = [str(number) for number in range(RECORDS)]
    with kafkalake.Producer(bootstrap_servers=servers, value_serializer="string") as producer:
        for value in values:
            producer.send(topic, value)
    command = [sys.executable, "-c", CRASHES, servers, topic, str(tmp_path), examples(servers, topic)[3]]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    seen = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [each for name, each in seen if name == "at least once"] == [values[:4]] * 3
    assert [each for name, each in seen if name == "at most once"] == [values[:4], values[4:8], values[8:]]
    rows = sqlite3.connect(tmp_path / "exactly.db").execute("SELECT record_value FROM records ORDER BY record_offset")
    assert [value.decode() for (value,) in rows] == values
