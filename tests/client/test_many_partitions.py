"""Administration of more partitions than a request may name, and what checking them costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from client.test_administration_calls import Simulated

from kafkalake.client.administration import group_offsets, partition_offsets
from kafkalake.client.administration.partition_offsets import LATEST
from kafkalake.client.checked_call import checked
from kafkalake.client.requests import DELETE_RECORDS, FIND_COORDINATOR, LIST_OFFSETS, OFFSET_DELETE
from kafkalake.wire.messages.groups import FindCoordinatorResponse
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.offsets import OffsetDeleteResponse, PartitionResult, TopicResult
from kafkalake.wire.messages.reading import ELEMENTS_MAX
from kafkalake.wire.messages.records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

MANY = ELEMENTS_MAX + 1
PLACES = [("clicks", number) for number in range(MANY)]


def listed(name: str, numbers: list[int]) -> Message:
    found = [ListOffsetsPartitionResponse(partition_index=each, offset=each) for each in numbers]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=name, partitions=found)])


def deleted(name: str, numbers: list[int]) -> Message:
    found = [DeleteRecordsPartitionResult(partition_index=each, low_watermark=each) for each in numbers]
    return DeleteRecordsResponse(topics=[DeleteRecordsTopicResult(name=name, partitions=found)])


def forgotten(name: str, numbers: list[int]) -> Message:
    found = [PartitionResult(partition_index=each) for each in numbers]
    return OffsetDeleteResponse(topics=[TopicResult(name=name, partitions=found)])


@pytest.mark.parametrize(
    ("api", "answer", "operation", "arguments"),
    [
        (LIST_OFFSETS, listed, partition_offsets.list_offsets, [dict.fromkeys(PLACES, LATEST)]),
        (DELETE_RECORDS, deleted, partition_offsets.delete_records, [dict.fromkeys(PLACES, 5)]),
        (OFFSET_DELETE, forgotten, group_offsets.delete_offsets, ["g", PLACES]),
    ],
)
def test_more_partitions_than_a_request_may_name_are_asked_for_in_several(
    api: Any, answer: Callable[[str, list[int]], Message], operation: Any, arguments: list[Any]
) -> None:
    admin = Simulated()
    admin.topics.leaders["clicks"] = [each % 2 for each in range(MANY)]
    seen: list[list[int]] = []

    def respond(request: Any) -> Message:
        (topic,) = request.topics
        seen.append([each.partition_index for each in topic.partitions])
        return answer(topic.name, seen[-1])

    for broker in admin.brokers:
        broker.handlers[api] = respond
        broker.handlers[FIND_COORDINATOR] = lambda _: FindCoordinatorResponse(node_id=0)
    found = admin.run(operation, *arguments)
    assert sorted(number for numbers in seen for number in numbers) == list(range(MANY))
    assert max(map(len, seen)) < ELEMENTS_MAX // 2
    if operation is partition_offsets.list_offsets:
        assert [found[place].offset for place in PLACES] == list(range(MANY))


def test_the_partitions_of_a_call_are_checked_without_a_text_for_each() -> None:
    operation = checked(partition_offsets.list_offsets)
    times = {("clicks", number): LATEST for number in range(20_000)}
    admin = Simulated()

    def cost_s(work: Callable[[], object]) -> float:
        began_s = time.process_time()
        work()
        return time.process_time() - began_s

    alone_s = min(cost_s(lambda: {each: repr(each) for each in times}) for _ in range(3))
    assert min(cost_s(lambda: operation(admin.core.begin(), times)) for _ in range(3)) < 12 * alone_s
