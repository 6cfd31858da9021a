"""CreatePartitions (37), versions 0-3: add partitions to topics. 2: flexible.

3: THROTTLING_QUOTA_EXCEEDED; before, the client is only delayed (KIP-599).
The topics share the timeout; those whose turn does not come within it are not changed, and get REQUEST_TIMED_OUT.
A topic named twice gets INVALID_REQUEST. `validate_only` checks and changes nothing; it counts for the quota, as in Kafka.
"""

from __future__ import annotations

from collections import Counter

from kafkalake.errors import InvalidRequestError, KafkaError, RequestTimedOutError
from kafkalake.server.request import Request
from kafkalake.server.throttling import Mutations
from kafkalake.server.topic_lookup import find_topic
from kafkalake.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(request: Request[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    times: Counter[str] = Counter()
    deadline = request.deadline(request.body.timeout)
    mutations = request.context.quotas.mutations(request, strict_since=3)
    topics = {}
    for topic in request.body.topics:
        times[topic.name] += 1
        topics[topic.name] = topic
        await request.turn()
    answers = []
    for name, topic in topics.items():
        code, message = 0, None
        try:
            if deadline.is_over:
                raise RequestTimedOutError()
            if times[name] > 1:
                raise InvalidRequestError("Duplicate topic in request.")
            await _grow(request, topic, mutations, deadline.left_ms)
        except KafkaError as error:
            code, message = error.code, request.error_text(error)
        answers.append(CreatePartitionsTopicResult(name=name, error_code=code, error_message=message))
        await request.turn()
    return CreatePartitionsResponse(results=answers, throttle_time=mutations.delay_ms)


async def _grow(
    request: Request[CreatePartitionsRequest], asked: CreatePartitionsTopic, mutations: Mutations, timeout_ms: int
) -> None:
    body, topic = request.body, find_topic(request, asked.name)
    assignments = None if asked.assignments is None else [each.broker_ids for each in asked.assignments]
    await request.context.broker.topic_admin.add_partitions(
        topic,
        asked.count,
        assignments,
        timeout_ms=timeout_ms,
        validate_only=body.validate_only,
        count_new=mutations.count,
    )


def refusal(body: CreatePartitionsRequest, code: int, message: str) -> CreatePartitionsResponse:
    """Return the response that refuses all of a request."""
    topics = dict.fromkeys(each.name for each in body.topics)
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=name, error_code=code, error_message=message) for name in topics]
    )
