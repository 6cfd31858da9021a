"""CreateTopics (19), versions 2-7: create topics, or only check them (`validate_only`).

- 4: -1 for the broker's default of partitions and replication factor. 5: flexible; the response has partitions, replication
  factor and settings. 7: topic ids.
- 6: THROTTLING_QUOTA_EXCEEDED; before, the client is only delayed (KIP-599). What is only checked counts too, as in Kafka.
- A name used twice in one request gets INVALID_REQUEST, more than 10,000 partitions POLICY_VIOLATION. Each topic has its own
  result. All topics of a request are one commit, and in Delta when acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence

from kafkalake.broker.admin.topic_creation import Creation
from kafkalake.broker.admin.topic_plans import PARTITIONS_MAX
from kafkalake.broker.partitions.new_topic import NewTopic
from kafkalake.broker.partitions.topics import Topic
from kafkalake.config.layers import Settings
from kafkalake.errors import (
    InvalidRequestError,
    KafkaError,
    PolicyViolationError,
    RequestTimedOutError,
    TopicAuthorizationError,
    as_value,
)
from kafkalake.made_array import MadeArray
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
    body, mutations = request.body, request.context.quotas.mutations(request, strict_since=6)
    deadline = request.deadline(body.timeout)
    if deadline.is_over:
        return refusal(body, RequestTimedOutError.code, None)
    outcomes = await request.in_turns(_refused(request))
    wanted = [_new_topic(each) for each in body.topics if each.name not in outcomes]
    try:
        created = await request.context.broker.topic_admin.create_all(
            wanted, timeout_ms=deadline.left_ms, validate_only=body.validate_only, count=mutations.count
        )
        outcomes |= {new.name: each for new, each in zip(wanted, created, strict=True)}
    except KafkaError as error:
        outcomes |= {new.name: as_value(error) for new in wanted}
    results = _results(request, list(outcomes.items()), validate_only=body.validate_only)
    return CreateTopicsResponse(topics=results, throttle_time=mutations.delay_ms)


def _refused(
    request: Request[CreateTopicsRequest],
) -> Generator[None, None, dict[str, Creation | KafkaError]]:
    """Return the topics that are refused because of the others in the request, or to this principal."""
    body = request.body
    times = Counter(each.name for each in body.topics)
    asked = sum(len(each.assignments) or max(each.num_partitions, 0) for each in body.topics)
    found: dict[str, Creation | KafkaError] = {}
    may_create_all = request.allows(Resource.CLUSTER, CLUSTER_NAME)
    for topic in body.topics:
        yield
        if times[topic.name] > 1:
            found[topic.name] = InvalidRequestError("Duplicate topic name.")
        elif asked > PARTITIONS_MAX:
            found[topic.name] = PolicyViolationError("Excessively large number of partitions per request.")
        elif not (may_create_all or request.allows(Resource.TOPIC, topic.name)):
            found[topic.name] = TopicAuthorizationError("Authorization failed.")
    return found


def _new_topic(asked: CreatableTopic) -> NewTopic:
    assignments = [(each.partition_index, each.broker_ids) for each in asked.assignments]
    config = {each.name: each.value for each in asked.configs}
    return NewTopic(asked.name, asked.num_partitions, asked.replication_factor, assignments or None, config)


def _results(
    request: Request[CreateTopicsRequest], outcomes: Sequence[tuple[str, Creation | KafkaError]], *, validate_only: bool
) -> Sequence[CreatableTopicResult]:
    """Return the results, each made as it is encoded: it has all settings of its topic."""
    settings = request.context.broker.settings.current

    def result(number: int) -> CreatableTopicResult:
        name, outcome = outcomes[number]
        if isinstance(outcome, KafkaError):
            return CreatableTopicResult(
                name=name, error_code=outcome.code, error_message=request.specific_text(outcome)
            )
        topic, plan = outcome
        return CreatableTopicResult(
            name=name,
            topic_id=None if validate_only else topic.topic_id,
            num_partitions=plan.partitions,
            replication_factor=plan.replication_factor,
            configs=_configs(settings, topic),
        )

    return MadeArray(result, range(len(outcomes)))


def _configs(settings: Settings, topic: Topic) -> list[DescribedConfig]:
    return [
        DescribedConfig(
            name=entry.setting.name, value=entry.value, read_only=entry.read_only, config_source=int(entry.source)
        )
        for entry in settings.describe_topic(topic.overrides)
    ]


def refusal(body: CreateTopicsRequest, code: int, message: str | None) -> CreateTopicsResponse:
    """Return the response that refuses all of a request."""
    topics = dict.fromkeys(each.name for each in body.topics)
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=name, error_code=code, error_message=message) for name in topics]
    )
