"""CreatePartitions (37), versions 0-3: add partitions to topics. 2: flexible.

A topic named twice gets INVALID_REQUEST. `validate_only` checks and changes nothing.
"""

from __future__ import annotations

from collections import Counter

from kafkalake.errors import InvalidRequestError, KafkaError
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic
from kafkalake.wire.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(request: Request[CreatePartitionsRequest]) -> CreatePartitionsResponse:
    times: Counter[str] = Counter()
    topics = {}
    for topic in request.body.topics:
        times[topic.name] += 1
        topics[topic.name] = topic
        await request.turn()
    answers = []
    for name, topic in topics.items():
        code, message = 0, None
        try:
            if times[name] > 1:
                raise InvalidRequestError("Duplicate topic in request.")
            await _grow(request, topic)
        except KafkaError as error:
            code, message = error.code, request.error_text(error)
        answers.append(CreatePartitionsTopicResult(name=name, error_code=code, error_message=message))
        await request.turn()
    return CreatePartitionsResponse(results=answers)


async def _grow(request: Request[CreatePartitionsRequest], asked: CreatePartitionsTopic) -> None:
    topic = find_topic(request, asked.name)
    assignments = None if asked.assignments is None else [each.broker_ids for each in asked.assignments]
    await request.context.broker.topic_admin.add_partitions(
        topic, asked.count, assignments, timeout_ms=request.body.timeout, validate_only=request.body.validate_only
    )


def refusal(body: CreatePartitionsRequest, code: int, message: str) -> CreatePartitionsResponse:
    """Return the response that refuses all of a request."""
    topics = dict.fromkeys(each.name for each in body.topics)
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=name, error_code=code, error_message=message) for name in topics]
    )
