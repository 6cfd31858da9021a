"""OffsetForLeaderEpoch (23), versions 2-4: the end offset of a leader epoch, with which a consumer detects truncation (KIP-320).

- 3: replica id. 4: flexible. Returns the largest epoch not above the requested one, and the offset after its last record.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kafkalake.broker.partitions.offsets import end_of_epoch
from kafkalake.errors import KafkaError
from kafkalake.server.authorizer import Operation
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic


def handle(request: Request) -> Generator[None, None, dict[str, Any]]:
    answers: list[dict[str, Any]] = []
    for topic in request.body.topics:
        answers.append({"topic": topic.topic, "partitions": (partitions := [])})
        for each in topic.partitions:
            partitions.append(_partition(request, topic.topic, each))
            yield
        yield
    return {"topics": answers}


def _partition(request: Request, name: str, asked: Any) -> dict[str, Any]:
    answer = {"error_code": 0, "partition": asked.partition, "leader_epoch": -1, "end_offset": -1}
    try:
        topic = find_topic(request, Operation.DESCRIBE, name)
        partition = topic.leader(asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
        end = end_of_epoch(partition, asked.leader_epoch)
    except KafkaError as error:
        answer["error_code"] = error.code
        return answer
    answer.update(leader_epoch=end.epoch, end_offset=end.end_offset)
    return answer
