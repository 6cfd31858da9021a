"""How many topics clients can create: by asking for their metadata, in a time; and all in all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from contract.test_topics_contract import create, metadata, new_topic
from contract.wire_client import WireClient, code
from kafka_reference import Kafkalake
from manual_clock import ManualClock
from worst_case import MIB, worst_case

from kafkalake.broker.partitions.token_bucket import TokenBucket
from kafkalake.errors import LeaderNotAvailableError, PolicyViolationError

pytestmark = pytest.mark.process

PARTITIONS_MAX = 60
BURST = 22


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafkalake]:
    """A broker with low limits."""
    settings = {"auto.create.topics.partitions.per.second": "2", "max.partitions": str(PARTITIONS_MAX)}
    with Kafkalake(settings=settings) as broker:
        yield broker


def described(client: WireClient) -> int:
    """How many partitions there are."""
    return sum(len(topic.partitions) for topic in client.call("Metadata", 12, topics=None).topics)


def test_many_names_become_few_topics_and_the_others_are_asked_for_again(broker: Kafkalake, client: WireClient) -> None:
    names = [f"auto-{number}" for number in range(300)]
    with worst_case(broker) as cost:
        begin_s = time.monotonic()
        codes = [code(topic.error_code) for topic in metadata(client, *names, may_create=True).topics]
        took_s = time.monotonic() - begin_s
    assert cost.held_ms < 100
    assert cost.peak_bytes < 64 * MIB
    assert set(codes) == {0, LeaderNotAvailableError.code}
    assert BURST <= codes.count(0) <= BURST + 2 * took_s + 1
    deadline = time.monotonic() + 30
    while code(metadata(client, "wanted", may_create=True).topics[0].error_code) != 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_broker_has_a_most_of_partitions(client: WireClient) -> None:
    def add(name: str, count: int) -> Any:
        asked = [{"name": name, "count": count, "assignments": None}]
        return client.call("CreatePartitions", 3, topics=asked, timeout=20_000).results[0]

    left = PARTITIONS_MAX - described(client)
    (refused,) = create(client, new_topic("large", left + 1))
    assert code(refused.error_code) == PolicyViolationError.code
    assert "max.partitions" in refused.error_message
    assert code(create(client, new_topic("large", left + 1), validate_only=True)[0].error_code) == refused.error_code
    assert code(create(client, new_topic("large", left - 1))[0].error_code) == 0
    assert code(add("large", left + 1).error_code) == PolicyViolationError.code
    assert code(add("large", left).error_code) == 0
    assert code(metadata(client, "one-more", may_create=True).topics[0].error_code) == PolicyViolationError.code
    coordinator = client.call("FindCoordinator", 3, key="g", key_type=0)
    assert code(coordinator.error_code) in (0, 15)  # the journal of groups is created all the same
    client.call("DeleteTopics", 6, topics=[{"name": "large", "topic_id": None}], timeout=20_000)
    assert code(create(client, new_topic("other"))[0].error_code) == 0


def test_a_rate_is_an_average_over_eleven_seconds() -> None:
    clock = ManualClock()
    rate = TokenBucket(clock, lambda: 2)
    for _ in range(BURST):
        assert not rate.is_exceeded
        rate.take(1)
    assert rate.is_exceeded
    clock.advance(400)
    assert not rate.is_exceeded
    rate.take(10)  # a large topic is let through whole, and those after it wait
    clock.advance(4_500)
    assert rate.is_exceeded
    clock.advance(200)
    assert not rate.is_exceeded
    clock.advance(3_600_000)
    rate.take(0 if rate.is_exceeded else BURST)
    assert rate.is_exceeded
