"""DeleteTopics (20), versions 1-6: delete topics by name, from 6 on also by id.

- 3: TOPIC_DELETION_DISABLED if `delete.topic.enable` is off (INVALID_REQUEST before). 4: flexible. 5: error messages, and
  THROTTLING_QUOTA_EXCEEDED; before, the client is only delayed (KIP-599). 6: topic ids. A topic named twice, or by name and by id,
  gets INVALID_REQUEST: one answer for all of its names, as in Kafka.
- The topics are deleted together, in one commit. If its turn does not come within the timeout, all get REQUEST_TIMED_OUT.
- Acknowledged when the topic is removed from Delta and no longer served. Its files are deleted after `file.delete.delay.ms`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from itertools import repeat
from uuid import UUID

from kafkalake.broker.partitions.topics import Topic
from kafkalake.clock import Deadline
from kafkalake.errors import (
    InvalidRequestError,
    KafkaError,
    RequestTimedOutError,
    TopicAuthorizationError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    as_value,
)
from kafkalake.server.authorizer import Resource
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic, find_topic_by_id
from kafkalake.wire.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

_WITH_MESSAGE = (UnknownTopicOrPartitionError, UnknownTopicIdError, TopicAuthorizationError)
"""Errors that Kafka answers with its message for the code."""


async def handle(request: Request[DeleteTopicsRequest]) -> DeleteTopicsResponse:
    body, mutations = request.body, request.context.quotas.mutations(request, strict_since=5)
    by_name = [DeleteTopicState(name=name) for name in body.topic_names]
    asked = body.topics if request.version >= 6 else by_name
    deadline = request.deadline(body.timeout)
    times: Counter[tuple[str | None, UUID | None]] = Counter()
    named: set[UUID] = set()
    for each in asked:
        times[each.name, each.topic_id] += 1
        if each.topic_id is None and each.name is not None and request.allows(Resource.TOPIC, each.name):
            topic = request.context.broker.topics.find(each.name)
            named |= set() if topic is None else {topic.topic_id}
        await request.turn()
    twice = {each.topic_id for each in asked if each.name is None and each.topic_id in named}
    found: list[tuple[DeleteTopicState, Topic | None, KafkaError | None]] = []
    answered: set[tuple[str | None, UUID | None]] = set()
    for each in asked:
        key = (each.name, each.topic_id)
        if key not in answered and (each.name is not None or each.topic_id not in twice):
            found.append((each, *_find_deletable(request, each, times, twice, deadline)))
        answered.add(key)
        await request.turn()
    topics = [topic for _, topic, refused in found if topic is not None and refused is None]
    try:
        admin = request.context.broker.topic_admin
        errors = iter(await admin.delete_all(topics, timeout_ms=deadline.left_ms, count=mutations.count))
    except KafkaError as error:
        errors = repeat(as_value(error))
    answers = []
    for state, topic, refused in found:
        answers.append(_result(request, topic or state, refused if topic is None else refused or next(errors)))
        await request.turn()
    return DeleteTopicsResponse(responses=answers, throttle_time=mutations.delay_ms)


def _result(
    request: Request[DeleteTopicsRequest], deleted: Topic | DeleteTopicState, error: KafkaError | None
) -> DeletableTopicResult:
    code, message = (0, None) if error is None else (error.code, request.specific_text(error))
    if isinstance(error, _WITH_MESSAGE):
        message = request.error_text(error)
    return DeletableTopicResult(name=deleted.name, topic_id=deleted.topic_id, error_code=code, error_message=message)


def _find_deletable(
    request: Request[DeleteTopicsRequest],
    asked: DeleteTopicState,
    times: Counter[tuple[str | None, UUID | None]],
    twice: Container[UUID | None],
    deadline: Deadline,
) -> tuple[Topic | None, KafkaError | None]:
    """Return a topic that is to be deleted, if it is known, and why it is not deleted."""
    try:
        if deadline.is_over:
            raise RequestTimedOutError()
        if times[asked.name, asked.topic_id] > 1:
            raise InvalidRequestError("Duplicate topic name." if asked.name is not None else "Duplicate topic id.")
        if not request.context.broker.config.delete_topic_enable:
            raise TopicDeletionDisabledError() if request.version >= 3 else InvalidRequestError()
        topic = _find(request, asked)
    except KafkaError as error:
        return None, as_value(error)
    if topic.topic_id in twice:
        return topic, InvalidRequestError("The provided topic name maps to an ID that was already supplied.")
    return topic, None


def _find(request: Request[DeleteTopicsRequest], asked: DeleteTopicState) -> Topic:
    if asked.topic_id is not None:
        if asked.name is not None:
            raise InvalidRequestError("You may not specify both topic name and topic id.")
        return find_topic_by_id(request, asked.topic_id)
    if asked.name is None:
        raise InvalidRequestError("Neither topic name nor id were specified.")
    return find_topic(request, asked.name)


def refusal(body: DeleteTopicsRequest, code: int, message: str) -> DeleteTopicsResponse:
    """Return the response that refuses all of a request."""
    asked = body.topics or [DeleteTopicState(name=name) for name in body.topic_names]
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=each.name, topic_id=each.topic_id, error_code=code, error_message=message)
            for each in asked
        ]
    )
