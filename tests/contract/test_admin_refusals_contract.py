"""What clients are told of topics and settings that are not changed: the code, and the message, or none where Kafka has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from contract.wire_client import WireClient, code, create_topic

NOWHERE = "This server does not host this topic-partition."
NOT_A_NAME = "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
MANUAL = "A manual partition assignment was specified, but"
TOPIC, BROKER_LOGGER = 2, 8
SET, DELETE = 0, 1

Refusal = tuple[str | None, int, str | None]


def refusals(answer: Any) -> list[Refusal]:
    """The answers by name: codes and messages."""
    found: Sequence[Any] = next(
        getattr(answer, field) for field in ("topics", "responses", "results") if hasattr(answer, field)
    )
    return sorted(
        (getattr(each, "name", None) or getattr(each, "resource_name", None), code(each.error_code), each.error_message)
        for each in found
    )


def new(name: str, **values: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [], **values}


@pytest.mark.parametrize(
    ("topics", "timeout", "refused"),
    [
        ([new("a/b"), new("t")], 0, [("a/b", 7, None), ("t", 7, None)]),
        ([new("t")], -1, [("t", 7, None)]),
        ([new("a/b")], 10_000, [("a/b", 17, f"Topic name is invalid: {NOT_A_NAME}")]),
        ([new("t"), new("t")], 10_000, [("t", 42, "Duplicate topic name.")]),
        (
            [new("__cluster_metadata")],
            10_000,
            [("__cluster_metadata", 42, "Creation of internal topic __cluster_metadata is prohibited.")],
        ),
        (
            [new("t", num_partitions=10_001)],
            10_000,
            [("t", 44, "Excessively large number of partitions per request.")],
        ),
        (
            [new("t", assignments=[{"partition_index": 0, "broker_ids": [0]}])],
            10_000,
            [("t", 42, f"{MANUAL} replication factor was not set to -1.")],
        ),
    ],
)
def test_topics_that_are_not_created(
    client: WireClient, topics: list[dict[str, Any]], timeout: int, refused: list[Refusal]
) -> None:
    answer = client.call("CreateTopics", 7, topics=topics, timeout=timeout, validate_only=False)
    assert refusals(answer) == refused


def test_topics_that_are_not_deleted(client: WireClient, topic: str) -> None:
    create_topic(client, topic)

    def delete(*names: str, timeout: int = 10_000) -> list[Refusal]:
        asked = [{"name": name, "topic_id": None} for name in names]
        return refusals(client.call("DeleteTopics", 6, topics=asked, timeout=timeout))

    unknown = f"{topic}-unknown"
    assert delete(topic, unknown, timeout=0) == [(topic, 7, None), (unknown, 7, None)]
    assert delete(topic, topic, unknown) == [(topic, 42, "Duplicate topic name."), (unknown, 3, NOWHERE)]
    by_id = [{"name": None, "topic_id": UUID(int=77)}] * 2
    answer = client.call("DeleteTopics", 6, topics=by_id, timeout=10_000)
    assert refusals(answer) == [(None, 42, "Duplicate topic id.")]
    answer = client.call("DeleteTopics", 5, topic_names=[unknown, unknown], timeout=10_000)
    assert refusals(answer) == [(unknown, 42, "Duplicate topic name.")]


def test_topics_that_do_not_get_more_partitions(client: WireClient, topic: str) -> None:
    create_topic(client, topic)

    def extend(*names: str, timeout: int = 10_000, assigned: int | None = None) -> list[Refusal]:
        assignments = None if assigned is None else [{"broker_ids": [0]}] * assigned
        asked = [{"name": name, "count": 3, "assignments": assignments} for name in names]
        return refusals(client.call("CreatePartitions", 3, topics=asked, timeout=timeout, validate_only=False))

    unknown = f"{topic}-unknown"
    assert extend(topic, unknown, timeout=0) == [(topic, 7, None), (unknown, 7, None)]
    assert extend(unknown) == [(unknown, 3, None)]
    assert extend(topic, topic) == [(topic, 42, "Duplicate topic name.")]
    message = "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."
    assert extend(topic, assigned=1) == [(topic, 39, message)]


def test_settings_that_are_not_changed(client: WireClient, topic: str) -> None:
    create_topic(client, topic)

    def alter(name: str, *configs: tuple[str, str | None], kind: int = TOPIC) -> list[Refusal]:
        changes = [{"name": each, "config_operation": SET, "value": value} for each, value in configs]
        resource = {"resource_type": kind, "resource_name": name, "configs": changes}
        return refusals(client.call("IncrementalAlterConfigs", 1, resources=[resource], validate_only=False))

    unknown = f"{topic}-unknown"
    assert alter(unknown, ("retention.ms", "1")) == [(unknown, 3, f"The topic '{unknown}' does not exist.")]
    assert alter("a/b", ("retention.ms", "1")) == [("a/b", 17, f"Topic name is invalid: {NOT_A_NAME}")]
    nulls = [("retention.ms", None), ("segment.ms", None)]
    assert alter(topic, *nulls) == [(topic, 42, "Null value not supported for : retention.ms, segment.ms")]
    twice = [("retention.ms", "1"), ("retention.ms", "2")]
    assert alter(topic, *twice) == [(topic, 42, "Error due to duplicate config keys")]
    assert alter(topic, ("retention.ms", "1"), kind=3) == [(topic, 42, "Unknown resource type 3")]
    ((_, refused, _),) = alter("99", ("nothing", "INFO"), kind=BROKER_LOGGER)
    assert refused == 42
