"""CreatePartitions (37), versions 0-3: add partitions to topics. 2: flexible.

3: THROTTLING_QUOTA_EXCEEDED; before, the client is only delayed (KIP-599).
The topics are changed together, in one commit. If its turn does not come within the timeout, all get REQUEST_TIMED_OUT.
A topic named twice gets INVALID_REQUEST. `validate_only` checks and changes nothing; it counts for the quota, as in Kafka.
"""

from __future__ import annotations

from collections import Counter

from kafkalake.broker.partitions.new_topic import MorePartitions
from kafkalake.errors import InvalidRequestError, KafkaError, RequestTimedOutError, as_value
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
    deadline = request.deadline(request.body.timeout)
    mutations = request.context.quotas.mutations(request, strict_since=3)
    topics = {}
    for topic in request.body.topics:
        times[topic.name] += 1
        topics[topic.name] = topic
        await request.turn()
    errors: dict[str, KafkaError] = {}
    wanted: dict[str, MorePartitions] = {}
    for name, topic in topics.items():
        try:
            if deadline.is_over:
                raise RequestTimedOutError()
            if times[name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            wanted[name] = _more_partitions(request, topic)
        except KafkaError as error:
            errors[name] = as_value(error)
        await request.turn()
    try:
        outcomes = await request.context.broker.topic_admin.add_partitions(
            list(wanted.values()),
            timeout_ms=deadline.left_ms,
            validate_only=request.body.validate_only,
            count=mutations.count,
        )
        errors |= {name: refused for name, refused in zip(wanted, outcomes, strict=True) if refused is not None}
    except KafkaError as error:
        errors |= dict.fromkeys(wanted, as_value(error))
    answers = []
    for name in topics:
        code, message = (errors[name].code, request.specific_text(errors[name])) if name in errors else (0, None)
        answers.append(CreatePartitionsTopicResult(name=name, error_code=code, error_message=message))
        await request.turn()
    return CreatePartitionsResponse(results=answers, throttle_time=mutations.delay_ms)


def _more_partitions(request: Request[CreatePartitionsRequest], asked: CreatePartitionsTopic) -> MorePartitions:
    topic = find_topic(request, asked.name)
    assignments = None if asked.assignments is None else [each.broker_ids for each in asked.assignments]
    return MorePartitions(topic, asked.count, assignments)


def refusal(body: CreatePartitionsRequest, code: int, message: str) -> CreatePartitionsResponse:
    """Return the response that refuses all of a request."""
    topics = dict.fromkeys(each.name for each in body.topics)
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=name, error_code=code, error_message=message) for name in topics]
    )
