"""Topics: create, delete, list, describe, more partitions; and which brokers lead their partitions.

Broker errors are raised as the classes of `kafkalake.errors`, with the broker's message if it sends one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from kafkalake.client.administration.answers import find_result, no_result, raise_result, result_error
from kafkalake.client.administration.call import AdminCall
from kafkalake.client.administration.several_requests import ask_in_parts
from kafkalake.client.arguments import Seconds
from kafkalake.client.cluster import TopicInfo, topic_info
from kafkalake.client.network.script import Script
from kafkalake.client.request_parts import cut
from kafkalake.client.requests import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DELETE_TOPICS_BY_ID,
    METADATA,
    error_name,
)
from kafkalake.close_names import did_you_mean
from kafkalake.errors import (
    InvalidTopicError,
    KafkaError,
    KafkaLakeError,
    LeaderNotAvailableError,
    ThrottlingQuotaExceededError,
    UnknownTopicOrPartitionError,
    error_for_code,
    with_retriable,
)
from kafkalake.topic_partition import TopicPartition, by_topic
from kafkalake.wire.messages.cluster import MetadataRequest, MetadataRequestTopic
from kafkalake.wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 50, 1_000


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """The broker's response for a created topic. -1 and None if its version lacks the field."""

    name: str
    topic_id: UUID | None
    partitions: int
    replication_factor: int


def create_topic(
    call: AdminCall,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    config: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> Script[CreatedTopic]:
    """Create a topic. -1 takes the broker's default.

    Raise `TopicAlreadyExistsError`, `InvalidTopicError`, `InvalidConfigError`, `InvalidPartitionsError` or
    `InvalidReplicationFactorError`.
    """
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=(),
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()],
    )
    message = CreateTopicsRequest(topics=[topic], timeout=call.work_ms, validate_only=validate_only)
    answer = yield from call.ask_controller(CREATE_TOPICS, message, lambda answer: answer.topics)
    result = find_result(answer.topics, lambda each: each.name == name, f"topic '{name}'")
    raise_result(result, f"topic '{name}'")
    return CreatedTopic(
        name=name,
        topic_id=result.topic_id,
        partitions=result.num_partitions,
        replication_factor=result.replication_factor,
    )


def delete_topics(call: AdminCall, names: Sequence[str]) -> Script[dict[str, KafkaLakeError]]:
    """Delete topics. Return the errors by topic. Those that a quota refuses behind others are asked for again.

    Very many are named in several requests. An error of a later request as a whole is that of the topics left by then.
    """
    return (yield from ask_in_parts(cut(names), lambda part: _delete(call, part)))


def _delete(call: AdminCall, names: Sequence[str]) -> Script[dict[str, KafkaError]]:
    """Delete topics that one request may name."""
    errors: dict[str, KafkaError] = {}
    left = list(names)
    while left:
        message = DeleteTopicsRequest(topic_names=tuple(left), timeout=call.work_ms)
        answer = yield from call.ask_controller(DELETE_TOPICS, message, lambda answer: answer.responses)
        results = {result.name: result for result in answer.responses}
        for name in left:
            subject = f"topic '{name}'"
            error = result_error(results[name], subject) if name in results else no_result(subject)
            errors.pop(name, None)
            if error is not None:
                errors[name] = error
        refused = [name for name in left if isinstance(errors.get(name), ThrottlingQuotaExceededError)]
        left = refused if len(refused) < len(left) else []  # all of them: the time is over
    return errors


def delete_topic(call: AdminCall, topic_id: UUID) -> Script[None]:
    """Delete the topic with this id, and no other of its name.

    Raise `UnknownTopicIdError` if it is gone, `PolicyViolationError` if it is protected, `KafkaError` if the broker refuses for
    another reason.
    """
    message = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout=call.work_ms)
    answer = yield from call.ask_controller(DELETE_TOPICS_BY_ID, message, lambda answer: answer.responses)
    result = find_result(answer.responses, lambda each: each.topic_id == topic_id, f"topic {topic_id}")
    raise_result(result, f"topic {topic_id}")


def create_partitions(call: AdminCall, topic: str, count: int, *, validate_only: bool = False) -> Script[None]:
    """Increase a topic's number of partitions to `count`. Raise `InvalidPartitionsError` if it has as many or more."""
    message = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
        timeout=call.work_ms,
        validate_only=validate_only,
    )
    answer = yield from call.ask_controller(CREATE_PARTITIONS, message, lambda answer: answer.results)
    result = find_result(answer.results, lambda each: each.name == topic, f"topic '{topic}'")
    raise_result(result, f"topic '{topic}'")


# Metadata


def list_topics(call: AdminCall) -> Script[list[TopicInfo]]:
    """Return all topics, ordered by name, including internal ones."""
    topics, _ = yield from call.retrying(lambda: _ask(call, None))
    return [topics[name] for name in sorted(topics)]


def describe_topic(call: AdminCall, name: str, *, create: bool = False, wait_s: Seconds = 0.0) -> Script[TopicInfo]:
    """Return one topic. Raise `UnknownTopicOrPartitionError` with similar names if it does not exist.

    create: let the broker create the topic if its settings allow it. wait_s: how long to ask again for a topic that is missing.
    """
    deadline_ms = call.now_ms + round(wait_s * 1000)
    pause_ms = _FIRST_PAUSE_MS
    while True:
        topics, errors = yield from call.retrying(lambda: _ask(call, [name], create=create))
        if name in topics:
            return topics[name]
        error = errors.get(name) or UnknownTopicOrPartitionError(name)
        if isinstance(error, InvalidTopicError):
            raise InvalidTopicError(f"'{name}' is not a topic's name: those are letters, digits, '.', '_' and '-'")
        if not isinstance(error, UnknownTopicOrPartitionError | LeaderNotAvailableError):
            raise error
        if call.now_ms >= deadline_ms:
            break
        yield from call.pause(pause_ms)
        pause_ms = min(2 * pause_ms, _LONGEST_PAUSE_MS)
    if isinstance(error, LeaderNotAvailableError):
        raise error
    raise (yield from _missing_topic(call, name))


def find_leaders(call: AdminCall, partitions: Collection[TopicPartition]) -> Script[dict[int, list[TopicPartition]]]:
    """Return partitions by the brokers that lead them.

    Raise `UnknownTopicOrPartitionError`, or `LeaderNotAvailableError` if one has no leader now.
    """
    yield from call.find_brokers()
    wanted = by_topic(partitions)
    topics, errors = yield from _ask(call, wanted)
    found: dict[int, list[TopicPartition]] = {}
    for topic, numbers in wanted.items():
        if topic not in topics:
            error = errors.get(topic)
            if error is None or isinstance(error, UnknownTopicOrPartitionError):
                raise (yield from _missing_topic(call, topic))
            raise error
        for number in numbers:
            found.setdefault(_leader(topics[topic], number), []).append((topic, number))
    return found


def _leader(topic: TopicInfo, partition: int) -> int:
    if not 0 <= partition < len(topic.partitions):
        raise _missing(
            f"topic '{topic.name}' has no partition {partition}; it has {len(topic.partitions)}, numbered from 0"
        )
    leader = topic.partitions[partition].leader
    if leader < 0:
        raise LeaderNotAvailableError(f"partition {topic.name}-{partition} has no leader now")
    return leader


def _ask(
    call: AdminCall, names: Iterable[str] | None, *, create: bool = False
) -> Script[tuple[dict[str, TopicInfo], dict[str, KafkaError]]]:
    """Return topics (None: all), and the errors of those that cannot be described, by name."""
    topics: dict[str, TopicInfo] = {}
    errors: dict[str, KafkaError] = {}
    for part in [None] if names is None else cut(names):
        wanted = None if part is None else [MetadataRequestTopic(name=name) for name in part]
        message = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        answer = yield from call.request((yield from call.any_broker()), METADATA, message)
        for topic in answer.topics:
            name = topic.name or ""
            if topic.error_code:
                errors[name] = error_for_code(topic.error_code, f"topic '{name}': {error_name(topic.error_code)}")
            else:
                topics[name] = topic_info(topic)
    return topics, errors


def _missing_topic(call: AdminCall, name: str) -> Script[UnknownTopicOrPartitionError]:
    topics, _ = yield from call.retrying(lambda: _ask(call, None))
    hint = did_you_mean(name, topics)
    return _missing(f"topic '{name}' does not exist" + (f"; {hint}" if hint else ""))


def _missing(message: str) -> UnknownTopicOrPartitionError:
    """Return the error for a topic or partition missing from the newest metadata: asking again does not help."""
    return with_retriable(UnknownTopicOrPartitionError(message), False)
