"""Versions of the cluster's image, and the look-up of the partitions that this broker leads."""

from __future__ import annotations

from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

import pytest
from leaderships import alone, sole_replica

from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.clock import SystemClock
from kafkalake.cluster.image import NO_LEADER, BrokerRegistration, ClusterImage, Endpoint, PartitionRegistration
from kafkalake.config.layers import Settings
from kafkalake.errors import NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from kafkalake.metadata.registrations import with_topics_of
from kafkalake.metadata.tables.schemas import PartitionRow, TopicRow
from kafkalake.storage.config import LogConfig
from kafkalake.storage.files import REAL_FILES
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles


def registered(host: str, rack: str | None, *, is_fenced: bool = False) -> BrokerRegistration:
    addresses = Endpoint("PLAINTEXT", host, 9092), Endpoint("INTERNAL", host, 9093)
    return BrokerRegistration(0, 1, UUID(int=7), addresses, rack, is_fenced=is_fenced)


def new_topic(name: str) -> Topic:
    return Topic(name, uuid4(), {}, Settings({}, {}, {}).topic({}), 0)


def test_a_lake_without_a_control_table_has_the_replicas_that_delta_names() -> None:
    clicks, views = str(uuid4()), str(uuid4())
    rows = [TopicRow("clicks", clicks, 2, {}, 0), TopicRow("views", views, 1, {}, 0)]
    published = PartitionRow("clicks", clicks, 1, 3, 7, (3, 4), (3,), 0, 10, 10, 10)
    dropped = PartitionRow("gone", str(uuid4()), 0, 5, 7, (5,), (5,), 0, 10, 10, 10)
    image = with_topics_of(ClusterImage("lake"), rows, [published, dropped], 9)
    assert image.version == 1
    assert image.partitions == {
        UUID(clicks): (
            PartitionRegistration(NO_LEADER, -1, (3,), (3,)),
            PartitionRegistration(NO_LEADER, 7, (3,), (3,)),
        ),
        UUID(views): (PartitionRegistration(NO_LEADER, -1, (3,), (3,)),),
    }
    assert with_topics_of(image, rows, [published], 9) is image
    first = with_topics_of(ClusterImage("lake"), rows, [], 9)
    assert {each.replicas for partitions in first.partitions.values() for each in partitions} == {(9,)}


def test_what_an_interrupted_change_left_in_one_table_is_brought_together() -> None:
    kept, created, deleted = str(uuid4()), str(uuid4()), uuid4()
    image = ClusterImage("lake").with_topics({UUID(kept): (sole_replica(2, 5),), deleted: (sole_replica(2, 5),)})
    rows = [TopicRow("kept", kept, 2, {}, 0), TopicRow("created", created, 1, {}, 0)]
    together = with_topics_of(image, rows, [], 0)
    assert together.topics_version == image.topics_version + 1
    assert together.partitions == {UUID(kept): (sole_replica(2, 5),)}, "the controller adds what is right for the topic"
    served = [
        PartitionRow(topic, topic_id, index, 3, 7, (3,), (3,), 0, 10, 10, 10)
        for topic, topic_id, index in (("kept", kept, 1), ("created", created, 0))
    ]
    together = with_topics_of(image, rows, served, 0)  # of a control table that is older than what Delta has
    again = PartitionRegistration(NO_LEADER, 7, (3,), (3,))
    assert together.partitions == {UUID(kept): (sole_replica(2, 5), again), UUID(created): (again,)}


def test_a_change_makes_the_next_version_and_leaves_the_one_before() -> None:
    first = ClusterImage("lake", 0)
    topic_id = uuid4()
    second = first.with_topics({topic_id: (sole_replica(0, 5), sole_replica(0, 6, is_offline=True))})
    third = second.with_broker(registered("a", None)).with_broker(registered("b", "r"))
    last = third.without_topics({topic_id})
    assert [each.version for each in (first, second, third, last)] == [0, 1, 3, 4]
    assert (first.partitions, last.partitions) == ({}, {})
    assert second.partitions == third.partitions
    assert third.brokers == {0: registered("b", "r")}
    assert second.partitions[topic_id] == (
        PartitionRegistration(0, 5, (0,), (0,)),
        PartitionRegistration(NO_LEADER, 6, (0,), (0,), (0,)),
    )


def test_a_fenced_broker_and_one_without_the_listener_are_not_reachable() -> None:
    image = ClusterImage("lake").with_broker(registered("a", None))
    assert [address.port for _, address in image.reachable("INTERNAL")] == [9093]
    assert list(image.reachable("OTHER")) == []
    assert image.address(0, "PLAINTEXT") == Endpoint("PLAINTEXT", "a", 9092)
    assert image.address(1, "PLAINTEXT") is None
    assert list(image.with_broker(registered("a", None, is_fenced=True)).reachable("PLAINTEXT")) == []


def test_a_partition_that_another_broker_leads_is_known_and_not_led_here() -> None:
    topics = Topics(ClusterImage("lake", 0))
    topic = new_topic("clicks")
    replica = cast(Partition, object())
    topic.replicas[0] = replica
    topics.add(topic)
    other = PartitionRegistration(1, 4, (1, 0), (1,))
    topics.apply(topics.image.with_topics({topic.topic_id: (sole_replica(0, 0), other)}))
    assert topics.leader("clicks", 0) is replica
    for index, error in (
        (1, NotLeaderOrFollowerError),
        (2, UnknownTopicOrPartitionError),
        (-1, UnknownTopicOrPartitionError),
    ):
        with pytest.raises(error):
            topics.leader("clicks", index)
    assert [topics.serves("clicks", index) for index in (-1, 0, 1, 2)] == [False, True, True, False]
    with pytest.raises(UnknownTopicOrPartitionError):
        topics.leader("views", 0)


def test_an_older_image_is_not_followed() -> None:
    topics = Topics(ClusterImage("lake", 0))
    before = topics.image
    topics.apply(before.with_broker(registered("a", None)))
    with pytest.raises(AssertionError):
        topics.apply(before)


def test_the_topics_with_a_time_to_flush_are_known(tmp_path: Path) -> None:
    """Without such a topic the periodic flush has nothing to look at, however many partitions there are."""
    clock, files = SystemClock(), REAL_FILES
    topics = Topics(ClusterImage("lake", 0))
    for name in ("b", "a"):
        topic = new_topic(name)
        log = Log.open(tmp_path / name, LogConfig(), clock, files, OpenFiles(files, 16))
        topic.replicas[0] = Partition(topic, 0, log, WireCache(1 << 20).tail(), alone())
        topics.add(topic)
    assert list(topics.flushed_by_time()) == []
    timed = {"flush.ms": 100}
    for topic in topics:
        topics.configure(topic, timed, Settings({}, {}, {}).topic(timed), LogConfig())
    assert [each.name for each in topics.flushed_by_time()] == ["a-0", "b-0"]
    topics.configure(topics.topic("a"), {}, Settings({}, {}, {}).topic({}), LogConfig())
    assert [each.name for each in topics.flushed_by_time()] == ["b-0"]
    topics.remove(topics.topic("b"))
    assert list(topics.flushed_by_time()) == []
