"""What a topic may become: the checks of new topics, of more partitions and of settings, with Kafka's messages."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence

from kafkalake.broker.admin.topic_names import check_topic_name, find_collision
from kafkalake.broker.partitions.new_topic import NewTopic
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.config.layers import Settings
from kafkalake.config.setting import Value
from kafkalake.config.topic_values import check_values
from kafkalake.config.values import parse_topic_overrides
from kafkalake.errors import (
    ConfigurationError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    PolicyViolationError,
    TopicAlreadyExistsError,
)
from kafkalake.internal_topics import INTERNAL

PARTITIONS_MAX = 10_000
"""The limit on partitions of one request over all its topics, as in Kafka."""
REPLICATION_FACTOR = 1
"""The replicas of a partition: there is no replication yet."""


class TopicPlans:
    """The checks against the topics that are there. `settings` returns the broker's current settings."""

    def __init__(self, topics: Topics, settings: Callable[[], Settings]) -> None:
        self._topics = topics
        self._settings = settings

    def plan(self, new: NewTopic) -> int:
        """Validate a new topic and return its number of partitions. Raise as `TopicAdmin.create` if it is not valid."""
        check_topic_name(new.name)
        if new.name in self._topics:
            raise TopicAlreadyExistsError(f"Topic '{new.name}' already exists.")
        collision = find_collision(new.name, self._topics.names())
        if collision is not None:
            raise InvalidTopicError(f"Topic '{new.name}' collides with existing topic: {collision}")
        count = self._plan_partitions(new)
        parse_overrides(new.config or {})
        self.check_room(new.name, count)
        return count

    def check_room(self, name: str, more: int) -> None:
        """Raise `PolicyViolationError` if `more` partitions would exceed `max.partitions`."""
        most = self._settings().broker.max_partitions
        have = sum(len(topic.registrations) for topic in self._topics.unordered() if topic.name not in INTERNAL)
        if name not in INTERNAL and have + more > most:
            raise PolicyViolationError(f"The broker would have more than {most} partitions (max.partitions).")

    def check_more(self, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None) -> None:
        """Raise as `TopicAdmin.add_partitions` if the topic may not have `count` partitions."""
        check_not_internal(topic.name)
        have = len(topic.registrations)
        if count == have:
            raise InvalidPartitionsError(f"Topic already has {have} partition(s).")
        if count < have:
            raise InvalidPartitionsError(
                f"The topic {topic.name} currently has {have} partition(s); {count} would not be an increase."
            )
        if count - have > PARTITIONS_MAX:
            raise InvalidPartitionsError(
                f"Excessively large number of partitions per request: more than {PARTITIONS_MAX}."
            )
        if assignments is not None:
            if len(assignments) != count - have:
                raise InvalidReplicaAssignmentError(
                    f"Attempted to add {count - have} additional partition(s), but {len(assignments)} assignment(s) "
                    "were specified."
                )
            for brokers in assignments:
                self._check_assignment(brokers)
        self.check_room(topic.name, count - have)

    def _plan_partitions(self, new: NewTopic) -> int:
        if new.assignments:
            if new.partitions != -1:
                raise InvalidRequestError(
                    "A manual partition assignment was specified, but numPartitions was not set to -1."
                )
            if new.replication_factor != -1:
                raise InvalidRequestError(
                    "A manual partition assignment was specified, but replication factor was not set to -1."
                )
            indices = sorted(index for index, _ in new.assignments)
            if indices != list(range(len(indices))):
                raise InvalidReplicaAssignmentError("partitions should be a consecutive 0-based integer sequence")
            for _, brokers in new.assignments:
                self._check_assignment(brokers)
            return len(indices)
        count = new.partitions
        if count == -1:
            count = self._settings().broker.num_partitions
        if count < 1:
            raise InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
        if count > PARTITIONS_MAX:
            raise InvalidPartitionsError(
                f"Excessively large number of partitions per request: more than {PARTITIONS_MAX}."
            )
        if new.replication_factor not in (-1, REPLICATION_FACTOR):
            self._refuse_replication(new.replication_factor)
        return count

    def _refuse_replication(self, factor: int) -> None:
        if factor < 1:
            raise InvalidReplicationFactorError(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        brokers = len(self._topics.image.brokers)
        reason = f"only {brokers} broker(s) are registered" if factor > brokers else "partitions are not replicated yet"
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {factor} time(s): "
            f"The target replication factor of {factor} cannot be reached because {reason}."
        )

    def _check_assignment(self, replicas: Sequence[int]) -> None:
        check_assignment(replicas, self._topics.image.brokers)
        if len(replicas) != REPLICATION_FACTOR:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes {len(replicas)} replicas: partitions are not replicated yet."
            )


def check_assignment(replicas: Sequence[int], brokers: Container[int]) -> None:
    """Raise `InvalidReplicaAssignmentError` if the replicas named for a partition are none, not among `brokers`, or one twice.

    The order of the checks is Kafka's.
    """
    if not replicas:
        raise InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")
    previous: int | None = None
    for replica in sorted(replicas):
        if replica not in brokers:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes broker {replica}, but no such broker is registered."
            )
        if replica == previous:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes the broker {replica} more than once."
            )
        previous = replica


def parse_overrides(overrides: Mapping[str, str | None]) -> dict[str, Value]:
    """Return a topic's settings from text. Raise `InvalidConfigError` if one is not valid, or contradicts another."""
    try:
        parsed = parse_topic_overrides(overrides)
        check_values(parsed)
        return parsed
    except ConfigurationError as error:
        raise InvalidConfigError(str(error)) from None


def check_not_protected(topic: Topic) -> None:
    """Raise `PolicyViolationError` for a topic that its settings protect from deletion, of itself and of its records."""
    if topic.config.delete_protected:
        raise PolicyViolationError(
            f"Topic '{topic.name}' has delete.protected=true: neither it nor its records are deleted before that is false."
        )


def check_not_internal(name: str) -> None:
    """Raise `InvalidTopicError` for a coordinator's journal. Its partitions map keys to coordinators."""
    if name in INTERNAL:
        raise InvalidTopicError(f"Topic '{name}' is internal: it cannot be deleted or get more partitions.")
