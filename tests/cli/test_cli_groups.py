"""`kafkalake groups` against both brokers, with a librdkafka consumer as the member."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from command_line import Run
from kafka_reference import BrokerProcess, create_topic

TIMEOUT_S = 30


@pytest.fixture
def written(any_broker: BrokerProcess, topic: str) -> str:
    """A topic of two partitions with ten records each."""
    create_topic(any_broker, topic, partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": any_broker.bootstrap_servers})
    for number in range(20):
        producer.produce(topic, b"%d" % number, partition=number % 2, timestamp=1_700_000_000_000 + number)
    assert producer.flush(TIMEOUT_S) == 0
    return topic


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def member(any_broker: BrokerProcess, written: str, group: str) -> Iterator[confluent_kafka.Consumer]:
    """A consumer that reads the topic alone and has committed (3, 4)."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": any_broker.bootstrap_servers,
            "group.id": group,
            "client.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([written])
    deadline = time.monotonic() + TIMEOUT_S
    while len(consumer.assignment()) < 2:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    offsets = [confluent_kafka.TopicPartition(written, 0, 3), confluent_kafka.TopicPartition(written, 1, 4)]
    consumer.commit(offsets=offsets, asynchronous=False)
    yield consumer
    consumer.close()


def test_a_group_with_a_member_is_shown(on: Run, member: confluent_kafka.Consumer, written: str, group: str) -> None:
    assert group in on("groups", "list").stdout.splitlines()
    (listed,) = [each for each in json.loads(on("groups", "list", "--json").stdout) if each["group"] == group]
    assert (listed["state"], listed["protocolType"]) == ("Stable", "consumer")

    described = on("groups", "describe", group)
    assert (described.code, described.stderr) == (0, "")
    header, first, second = (line.split() for line in described.stdout.splitlines())
    assert " ".join(header) == "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
    assert first[:6] == [group, written, "0", "3", "10", "7"]
    assert second[:6] == [group, written, "1", "4", "10", "6"]
    assert first[7:] == ["/127.0.0.1", "reader"]

    shown = json.loads(on("groups", "members", group, "--json").stdout)
    assert (shown["state"], shown["assignor"]) == ("Stable", "range")
    assert shown["members"][0]["partitions"] == [{"topic": written, "partition": index} for index in (0, 1)]
    assert f"{written}:0,1" in on("groups", "members", group).stdout


def test_a_group_of_the_consumer_protocol_is_shown_reset_and_deleted(
    any_broker: BrokerProcess, on: Run, written: str, group: str
) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": any_broker.bootstrap_servers,
            "group.id": group,
            "group.protocol": "consumer",
            "client.id": "reader",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([written])
    deadline = time.monotonic() + TIMEOUT_S
    while len(consumer.assignment()) < 2:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    offsets = [confluent_kafka.TopicPartition(written, 0, 3, leader_epoch=0)]
    consumer.commit(offsets=offsets, asynchronous=False)

    def lines(*arguments: str) -> list[list[str]]:
        ended = on("groups", *arguments)
        assert ended.code == 0, ended
        return [line.split() for line in ended.stdout.splitlines()]

    header, *listed = lines("list", "--type", "--state")
    assert header == ["GROUP", "TYPE", "STATE"]
    assert [group, "Consumer", "Stable"] in listed
    assert lines("list", "--type")[0] == ["GROUP", "TYPE"]
    header, first, second = lines("describe", group, "--verbose")
    assert header[3] == "LEADER-EPOCH"
    assert (first[:7], second[:7]) == (
        [group, written, "0", "0", "3", "10", "7"],
        [group, written, "1", "-", "-", "10", "-"],
    )
    header, row = lines("members", group, "--verbose")
    columns = "GROUP CONSUMER-ID GROUP-INSTANCE-ID HOST CLIENT-ID #PARTITIONS"
    assert " ".join(header) == f"{columns} CURRENT-EPOCH CURRENT-ASSIGNMENT TARGET-EPOCH TARGET-ASSIGNMENT"
    assert row[2:] == ["-", "/127.0.0.1", "reader", "2", "1", f"{written}:0,1", "1", f"{written}:0,1"]
    header, row = lines("describe", group, "--state", "--verbose")
    assert row == [group, any_broker.bootstrap_servers, "(0)", "uniform", "Stable", "1", "1", "1"]
    (shown,) = json.loads(on("groups", "members", group, "--json").stdout)["members"]
    assert (shown["epoch"], shown["partitions"]) == (1, shown["targetPartitions"])
    assert "has members" in on("groups", "reset-offsets", group, "--to-earliest", "--execute").stderr
    assert "still has members" in on("groups", "delete", group).stderr
    consumer.close()
    assert lines("reset-offsets", group, "--to-latest", "--topic", written, "--execute")[1:] == [
        [group, written, "0", "10"],
        [group, written, "1", "10"],
    ]
    assert on("groups", "delete", group).stdout == f"Deleted group {group}.\n"


def test_a_group_with_members_is_neither_reset_nor_deleted(
    on: Run, member: confluent_kafka.Consumer, group: str
) -> None:
    reset = on("groups", "reset-offsets", group, "--to-earliest", "--execute")
    assert (reset.code, reset.stdout) == (1, "")
    assert "has members" in reset.stderr
    deleted = on("groups", "delete", group)
    assert deleted.code == 1
    assert "still has members" in deleted.stderr


def test_offsets_are_reset(on: Run, member: confluent_kafka.Consumer, written: str, group: str) -> None:
    member.close()

    def offsets() -> list[int]:
        return [row["currentOffset"] for row in json.loads(on("groups", "describe", group, "--json").stdout)]

    def reset(*arguments: str) -> list[int]:
        ended = on("groups", "reset-offsets", group, *arguments, "--json")
        assert ended.code == 0, ended
        return [row["newOffset"] for row in json.loads(ended.stdout)]

    assert reset("--to-earliest") == [0, 0]
    assert reset("--to-earliest", "--dry-run") == [0, 0]
    assert offsets() == [3, 4]
    assert reset("--to-earliest", "--execute") == [0, 0] == offsets()
    assert reset("--to-latest", "--execute") == [10, 10] == offsets()
    assert reset("--shift-by", "-3", "--topic", f"{written}:1", "--execute") == [7]
    assert reset("--to-current") == [10, 7] == offsets()
    assert reset("--to-offset", "99") == [10, 10]
    assert reset("--to-datetime", str(1_700_000_000_000 + 10)) == [5, 5]
    assert reset("--to-datetime", "2026-01-01T00:00:00Z") == [10, 10]
    assert reset("--by-duration", "PT1H") == [10, 10]
    assert reset("--by-duration", "P30000D") == [0, 0]

    assert on("groups", "delete", group).stdout == f"Deleted group {group}.\n"
    assert on("groups", "describe", group).code == 1


def test_offsets_go_into_a_file_and_back(on: Run, written: str, group: str, tmp_path: Path) -> None:
    place = ("groups", "reset-offsets", group)
    assert on(*place, "--topic", written, "--to-offset", "6", "--execute").code == 0
    exported = on(*place, "--to-current", "--export")
    assert (exported.code, exported.stdout) == (0, f"{written},0,6\n{written},1,6\n")
    file = tmp_path / "offsets.csv"
    file.write_text(exported.stdout)
    assert on(*place, "--to-earliest", "--execute").code == 0
    assert on(*place, "--from-file", str(file), "--execute").code == 0
    rows = json.loads(on("groups", "describe", group, "--json").stdout)
    assert [row["currentOffset"] for row in rows] == [6, 6]
    file.write_text(f"{written},0,6\n{written},1\n")
    refused = on(*place, "--from-file", str(file), "--execute")
    assert (refused.code, refused.stdout) == (1, "")
    assert "line 2 is not TOPIC,PARTITION,OFFSET" in refused.stderr
    file.write_text(f"{written},0,6\n{written},0,7\n")
    assert "line 2 names" in on(*place, "--from-file", str(file), "--execute").stderr


def test_committed_offsets_of_a_topic_are_deleted(on: Run, written: str, group: str) -> None:
    assert on("groups", "reset-offsets", group, "--topic", written, "--to-latest", "--execute").code == 0
    deleted = on("groups", "delete-offsets", group, "--topic", f"{written}:0")
    assert (deleted.code, deleted.stdout.split()[-3:]) == (0, [written, "0", "Successful"])
    rows = json.loads(on("groups", "describe", group, "--json").stdout)
    assert [row["partition"] for row in rows] == [1]
    again = on("groups", "delete-offsets", group, "--topic", f"{written}:0")
    assert (again.code, again.stderr) == (1, f"error: group '{group}' has no committed offset of {written}-0\n")


def test_several_groups_and_all_of_them(on: Run, written: str, group: str) -> None:
    names = [group, f"{group}-b"]
    for name in names:
        assert on("groups", "reset-offsets", name, "--topic", f"{written}:0", "--to-latest", "--execute").code == 0
    rows = json.loads(on("groups", "describe", *names, "--json").stdout)
    assert [row["group"] for row in rows] == names
    rows = json.loads(on("groups", "describe", "--all-groups", "--json").stdout)
    assert set(names) <= {row["group"] for row in rows}
    states = json.loads(on("groups", "describe", *names, "--state", "--json").stdout)
    assert [state["group"] for state in states] == names
    assert on("groups", "describe").code == 2
    assert on("groups", "describe", group, "--all-groups").code == 2


def test_a_group_that_is_not_there(on: Run, written: str, group: str) -> None:
    described = on("groups", "describe", group)
    assert (described.code, described.stdout) == (1, "")
    assert group in described.stderr
    assert on("groups", "reset-offsets", group, "--to-latest").code == 1
    made = on("groups", "reset-offsets", group, "--to-latest", "--topic", written, "--execute")
    assert [line.split() for line in made.stdout.splitlines()[1:]] == [[group, written, str(i), "10"] for i in (0, 1)]
    assert "no active members" in on("groups", "describe", group).stderr


def test_wrong_use_is_said(kafkalake: Run, group: str) -> None:
    for arguments in ([], ["--to-earliest", "--to-latest"], ["--to-earliest", "--execute", "--dry-run"]):
        assert kafkalake("groups", "reset-offsets", group, *arguments).code == 2
