"""DeleteTopics (20), versions 1-6: delete topics by name, from 6 on also by id.

- 3: TOPIC_DELETION_DISABLED if `delete.topic.enable` is off (INVALID_REQUEST before). 4: flexible. 5: error messages, and
  THROTTLING_QUOTA_EXCEEDED; before, the client is only delayed (KIP-599). 6: topic ids. A topic named twice, or by name and by id,
  gets INVALID_REQUEST: in the second case one answer for both, as in Kafka.
- The topics share the timeout; those whose turn does not come within it are not deleted, and get REQUEST_TIMED_OUT.
- Acknowledged when the topic is removed from Delta and no longer served. Its files are deleted after `file.delete.delay.ms`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from uuid import UUID

from kafkalake.broker.partitions.topics import Topic
from kafkalake.clock import Deadline
from kafkalake.errors import InvalidRequestError, KafkaError, RequestTimedOutError, TopicDeletionDisabledError
from kafkalake.server.authorizer import Resource
from kafkalake.server.request import Request
from kafkalake.server.throttling import Mutations
from kafkalake.server.topic_lookup import find_topic, find_topic_by_id
from kafkalake.wire.messages.topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


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
    answers = []
    for each in asked:
        if each.name is not None or each.topic_id not in twice:
            answers.append(await _delete(request, each, times, twice, mutations, deadline))
        await request.turn()
    return DeleteTopicsResponse(responses=answers, throttle_time=mutations.delay_ms)


async def _delete(
    request: Request[DeleteTopicsRequest],
    asked: DeleteTopicState,
    times: Counter[tuple[str | None, UUID | None]],
    twice: Container[UUID | None],
    mutations: Mutations,
    deadline: Deadline,
) -> DeletableTopicResult:
    name, topic_id, code, message = asked.name, asked.topic_id, 0, None
    try:
        if deadline.is_over:
            raise RequestTimedOutError()
        if times[name, topic_id] > 1:
            raise InvalidRequestError("Duplicate topic name." if name is not None else "Duplicate topic id.")
        if not request.context.broker.config.delete_topic_enable:
            raise TopicDeletionDisabledError() if request.version >= 3 else InvalidRequestError()
        topic = _find(request, asked)
        name, topic_id = topic.name, topic.topic_id
        if topic_id in twice:
            raise InvalidRequestError("The provided topic name maps to an ID that was already supplied.")
        await request.context.broker.topic_admin.delete(topic, timeout_ms=deadline.left_ms, count=mutations.count)
    except KafkaError as error:
        code, message = error.code, request.error_text(error)
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message)


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
