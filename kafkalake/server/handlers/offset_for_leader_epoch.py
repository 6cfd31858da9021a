"""OffsetForLeaderEpoch (23), versions 2-4: the end offset of a leader epoch, with which a consumer detects truncation (KIP-320).

- 3: replica id. 4: flexible. Returns the largest epoch not above the requested one, and the offset after its last record.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.partitions.offsets import end_of_epoch
from kafkalake.errors import KafkaError
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic
from kafkalake.wire.messages.records import (
    OffsetForLeaderEpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(request: Request[OffsetForLeaderEpochRequest]) -> Generator[None, None, OffsetForLeaderEpochResponse]:
    answers: list[OffsetForLeaderTopicResult] = []
    for topic in request.body.topics:
        answers.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=(partitions := [])))
        for each in topic.partitions:
            partitions.append(_partition(request, topic.topic, each))
            yield
        yield
    return OffsetForLeaderEpochResponse(topics=answers)


def _partition(
    request: Request[OffsetForLeaderEpochRequest], name: str, asked: OffsetForLeaderPartition
) -> OffsetForLeaderEpochEndOffset:
    try:
        topic = find_topic(request, name)
        partition = topic.leader(asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        end = end_of_epoch(partition, asked.leader_epoch)
    except KafkaError as error:
        return OffsetForLeaderEpochEndOffset(partition=asked.partition, error_code=error.code)
    return OffsetForLeaderEpochEndOffset(partition=asked.partition, leader_epoch=end.epoch, end_offset=end.end_offset)
