"""DeleteRecords (21), versions 0-2: advance the log start offset of partitions. 2: flexible.

Offset -1 stands for the high watermark. When the response is sent, no reader sees the records, and all replicas in sync begin
there, so whoever leads next does too (REQUEST_TIMED_OUT otherwise). Whole segments below the new start are deleted later. The new
start must be durable first, so this is done in a thread, partition by partition.
A topic with `delete.protected` keeps its records: POLICY_VIOLATION, which Kafka has for a cleanup.policy without delete.
"""

from __future__ import annotations

from kafkalake.broker.admin.topic_plans import check_not_protected
from kafkalake.broker.partitions.offsets import delete_records, wait_until_deleted
from kafkalake.broker.partitions.partition import Partition
from kafkalake.errors import InvalidTopicError, KafkaError
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


async def handle(request: Request[DeleteRecordsRequest]) -> DeleteRecordsResponse:
    answers: list[DeleteRecordsTopicResult] = []
    waiting: list[tuple[DeleteRecordsPartitionResult, Partition]] = []
    for topic in request.body.topics:
        answers.append(DeleteRecordsTopicResult(name=topic.name, partitions=(partitions := [])))
        for each in topic.partitions:
            answer = DeleteRecordsPartitionResult(partition_index=each.partition_index, low_watermark=-1)
            partitions.append(answer)
            try:
                waiting.append((answer, await _delete(request, topic.name, each, answer)))
            except KafkaError as error:
                answer.error_code = error.code
            await request.turn()
        await request.turn()
    await _wait_for_replicas(request, waiting)
    return DeleteRecordsResponse(topics=answers)


async def _delete(
    request: Request[DeleteRecordsRequest],
    name: str,
    asked: DeleteRecordsPartition,
    answer: DeleteRecordsPartitionResult,
) -> Partition:
    """Raise the log start of the leader, which the answer has then."""
    topic = find_topic(request, name)
    if name in INTERNAL:
        raise InvalidTopicError(f"records of the internal topic {name} cannot be deleted")
    check_not_protected(topic)
    partition = topic.leader(asked.partition_index)
    broker = request.context.broker
    answer.low_watermark = await broker.run_blocking(lambda: delete_records(partition, asked.offset))
    broker.moved(partition)
    return partition


async def _wait_for_replicas(
    request: Request[DeleteRecordsRequest], waiting: list[tuple[DeleteRecordsPartitionResult, Partition]]
) -> None:
    """Wait until the replicas in sync have followed, for the request's timeout in all."""
    broker = request.context.broker
    ends_ms = broker.clock.monotonic_ms() + request.body.timeout
    for answer, partition in waiting:
        left_ms = max(ends_ms - broker.clock.monotonic_ms(), 0)
        try:
            answer.low_watermark = await wait_until_deleted(broker.purgatory, partition, answer.low_watermark, left_ms)
        except KafkaError as error:
            answer.error_code, answer.low_watermark = error.code, -1
        await request.turn()
