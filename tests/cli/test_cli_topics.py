"""`kafkalake topics` and `brokers` against both brokers; what is printed is what Kafka's own tools print."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest
from benchmarks.kafka_tools import run_tool
from command_line import Ended, Run
from kafka_reference import BrokerProcess


def eventually(run: Callable[[], Ended], condition: Callable[[Ended], bool], timeout_s: float = 15) -> Ended:
    """Apache Kafka's metadata follows its controller after a moment."""
    deadline = time.monotonic() + timeout_s
    while not condition(ended := run()):
        assert time.monotonic() < deadline, ended
    return ended


def kafka_topics(broker: BrokerProcess, *arguments: str) -> list[str]:
    """What Apache Kafka's own `kafka-topics` prints."""
    said = run_tool(
        "org.apache.kafka.tools.TopicCommand", ["--bootstrap-server", broker.bootstrap_servers, *arguments], 60
    )
    return [line for line in said.splitlines() if not line.startswith("SLF4J")]


def test_a_topic_from_creation_to_deletion(on: Run, topic: str) -> None:
    created = on("topics", "create", topic, "--partitions", "2", "--config", "retention.ms=123456")
    assert (created.code, created.stdout, created.stderr) == (0, f"Created topic {topic}.\n", "")
    listed = eventually(lambda: on("topics", "list"), lambda ended: topic in ended.stdout.splitlines())
    assert listed.code == 0

    altered = on("topics", "alter", topic, "-p", "4", "-c", "max.message.bytes=2000", "--delete-config", "retention.ms")
    assert (altered.code, altered.stderr) == (0, "")
    assert altered.stdout == f"Completed updating config for topic {topic}.\nTopic {topic} has 4 partitions now.\n"
    (described,) = json.loads(
        eventually(
            lambda: on("topics", "describe", topic, "--json"),
            lambda ended: json.loads(ended.stdout)[0]["partitionCount"] == 4,
        ).stdout
    )
    assert described["configs"]["max.message.bytes"] == "2000"
    assert "retention.ms" not in described["configs"]
    assert described["partitions"][3] == {
        "partition": 3,
        "leader": 0,
        "leaderEpoch": 0,
        "replicas": [0],
        "isr": [0],
        "elr": [],
        "lastKnownElr": [],
    }

    offsets = on("topics", "offsets", topic)
    assert offsets.stdout == "".join(f"{topic}:{partition}:0\n" for partition in range(4))

    deleted = on("topics", "delete", topic)
    assert (deleted.code, deleted.stdout) == (0, f"Deleted topic {topic}.\n")
    eventually(lambda: on("topics", "list"), lambda ended: topic not in ended.stdout.splitlines())
    assert on("topics", "delete", topic, "--if-exists").code == 0
    assert on("topics", "delete", topic).code == 1


def test_a_topic_that_is_not_there_is_an_error_in_the_json_of_its_deletion_and_nothing_is_deleted(
    on: Run, topic: str
) -> None:
    assert on("topics", "create", topic).code == 0
    ended = on("topics", "delete", topic, f"{topic}-none", "--json")
    said = f"topic '{topic}-none' does not exist"
    assert (ended.code, json.loads(ended.stdout)["deleted"]) == (1, [])
    assert said in json.loads(ended.stdout)["errors"][f"{topic}-none"]
    assert said in ended.stderr
    ended = on("topics", "delete", topic, f"{topic}-none", "--if-exists", "--json")
    assert (ended.code, json.loads(ended.stdout)) == (0, {"deleted": [topic], "errors": {}})


def test_describe_prints_what_kafka_topics_prints(on: Run, any_broker: BrokerProcess, topic: str) -> None:
    assert on("topics", "create", topic, "-p", "3", "-c", "retention.ms=99", "-c", "cleanup.policy=compact").code == 0
    ours = eventually(lambda: on("topics", "describe", topic), lambda ended: ended.code == 0).stdout.splitlines()
    theirs = kafka_topics(any_broker, "--describe", "--topic", topic)

    def comparable(lines: list[str]) -> list[str]:
        """Settings in order of their names."""
        return [
            re.sub(r"(?<=Configs: ).*", lambda found: ",".join(sorted(found[0].split(","))), line) for line in lines
        ]

    assert comparable(ours) == comparable(theirs)
    assert any("cleanup.policy=compact" in line and "retention.ms=99" in line for line in ours)


def test_kafka_topics_sees_what_ours_created(on: Run, any_broker: BrokerProcess, topic: str) -> None:
    assert on("topics", "create", topic).code == 0
    assert topic in kafka_topics(any_broker, "--list")


def test_json_of_creation_and_list(on: Run, topic: str) -> None:
    created = json.loads(on("topics", "create", topic, "-p", "2", "--json").stdout)
    assert created == {
        "topic": topic,
        "topicId": created["topicId"],
        "partitionCount": 2,
        "replicationFactor": 1,
        "configs": {},
    }
    assert re.fullmatch(r"[\w-]{22}", created["topicId"])
    ended = eventually(lambda: on("topics", "list", "--json"), lambda ended: topic in ended.stdout)
    (listed,) = [found for found in json.loads(ended.stdout) if found["topic"] == topic]
    assert listed == {key: created[key] for key in created if key != "configs"} | {"internal": False}


def test_what_exists_is_an_error_unless_that_is_fine(on: Run, topic: str) -> None:
    assert on("topics", "create", topic).code == 0
    eventually(lambda: on("topics", "describe", topic), lambda ended: ended.code == 0)
    again = on("topics", "create", topic)
    assert (again.code, again.stdout) == (1, "")
    assert again.stderr.startswith("error: ") and topic in again.stderr and "already exists" in again.stderr
    assert on("topics", "create", topic, "--if-not-exists").stdout == f"Topic {topic} exists already.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "t", "-c", "retentionms=5"), "did you mean 'retention.ms'"),
        (("create", "t", "-c", "retention.ms=soon"), "retention.ms"),
        (("create", "two words"), "two words"),
        (("create", "t", "--replication-factor", "7"), "replication factor"),
        (("alter", "no-such-topic-here", "-p", "3"), "topic 'no-such-topic-here' does not exist"),
        (
            ("alter", "no-such-topic-here", "--delete-config", "retention.ms"),
            "topic 'no-such-topic-here' does not exist",
        ),
        (("describe", "no-such-topic-here"), "topic 'no-such-topic-here' does not exist"),
        (("offsets", "no-such-topic-here"), "topic 'no-such-topic-here' does not exist"),
        (("delete-records", "no-such-topic-here", "--before-offset", "3"), "does not exist"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_done_is_one_sentence_and_code_1(on: Run, arguments: tuple[str, ...], said: str) -> None:
    ended = on("topics", *arguments)
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: ")
    assert said.lower() in ended.stderr.lower()
    assert len(ended.stderr.splitlines()) <= 2


def test_partitions_cannot_become_fewer(on: Run, topic: str) -> None:
    assert on("topics", "create", topic, "-p", "3").code == 0
    eventually(lambda: on("topics", "describe", topic), lambda ended: ended.code == 0)
    ended = on("topics", "alter", topic, "-p", "2")
    assert ended.code == 1
    assert "error: " in ended.stderr


def test_offsets_by_time_and_deleted_records(on: Run, topic: str) -> None:
    assert on("topics", "create", topic).code == 0
    lines = "".join(json.dumps({"value": str(at), "timestamp": at * 1000}) + "\n" for at in range(1, 6))
    assert on("produce", topic, "-f", "records", stdin=lines).code == 0
    assert on("topics", "offsets", topic, "--time", "latest").stdout == f"{topic}:0:5\n"
    assert on("topics", "offsets", topic, "--time", "3000").stdout == f"{topic}:0:2\n"
    assert on("topics", "offsets", topic, "--time", "1970-01-01T00:00:04.500Z").stdout == f"{topic}:0:4\n"
    assert on("topics", "offsets", topic, "--time", "1h").stdout == f"{topic}:0:\n"
    (newest,) = json.loads(on("topics", "offsets", topic, "--time", "max-timestamp", "--json").stdout)
    assert newest == {"topic": topic, "partition": 0, "offset": 4, "timestamp": 5000}
    deleted = on("topics", "delete-records", topic, "--before-offset", "2")
    assert deleted.stdout == f"partition: {topic}-0\tlow_watermark: 2\n"
    assert on("topics", "offsets", topic, "--time", "earliest").stdout == f"{topic}:0:2\n"


def test_records_are_deleted_where_the_offset_is_and_the_other_partitions_are_named(on: Run, topic: str) -> None:
    assert on("topics", "create", topic, "-p", "3").code == 0
    assert on("produce", topic, "-p", "1", stdin="a\nb\nc\n").code == 0
    ended = on("topics", "delete-records", topic, "--before-offset", "2")
    assert (ended.code, ended.stdout) == (1, f"partition: {topic}-1\tlow_watermark: 2\n")
    assert ended.stderr.startswith(f"error: 2 partitions end before offset 2, the first: {topic}-0, at 0\n")
    ended = on("topics", "delete-records", topic, "--before-offset", "9", "--partition", "1", "--json")
    assert (ended.code, ended.stdout) == (1, "[]\n")
    assert ended.stderr.startswith(f"error: partition {topic}-1 ends before offset 9, at 3\n")


def test_only_a_setting_of_a_topic_is_returned_to_its_default(on: Run, topic: str) -> None:
    assert on("topics", "create", topic).code == 0
    eventually(lambda: on("topics", "describe", topic), lambda ended: ended.code == 0)
    ended = on("topics", "alter", topic, "--delete-config", "retention.mss", "-p", "3")
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr.startswith(
        f"error: topic '{topic}' has no setting 'retention.mss'\n'retention.mss': did you mean 'ret"
    )
    assert on("topics", "offsets", topic).stdout.count("\n") == 1


def test_the_brokers_of_the_cluster(on: Run, any_broker: BrokerProcess) -> None:
    listed = on("brokers", "list")
    assert listed.stdout.splitlines() == [
        "Id\tHost\tPort\tRack\tState\tController",
        f"0\t127.0.0.1\t{any_broker.port}\t\tunfenced\tyes",
    ]
    described = json.loads(on("brokers", "list", "--json").stdout)
    node = {"id": 0, "host": "127.0.0.1", "port": any_broker.port, "rack": None, "fenced": False}
    assert described["brokers"] == [node]
    assert described["controllerId"] == 0


def test_brokers_are_described_with_what_they_have(on: Run, any_broker: BrokerProcess, topic: str) -> None:
    assert on("topics", "create", topic, "-p", "3").code == 0
    eventually(lambda: on("topics", "describe", topic), lambda ended: ended.code == 0)
    (described,) = json.loads(on("brokers", "describe", "0", "--json").stdout)
    assert (described["id"], described["controller"], described["fenced"]) == (0, True, False)
    assert described["leaders"] == described["replicas"] >= 3
    assert described["outOfSync"] == 0
    assert described["configs"]["node.id"] == "0" and "num.io.threads" not in described["configs"]
    (line,) = on("brokers", "describe").stdout.splitlines()
    assert line.startswith(
        f"Broker: 0\tAddress: 127.0.0.1:{any_broker.port}\tRack: \tState: unfenced\tController: yes\t"
    )
    unknown = on("brokers", "describe", "7")
    assert (unknown.code, unknown.stderr) == (1, "error: no broker 7 is registered; there are 0\n")
    unregistered = on("brokers", "unregister", "7")
    assert unregistered.code == 1 and "7 is not" in unregistered.stderr


def test_a_pattern_is_no_name(on: Run) -> None:
    ended = on("topics", "delete", "cli*")
    assert (ended.code, ended.stdout) == (1, "")
    assert ended.stderr == "error: 'cli*' is not a topic's name: those are letters, digits, '.', '_' and '-'\n"
