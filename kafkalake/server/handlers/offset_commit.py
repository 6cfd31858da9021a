"""OffsetCommit (8), versions 2-9: commit offsets of a group, answered when they are durable in the journal.

- 2-4: retention time (-1: the broker's setting). 6: leader epochs. 7: `group_instance_id`. 8: flexible.
- 9: GROUP_ID_NOT_FOUND if a member's group does not exist, ILLEGAL_GENERATION before. Members of the consumer protocol
  send their epoch as generation; before, they get UNSUPPORTED_VERSION (KIP-848).
- A partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION, and the others are committed.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.groups.offset_requests import CommitRequest, OffsetToCommit, PartitionErrors
from kafkalake.errors import (
    GroupIdNotFoundError,
    IllegalGenerationError,
    KafkaError,
    UnknownTopicOrPartitionError,
    as_value,
)
from kafkalake.server.group_lookup import check_group
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic
from kafkalake.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    PartitionResult,
    TopicResult,
)

_GROUP_NOT_FOUND_VERSION = 9
_MEMBER_EPOCH_VERSION = 9


def handle(request: Request[OffsetCommitRequest]) -> Generator[None, None, None]:
    body = request.body
    refused: dict[int, KafkaError] = {}
    names: dict[int, str] = {}
    offsets: list[OffsetToCommit] = []
    try:
        check_group(request, body.group_id)
    except KafkaError as error:
        request.work(_answer(request, dict.fromkeys(range(len(body.topics)), as_value(error)), names, {}))
        return
    for index, topic in enumerate(body.topics):
        try:
            names[index] = _name_of(request, topic)
        except KafkaError as error:
            refused[index] = as_value(error)
            continue
        for each in topic.partitions:
            offsets.append(
                OffsetToCommit(
                    names[index],
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata or "",
                )
            )
            yield
    commit = CommitRequest(
        group_id=body.group_id,
        offsets=offsets,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        generation_id=body.generation_id_or_member_epoch,
        retention_ms=body.retention_time,
        knows_member_epochs=request.version >= _MEMBER_EPOCH_VERSION,
    )
    reply = request.guarded(lambda errors: request.work(_answer(request, refused, names, errors)))
    request.context.broker.groups.offsets.commit(commit, reply)


def _name_of(request: Request[OffsetCommitRequest], topic: OffsetCommitRequestTopic) -> str:
    try:
        return find_topic(request, topic.name).name
    except UnknownTopicOrPartitionError:
        return str(topic.name)  # the commit returns this error for each partition


def _answer(
    request: Request[OffsetCommitRequest],
    refused: dict[int, KafkaError],
    names: dict[int, str],
    errors: PartitionErrors,
) -> Generator[None, None, OffsetCommitResponse]:
    answers: list[TopicResult] = []
    for index, topic in enumerate(request.body.topics):
        answers.append(TopicResult(name=topic.name, partitions=(partitions := [])))
        for each in topic.partitions:
            key = (names.get(index, ""), each.partition_index)
            code = refused[index].code if index in refused else _code(request, errors[key])
            partitions.append(PartitionResult(partition_index=each.partition_index, error_code=code))
            yield
        yield
    return OffsetCommitResponse(topics=answers)


def _code(request: Request[OffsetCommitRequest], error: ErrorClass | None) -> int:
    if error is GroupIdNotFoundError and request.version < _GROUP_NOT_FOUND_VERSION:
        return IllegalGenerationError.code
    return 0 if error is None else error.code
