"""Creating, changing, describing and deleting topics; the same from kafkalake and Apache Kafka."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from contract.wire_client import WireClient, batch, code, create_topic, encode, fetch, produce

DEFAULT = -1


def new_topic(name: str, partitions: int = 1, replication: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication,
        "assignments": [],
        "configs": [],
        **more,
    }


def create(client: WireClient, *topics: dict[str, Any], version: int = 7, validate_only: bool = False) -> list[Any]:
    answer = client.call("CreateTopics", version, topics=topics, timeout=20_000, validate_only=validate_only)
    return sorted(answer.topics, key=lambda topic: str(topic.name))


def codes(results: list[Any]) -> list[int]:
    return [code(result.error_code) for result in results]


def eventually(find: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    """Apache Kafka acknowledges a change before its broker shows it."""
    deadline = time.monotonic() + 20
    while True:
        found = find()
        if wanted(found) or time.monotonic() > deadline:
            assert wanted(found), found
            return found
        time.sleep(0.01)


def metadata(client: WireClient, *names: str, version: int = 12, may_create: bool = False) -> Any:
    topics = [{"name": name, "topic_id": None} if version >= 10 else {"name": name} for name in names]
    values = {"allow_auto_topic_creation": may_create} if version >= 4 else {}
    return client.call("Metadata", version, topics=topics, **values)


REQUEST_TIMED_OUT = 7


@pytest.mark.parametrize("timeout", [0, -1])
class TestNoTime:
    """A request without any time changes and checks nothing, whatever it asks for."""

    @pytest.mark.parametrize("validate_only", [False, True])
    def test_creations_and_more_partitions(
        self, client: WireClient, topic: str, timeout: int, validate_only: bool
    ) -> None:
        create_topic(client, topic, 1)
        new = [new_topic(topic + "-new"), new_topic(topic), new_topic("bad name")]
        answer = client.call("CreateTopics", 7, topics=new, timeout=timeout, validate_only=validate_only)
        assert codes(answer.topics) == [REQUEST_TIMED_OUT] * 3
        more = [{"name": name, "count": 3, "assignments": None} for name in (topic, "unknown")]
        answer = client.call("CreatePartitions", 3, topics=more, timeout=timeout, validate_only=validate_only)
        assert codes(answer.results) == [REQUEST_TIMED_OUT] * 2
        assert code(metadata(client, topic + "-new").topics[0].error_code) != 0
        assert len(metadata(client, topic).topics[0].partitions) == 1

    def test_deletions(self, client: WireClient, topic: str, timeout: int) -> None:
        create_topic(client, topic, 1)
        gone = [{"name": name, "topic_id": None} for name in (topic, "unknown")]
        answer = client.call("DeleteTopics", 6, topics=gone, timeout=timeout)
        assert codes(answer.responses) == [REQUEST_TIMED_OUT] * 2
        assert code(metadata(client, topic).topics[0].error_code) == 0

    def test_reassignments_and_elections(self, client: WireClient, topic: str, timeout: int) -> None:
        create_topic(client, topic, 1)
        broker_id = metadata(client, topic).topics[0].partitions[0].leader_id
        moved = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": [broker_id]}]}]
        answer = client.call("AlterPartitionReassignments", 1, topics=moved, timeout=timeout)
        assert codes([answer, *answer.responses[0].partitions]) == [REQUEST_TIMED_OUT] * 2
        elected = [{"topic": topic, "partitions": [0]}]
        answer = client.call("ElectLeaders", 2, election_type=0, topic_partitions=elected, timeout=timeout)
        results = answer.replica_election_results[0].partition_result
        assert codes([answer, *results]) == [REQUEST_TIMED_OUT] * 2


class TestCreate:
    @pytest.mark.parametrize("version", range(2, 8))
    def test_every_version_creates(self, client: WireClient, topic: str, version: int) -> None:
        (created,) = create(client, new_topic(topic, 3), version=version)
        assert code(created.error_code) == 0
        found = eventually(lambda: metadata(client, topic).topics[0], lambda found: len(found.partitions) == 3)
        assert sorted(each.partition_index for each in found.partitions) == [0, 1, 2]
        if version >= 5:
            assert (created.num_partitions, created.replication_factor) == (3, 1)
        if version >= 7:
            assert created.topic_id == found.topic_id

    def test_defaults(self, client: WireClient, topic: str) -> None:
        (created,) = create(client, new_topic(topic, DEFAULT, DEFAULT))
        assert (code(created.error_code), created.num_partitions, created.replication_factor) == (0, 1, 1)

    def test_validate_only_creates_nothing(self, client: WireClient, topic: str) -> None:
        (checked,) = create(client, new_topic(topic, 4), validate_only=True)
        assert (code(checked.error_code), checked.num_partitions) == (0, 4)
        assert code(metadata(client, topic).topics[0].error_code) == 3
        assert codes(create(client, new_topic(topic, 4))) == [0]
        assert codes(create(client, new_topic(topic, 4), validate_only=True)) == [36]

    def test_a_name_that_is_taken(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        assert codes(create(client, new_topic(topic))) == [36]

    def test_a_name_twice_in_one_request(self, client: WireClient, topic: str) -> None:
        other = topic + "-other"
        results = create(client, new_topic(topic), new_topic(topic), new_topic(other))
        assert {result.name: code(result.error_code) for result in results} == {topic: 42, other: 0}

    @pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ü", "x" * 250, "a:b"])
    def test_illegal_names(self, client: WireClient, name: str) -> None:
        assert codes(create(client, new_topic(name))) == [17]

    def test_the_longest_name(self, client: WireClient, topic: str) -> None:
        assert codes(create(client, new_topic((topic + "x" * 249)[:249]), validate_only=True)) == [0]

    def test_names_that_differ_in_dot_and_underscore_collide(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic + ".a_b")
        assert codes(create(client, new_topic(topic + "_a.b"))) == [17]

    @pytest.mark.parametrize(
        ("partitions", "replication", "error"), [(0, 1, 37), (-2, 1, 37), (1, 2, 38), (1, 0, 38), (1, -2, 38)]
    )
    def test_numbers_that_cannot_be(
        self, client: WireClient, topic: str, partitions: int, replication: int, error: int
    ) -> None:
        assert codes(create(client, new_topic(topic, partitions, replication))) == [error]

    def test_assignments(self, client: WireClient, topic: str) -> None:
        def assigned(*pairs: tuple[int, list[int]], partitions: int = -1, replication: int = -1) -> list[int]:
            assignments = [{"partition_index": index, "broker_ids": brokers} for index, brokers in pairs]
            return codes(create(client, new_topic(topic, partitions, replication, assignments=assignments)))

        assert assigned((0, [7])) == [39]
        assert assigned((0, [])) == [39]
        assert assigned((0, [0, 0])) == [39]
        assert assigned((0, [0]), (2, [0])) == [39]
        assert assigned((0, [0]), partitions=1) == [42]
        assert assigned((0, [0]), replication=1) == [42]
        assert assigned((0, [0]), (1, [0])) == [0]

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("no.such.setting", "1"),
            ("retention.ms", "abc"),
            ("retention.ms", "-2"),
            ("cleanup.policy", "shred"),
            ("max.message.bytes", "-1"),
            ("min.cleanable.dirty.ratio", "1.5"),
            ("preallocate", "maybe"),
            ("compression.type", "rar"),
            ("retention.ms", None),
        ],
    )
    def test_settings_that_cannot_be(self, client: WireClient, topic: str, name: str, value: str | None) -> None:
        assert codes(create(client, new_topic(topic, configs=[{"name": name, "value": value}]))) == [40]

    def test_settings_are_in_the_answer(self, client: WireClient, topic: str) -> None:
        (created,) = create(client, new_topic(topic, configs=[{"name": "retention.ms", "value": "1000"}]))
        settings = {config.name: (config.value, config.config_source) for config in created.configs}
        assert settings["retention.ms"] == ("1000", 1)
        assert settings["cleanup.policy"] == ("delete", 5)


class TestDelete:
    def delete(self, client: WireClient, *names: str, version: int = 5) -> dict[str, int]:
        if version >= 6:
            values: dict[str, Any] = {"topics": [{"name": name, "topic_id": None} for name in names]}
        else:
            values = {"topic_names": names}
        answer = client.call("DeleteTopics", version, timeout=20_000, **values)
        return {result.name: code(result.error_code) for result in answer.responses}

    @pytest.mark.parametrize("version", range(1, 7))
    def test_every_version_deletes_and_the_name_is_free(self, client: WireClient, topic: str, version: int) -> None:
        first = create_topic(client, topic)
        produce(client, topic, batch([(None, b"old")]))
        assert self.delete(client, topic, version=version) == {topic: 0}
        eventually(lambda: code(metadata(client, topic).topics[0].error_code), lambda error: error == 3)
        second = create_topic(client, topic)
        assert first != second
        assert not fetch(client, topic, 0, max_wait=0).records

    def test_by_id(self, client: WireClient, topic: str) -> None:
        topic_id = create_topic(client, topic)

        def delete(**named: Any) -> Any:
            return client.call("DeleteTopics", 6, topics=[{"name": None, **named}], timeout=20_000).responses[0]

        assert code(delete(topic_id=UUID(int=99)).error_code) == 100
        deleted = delete(topic_id=topic_id)
        assert (code(deleted.error_code), deleted.name) == (0, topic)

    @pytest.mark.parametrize("name_first", [True, False])
    def test_a_topic_that_is_named_by_name_and_by_id(self, client: WireClient, topic: str, name_first: bool) -> None:
        topic_id = create_topic(client, topic)
        by_name, by_id = {"name": topic, "topic_id": None}, {"name": None, "topic_id": topic_id}
        asked = [by_name, by_id] if name_first else [by_id, by_name]
        (refused,) = client.call("DeleteTopics", 6, topics=asked, timeout=20_000).responses
        assert (code(refused.error_code), refused.name, refused.topic_id) == (42, topic, topic_id)
        assert code(metadata(client, topic).topics[0].error_code) == 0

    def test_a_topic_that_is_not_there(self, client: WireClient, topic: str) -> None:
        assert self.delete(client, topic) == {topic: 3}


class TestReassignments:
    @pytest.mark.parametrize("is_good", [(True, False), (False, True), (False, False)])
    def test_each_element_of_a_partition_has_its_result(
        self, client: WireClient, topic: str, is_good: tuple[bool, bool]
    ) -> None:
        create_topic(client, topic)
        here = metadata(client, topic).brokers[0].node_id
        partitions = [{"partition_index": 0, "replicas": [here if each else 77]} for each in is_good]
        asked = [{"name": topic, "partitions": partitions}]
        answer = client.call("AlterPartitionReassignments", 1, timeout=20_000, topics=asked)
        assert codes(answer.responses[0].partitions) == [0 if each else 39 for each in is_good]


class TestPartitions:
    def grow(
        self, client: WireClient, topic: str, count: int, assignments: Any = None, validate_only: bool = False
    ) -> int:
        asked = [{"name": topic, "count": count, "assignments": assignments}]
        answer = client.call("CreatePartitions", 3, topics=asked, timeout=20_000, validate_only=validate_only)
        return code(answer.results[0].error_code)

    def test_more_partitions(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic, 2)
        assert self.grow(client, topic, 5, validate_only=True) == 0
        assert self.grow(client, topic, 4) == 0
        eventually(lambda: len(metadata(client, topic).topics[0].partitions), lambda count: count == 4)

    def test_counts_that_cannot_be(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic, 2)
        assert [self.grow(client, topic, count) for count in (2, 1, 0, -1)] == [37] * 4
        assert self.grow(client, topic + "-other", 3) == 3
        assert self.grow(client, topic, 3, [{"broker_ids": [0]}, {"broker_ids": [0]}]) == 39
        assert self.grow(client, topic, 3, [{"broker_ids": [9]}]) == 39


class TestMetadata:
    @pytest.mark.parametrize("version", range(14))
    def test_every_version_describes_a_topic(self, client: WireClient, topic: str, version: int) -> None:
        create_topic(client, topic, 2)
        answer = metadata(client, topic, version=version)
        found = answer.topics[0]
        assert (found.name, code(found.error_code)) == (topic, 0)
        assert sorted((each.partition_index, each.leader_id) for each in found.partitions) == [(0, 0), (1, 0)]
        assert [broker.node_id for broker in answer.brokers] == [0]

    def test_all_topics_or_none(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        assert topic in {each.name for each in client.call("Metadata", 12, topics=None).topics}
        assert client.call("Metadata", 12, topics=[]).topics == []
        assert topic in {each.name for each in client.call("Metadata", 0, topics=[]).topics}

    def test_unknown_names_and_ids(self, client: WireClient, topic: str) -> None:
        assert code(metadata(client, topic).topics[0].error_code) == 3
        assert code(metadata(client, "a b").topics[0].error_code) == 17
        asked = [{"topic_id": UUID(int=7), "name": None}]
        unknown = client.call("Metadata", 12, topics=asked, allow_auto_topic_creation=False).topics[0]
        assert (code(unknown.error_code), unknown.name) == (100, None)

    def test_by_id(self, client: WireClient, topic: str) -> None:
        topic_id = create_topic(client, topic)
        asked = [{"topic_id": topic_id, "name": None}]
        assert client.call("Metadata", 12, topics=asked, allow_auto_topic_creation=False).topics[0].name == topic

    def test_auto_creation(self, client: WireClient, topic: str) -> None:
        found = eventually(
            lambda: metadata(client, topic, may_create=True).topics[0], lambda found: code(found.error_code) == 0
        )
        assert len(found.partitions) == 1
        assert code(metadata(client, "a b", may_create=True).topics[0].error_code) == 17

    def test_pages_of_partitions(self, client: WireClient, topic: str) -> None:
        names = [f"{topic}-{letter}" for letter in "abc"]
        for name in names:
            create_topic(client, name, 3)
        seen: list[tuple[str, int]] = []
        cursor: Any = None
        for _ in range(10):
            asked = [{"name": name} for name in names]
            answer = client.call("DescribeTopicPartitions", 0, topics=asked, response_partition_limit=2, cursor=cursor)
            page = [(each.name, part.partition_index) for each in answer.topics for part in each.partitions]
            assert len(page) <= 2
            seen += page
            if answer.next_cursor is None:
                break
            cursor = {
                "topic_name": answer.next_cursor.topic_name,
                "partition_index": answer.next_cursor.partition_index,
            }
        assert seen == [(name, index) for name in names for index in range(3)]

    def test_cluster(self, client: WireClient) -> None:
        for version in (0, 1, 2):
            answer = client.call("DescribeCluster", version)
            assert code(answer.error_code) == 0
            assert [broker.broker_id for broker in answer.brokers] == [0]
            assert len(answer.cluster_id) == 22

    def test_the_operations_that_are_allowed(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic)
        cluster = client.call("DescribeCluster", 1, include_cluster_authorized_operations=True, endpoint_type=1)
        asked = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
        answer = client.call("Metadata", 9, topics=[{"name": topic}], allow_auto_topic_creation=False, **asked)
        assert cluster.cluster_authorized_operations == answer.cluster_authorized_operations == 8096
        assert answer.topics[0].topic_authorized_operations == 3576

    def test_log_directories(self, client: WireClient, topic: str) -> None:
        create_topic(client, topic, 2)
        produce(client, topic, batch([(None, b"x" * 1000)]))
        for version in (1, 2, 3, 4):
            asked = [{"topic": topic, "partitions": [0, 1, 9]}]
            answer = client.call("DescribeLogDirs", version, topics=asked)
            (directory,) = answer.results
            sizes = {each.partition_index: each.partition_size for each in directory.topics[0].partitions}
            assert sizes.keys() == {0, 1}
            assert sizes[0] >= 1000


@pytest.mark.parametrize("version", [1, 12])
def test_bytes_after_a_request_are_passed_over(client: WireClient, topic: str, version: int) -> None:
    """librdkafka sends three of them when it asks for all topics in version 13 of Metadata."""
    create_topic(client, topic)
    values: dict[str, Any] = {"topics": None}
    if version >= 4:
        values["allow_auto_topic_creation"] = False
    if version >= 8:
        values["include_topic_authorized_operations"] = False
    frame = encode("Metadata", version, 1, values) + bytes(3)
    client.socket.sendall(struct.pack(">i", len(frame) - 4) + frame[4:])
    assert topic in [each.name for each in client.receive("Metadata", version, 1).topics]
