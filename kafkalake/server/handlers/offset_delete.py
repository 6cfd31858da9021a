"""OffsetDelete (47), version 0: delete a group's offsets of some partitions (KIP-496).

Topics that a member is subscribed to get GROUP_SUBSCRIBED_TO_TOPIC. A group whose members are not consumers must be empty.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.groups.offset_requests import PartitionErrors
from kafkalake.errors import KafkaError, TopicAuthorizationError
from kafkalake.server.authorizer import Resource
from kafkalake.server.group_lookup import check_group, code_of
from kafkalake.server.request import Request
from kafkalake.wire.messages.offsets import OffsetDeleteRequest, OffsetDeleteResponse, PartitionResult, TopicResult

_PARTITIONS_A_STEP = 100


def handle(request: Request[OffsetDeleteRequest]) -> Generator[None, None, OffsetDeleteResponse | None]:
    body = request.body
    allowed = {topic.name for topic in body.topics if request.allows(Resource.TOPIC, topic.name)}
    asked = {(topic.name, each.partition_index) for topic in body.topics for each in topic.partitions}
    keys = [key for key in asked if key[0] in allowed]
    results: PartitionErrors = {}

    def deleted(errors: PartitionErrors) -> None:
        results.update(errors)
        if len(results) == len(keys):
            request.work(_answer(request, results))

    try:
        check_group(request, body.group_id)
        for start in range(0, len(keys) or 1, _PARTITIONS_A_STEP):
            some = keys[start : start + _PARTITIONS_A_STEP]
            request.context.broker.groups.offsets.delete(body.group_id, some, request.guarded(deleted))
            yield
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    return None


def _answer(
    request: Request[OffsetDeleteRequest], errors: PartitionErrors
) -> Generator[None, None, OffsetDeleteResponse]:
    answers: list[TopicResult] = []
    for topic in request.body.topics:
        answers.append(TopicResult(name=topic.name, partitions=(partitions := [])))
        for each in topic.partitions:
            error = errors.get((topic.name, each.partition_index), TopicAuthorizationError)
            partitions.append(PartitionResult(partition_index=each.partition_index, error_code=code_of(error)))
            yield
        yield
    return OffsetDeleteResponse(topics=answers)
