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
from typing import Any

from kafkalake.broker.partitions.fetch import Isolation
from kafkalake.broker.partitions.offsets import MAX_TIMESTAMP, list_offset
from kafkalake.errors import InvalidRequestError, KafkaError, UnsupportedVersionError
from kafkalake.server.authorizer import Operation
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic

_LOWEST_VERSION_OF_SPECIAL = {-1: 1, -2: 1, -3: 7, -4: 8, -5: 9}


async def handle(request: Request) -> dict[str, Any]:
    body = request.body
    isolation = Isolation.READ_COMMITTED if getattr(body, "isolation_level", 0) == 1 else Isolation.READ_UNCOMMITTED
    asked_for = Counter((topic.name, each.partition_index) for topic in body.topics for each in topic.partitions)
    answers: list[dict[str, Any]] = []
    for topic in body.topics:
        answers.append({"name": topic.name, "partitions": (partitions := [])})
        for each in topic.partitions:
            twice = asked_for[topic.name, each.partition_index] > 1
            partitions.append(await _partition(request, topic.name, each, isolation, twice=twice))
            await request.turn()
        await request.turn()
    return {"topics": answers}


async def _partition(request: Request, name: str, asked: Any, isolation: Isolation, *, twice: bool) -> dict[str, Any]:
    answer = {
        "partition_index": asked.partition_index,
        "error_code": 0,
        "timestamp": -1,
        "offset": -1,
        "leader_epoch": -1,
    }
    try:
        if twice:
            raise InvalidRequestError()
        topic = find_topic(request, Operation.DESCRIBE, name)
        partition = topic.leader(asked.partition_index)
        if asked.timestamp < 0 and request.version < _LOWEST_VERSION_OF_SPECIAL.get(asked.timestamp, 99):
            raise UnsupportedVersionError()
        partition.check_leader_epoch(getattr(asked, "current_leader_epoch", -1))
        if asked.timestamp == MAX_TIMESTAMP:
            find = partial(list_offset, partition, MAX_TIMESTAMP, isolation)
            found = await request.context.broker.run_blocking(find)
        else:
            found = list_offset(partition, asked.timestamp, isolation)
    except KafkaError as error:
        answer["error_code"] = error.code
        return answer
    if found is not None:
        answer.update(timestamp=found.timestamp_ms, offset=found.offset, leader_epoch=found.leader_epoch)
    return answer
