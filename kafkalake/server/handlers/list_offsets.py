"""ListOffsets (2), versions 1-10: an offset for a timestamp, or for one of Kafka's special timestamps.

- -1 latest (the last stable offset under read_committed), -2 earliest, -3 the record with the largest timestamp (version 7),
  -4 earliest local (8), -5 latest tiered (9); a time in milliseconds: the first record at or after it.
- Nothing is tiered here, so -4 is the log start and -5 is unknown, as in Kafka without tiering.
- 4: leader epochs. 6: flexible. 10: a timeout, which only matters with tiering.
- -3 may have to read a segment, so it is answered in a thread.
- A partition requested twice gets INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from kafkalake.broker.partitions.fetched import Isolation
from kafkalake.broker.partitions.offsets import MAX_TIMESTAMP, list_offset
from kafkalake.errors import InvalidRequestError, KafkaError, UnsupportedVersionError
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic
from kafkalake.wire.messages.records import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_LOWEST_VERSION_OF_SPECIAL = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9}


async def handle(request: Request[ListOffsetsRequest]) -> ListOffsetsResponse:
    body = request.body
    isolation = Isolation.READ_COMMITTED if body.isolation_level == 1 else Isolation.READ_UNCOMMITTED
    asked_for = Counter((topic.name, each.partition_index) for topic in body.topics for each in topic.partitions)
    answers: list[ListOffsetsTopicResponse] = []
    for topic in body.topics:
        answers.append(ListOffsetsTopicResponse(name=topic.name, partitions=(partitions := [])))
        for each in topic.partitions:
            twice = asked_for[topic.name, each.partition_index] > 1
            partitions.append(await _partition(request, topic.name, each, isolation, twice=twice))
            await request.turn()
        await request.turn()
    return ListOffsetsResponse(topics=answers)


async def _partition(
    request: Request[ListOffsetsRequest], name: str, asked: ListOffsetsPartition, isolation: Isolation, *, twice: bool
) -> ListOffsetsPartitionResponse:
    try:
        if twice:
            raise InvalidRequestError()
        topic = find_topic(request, name)
        partition = topic.leader(asked.partition_index)
        if asked.timestamp < 0 and request.version < _LOWEST_VERSION_OF_SPECIAL.get(asked.timestamp, 99):
            raise UnsupportedVersionError()
        partition.check_leader_epoch(asked.current_leader_epoch)
        if asked.timestamp == MAX_TIMESTAMP:
            find = partial(list_offset, partition, MAX_TIMESTAMP, isolation)
            found = await request.context.broker.run_blocking(find)
        else:
            found = list_offset(partition, asked.timestamp, isolation)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error.code)
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        timestamp=found.timestamp_ms,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )
