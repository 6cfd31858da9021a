"""The topics of a request share its timeout, and what waits for the controller ends with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from contract.wire_client import WireClient, create_topic
from node_in_thread import NodeInThread

from kafkalake.errors import RequestTimedOutError, UnknownTopicOrPartitionError

pytestmark = pytest.mark.process

TOPICS = [f"topic-{number}" for number in range(20)]
TIMEOUT_MS = 500
"""Of a request. For each of its topics it would be ten seconds."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInThread]:
    lake: Path = tmp_path_factory.mktemp("shared") / "lake"
    with NodeInThread(lake) as broker, WireClient(broker.servers) as client:
        for name in TOPICS:
            create_topic(client, name)
        yield broker


@contextmanager
def held(broker: NodeInThread, lock: asyncio.Lock) -> Iterator[None]:
    """Keep changes waiting, as one whose commit takes long does."""
    asyncio.run_coroutine_threadsafe(lock.acquire(), broker.loop).result(10)
    try:
        yield
    finally:
        broker.on_loop(lock.release)


CHANGES: dict[str, tuple[int, dict[str, Any], str]] = {
    "DeleteTopics": (6, {"topics": [{"name": name, "topic_id": None} for name in TOPICS]}, "responses"),
    "CreatePartitions": (
        3,
        {"topics": [{"name": name, "count": 2, "assignments": None} for name in TOPICS], "validate_only": False},
        "results",
    ),
}


@pytest.mark.parametrize("api", CHANGES)
def test_the_topics_of_a_request_share_its_timeout(broker: NodeInThread, api: str) -> None:
    version, asked, results = CHANGES[api]
    with held(broker, broker.broker.topic_admin._changes._lock), WireClient(broker.servers) as client:
        began_s = time.monotonic()
        answer = client.call(api, version, timeout=TIMEOUT_MS, **asked)
        took_s = time.monotonic() - began_s
    assert {each.error_code for each in getattr(answer, results)} == {RequestTimedOutError.code}
    assert took_s < len(TOPICS) * TIMEOUT_MS / 1000 / 2
    served = {topic.name: len(topic.registrations) for topic in broker.broker.topics}
    assert {name: served[name] for name in TOPICS} == dict.fromkeys(TOPICS, 1)


def test_a_reassignment_waits_as_long_as_it_asked_to(broker: NodeInThread) -> None:
    partitions = [{"partition_index": 0, "replicas": [broker.broker.broker_id]}]
    version = broker.broker.cluster.version
    with held(broker, broker.broker.controller._lock), WireClient(broker.servers, timeout_s=10) as client:
        topics = [{"name": TOPICS[0], "partitions": partitions}]
        answer = client.call("AlterPartitionReassignments", 1, topics=topics, timeout=TIMEOUT_MS)
    assert answer.error_code == RequestTimedOutError.code
    assert [each.error_code for each in answer.responses[0].partitions] == [RequestTimedOutError.code]
    assert broker.broker.cluster.version == version


def test_the_topics_of_a_request_are_changed_together(broker: NodeInThread) -> None:
    """In one version of the cluster, however many they are. Those that are refused take no others with them."""
    image = broker.broker.cluster
    with WireClient(broker.servers) as client:
        version, asked, results = CHANGES["CreatePartitions"]
        wanted = [{"name": "none", "count": 2, "assignments": None}, *asked["topics"]]
        answer = client.call("CreatePartitions", version, timeout=60_000, validate_only=False, topics=wanted)
        assert [each.error_code for each in getattr(answer, results)] == [UnknownTopicOrPartitionError.code, *[0] * 20]
        assert {len(broker.broker.topics.topic(name).registrations) for name in TOPICS} == {2}
        grown = broker.broker.cluster
        assert grown.topics_version == image.topics_version + 1
        version, asked, results = CHANGES["DeleteTopics"]
        deleted = [{"name": "none", "topic_id": None}, *asked["topics"]]
        answer = client.call("DeleteTopics", version, timeout=60_000, topics=deleted)
    assert [each.error_code for each in getattr(answer, results)] == [UnknownTopicOrPartitionError.code, *[0] * 20]
    assert not any(name in broker.broker.topics for name in TOPICS)
    assert broker.broker.cluster.topics_version == grown.topics_version + 1
