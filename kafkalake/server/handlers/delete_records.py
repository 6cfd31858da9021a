"""DeleteRecords (21), versions 0-2: advance the log start offset of partitions. 2: flexible.

Offset -1 stands for the high watermark. When the response is sent, no reader sees the records, and all replicas in sync begin
there, so whoever leads next does too (REQUEST_TIMED_OUT otherwise). Whole segments below the new start are deleted later. The new
start must be durable first, so this is done in a thread, partition by partition.
A topic with `delete.protected` keeps its records: POLICY_VIOLATION, which Kafka has for a cleanup.policy without delete.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from kafkalake.broker.admin.topic_plans import check_not_protected
from kafkalake.broker.partitions.offsets import delete_records, wait_until_deleted
from kafkalake.broker.partitions.partition import Partition
from kafkalake.errors import InvalidTopicError, KafkaError, as_value
from kafkalake.internal_topics import INTERNAL
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic
from kafkalake.wire.messages.records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


class _Deleted(NamedTuple):
    """A partition whose leader begins at `start` now."""

    partition: Partition
    start: int


async def handle(request: Request[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    deadline = request.deadline(request.body.timeout)
    deleted: list[list[_Deleted | KafkaError]] = []
    for topic in request.body.topics:
        deleted.append([])
        for each in topic.partitions:
            deleted[-1].append(await _delete(request, topic.name, each))
            await request.turn()
        await request.turn()
    answers = []
    for topic, of_topic in zip(request.body.topics, deleted, strict=True):
        partitions = []
        for each, found in zip(topic.partitions, of_topic, strict=True):
            outcome = await _wait_for_replicas(request, found, deadline.left_ms)
            partitions.append(_answer(each.partition_index, outcome))
            await request.turn()
        answers.append(DeleteRecordsTopicResult(name=topic.name, partitions=partitions))
        await request.turn()
    return DeleteRecordsResponse(topics=answers)


async def _delete(
    request: Request[DeleteRecordsRequest], name: str, asked: DeleteRecordsPartition
) -> _Deleted | KafkaError:
    """Raise the log start of the leader."""
    broker = request.context.broker
    try:
        topic = find_topic(request, name)
        if name in INTERNAL:
            raise InvalidTopicError(f"records of the internal topic {name} cannot be deleted")
        check_not_protected(topic)
        partition = topic.leader(asked.partition_index)
        start = await partition.change_log(broker.run_blocking, partial(delete_records, partition, asked.offset))
        broker.moved(partition)
    except KafkaError as error:
        return as_value(error)
    return _Deleted(partition, start)


async def _wait_for_replicas(
    request: Request[DeleteRecordsRequest], found: _Deleted | KafkaError, timeout_ms: int
) -> int | KafkaError:
    """Return the log start once the replicas in sync have followed, or the error."""
    if isinstance(found, KafkaError):
        return found
    try:
        return await wait_until_deleted(request.context.broker.purgatory, *found, timeout_ms)
    except KafkaError as error:
        return as_value(error)


def _answer(index: int, outcome: int | KafkaError) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, KafkaError):
        return DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1, error_code=outcome.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=outcome)
