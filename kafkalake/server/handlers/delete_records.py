"""DeleteRecords (21), versions 0-2: advance the log start offset of partitions. 2: flexible.

Offset -1 stands for the high watermark. When the response is sent, no reader sees the records. Whole segments below the new
start are deleted later. The new start must be durable first, so this is done in a thread, partition by partition.
A topic with `delete.protected` keeps its records: POLICY_VIOLATION, which Kafka has for a cleanup.policy without delete.
"""

from __future__ import annotations

from kafkalake.broker.admin.topic_plans import check_not_protected
from kafkalake.broker.partitions.offsets import delete_records
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
    for topic in request.body.topics:
        answers.append(DeleteRecordsTopicResult(name=topic.name, partitions=(partitions := [])))
        for each in topic.partitions:
            partitions.append(await _partition(request, topic.name, each))
            await request.turn()
        await request.turn()
    return DeleteRecordsResponse(topics=answers)


async def _partition(
    request: Request[DeleteRecordsRequest], name: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    code, low_watermark = 0, -1
    try:
        topic = find_topic(request, name)
        if name in INTERNAL:
            raise InvalidTopicError(f"records of the internal topic {name} cannot be deleted")
        check_not_protected(topic)
        partition = topic.leader(asked.partition_index)
        broker = request.context.broker
        low_watermark = await broker.run_blocking(lambda: delete_records(partition, asked.offset))
        broker.moved(partition)
    except KafkaError as error:
        code = error.code
    return DeleteRecordsPartitionResult(
        partition_index=asked.partition_index, low_watermark=low_watermark, error_code=code
    )
