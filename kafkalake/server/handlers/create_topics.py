"""CreateTopics (19), versions 2-7: create topics, or only check them (`validate_only`).

- 4: -1 for the broker's default of partitions and replication factor. 5: flexible; the response has partitions, replication
  factor and settings. 7: topic ids.
- A name used twice in one request gets INVALID_REQUEST. Each topic has its own result. The topic is in Delta when acknowledged.
"""

from __future__ import annotations

from collections import Counter

from kafkalake.broker.admin.topic_plans import PARTITIONS_MAX
from kafkalake.broker.partitions.new_topic import NewTopic
from kafkalake.broker.partitions.topics import Topic
from kafkalake.errors import InvalidPartitionsError, InvalidRequestError, KafkaError, TopicAuthorizationError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribedConfig,
)


async def handle(request: Request[CreateTopicsRequest]) -> CreateTopicsResponse:
    body = request.body
    times: Counter[str] = Counter()
    asked, topics = 0, {}
    for topic in body.topics:
        times[topic.name] += 1
        asked += len(topic.assignments) or max(topic.num_partitions, 0)
        topics[topic.name] = topic
        await request.turn()
    answers = []
    for name, topic in topics.items():
        try:
            if times[name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            if asked > PARTITIONS_MAX:
                raise InvalidPartitionsError(
                    f"Excessively large number of partitions per request: more than {PARTITIONS_MAX}."
                )
            answers.append(await _create(request, topic))
        except KafkaError as error:
            answers.append(
                CreatableTopicResult(name=name, error_code=error.code, error_message=request.error_text(error))
            )
        await request.turn()
    return CreateTopicsResponse(topics=answers)


async def _create(request: Request[CreateTopicsRequest], asked: CreatableTopic) -> CreatableTopicResult:
    if not (request.allows(Resource.CLUSTER, CLUSTER_NAME) or request.allows(Resource.TOPIC, asked.name)):
        raise TopicAuthorizationError()
    assignments = [(each.partition_index, each.broker_ids) for each in asked.assignments]
    new = NewTopic(
        asked.name,
        asked.num_partitions,
        asked.replication_factor,
        assignments or None,
        {config.name: config.value for config in asked.configs},
    )
    admin = request.context.broker.topic_admin
    plan = admin.plans.plan(new)
    topic = await admin.create(new, timeout_ms=request.body.timeout, validate_only=request.body.validate_only)
    return CreatableTopicResult(
        name=asked.name,
        topic_id=None if request.body.validate_only else topic.topic_id,
        num_partitions=plan.partitions,
        replication_factor=plan.replication_factor,
        configs=_configs(request, topic),
    )


def _configs(request: Request[CreateTopicsRequest], topic: Topic) -> list[DescribedConfig]:
    return [
        DescribedConfig(
            name=entry.setting.name, value=entry.value, read_only=entry.read_only, config_source=int(entry.source)
        )
        for entry in request.context.broker.settings.current.describe_topic(topic.overrides)
    ]


def refusal(body: CreateTopicsRequest, code: int, message: str) -> CreateTopicsResponse:
    """Return the response that refuses all of a request."""
    topics = dict.fromkeys(each.name for each in body.topics)
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=name, error_code=code, error_message=message) for name in topics]
    )
