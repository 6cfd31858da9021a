"""What a topic may become: the checks of new topics, of more partitions and of settings, with Kafka's messages."""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkalake.broker.admin.config_admin import Change
from kafkalake.broker.admin.level_topics import LEVELS, check_not_level, check_own_settings, is_level_of, level_names
from kafkalake.broker.partitions.new_topic import MorePartitions, NewTopic
from kafkalake.broker.partitions.topic_rows import overrides_as_text, topic_row
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.cluster.placement import check_factor, factor_of
from kafkalake.cluster.topic_changes import Assignment, new_partitions
from kafkalake.config.delay_levels import check_delays
from kafkalake.config.layers import Settings, changed_values
from kafkalake.config.setting import Value
from kafkalake.config.setting_texts import check_length
from kafkalake.config.topic_values import check_values
from kafkalake.config.topics import TOPIC_SETTINGS
from kafkalake.config.values import parse_topic_overrides
from kafkalake.errors import (
    ConfigurationError,
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    as_value,
)
from kafkalake.internal_topics import CLUSTER_METADATA, INTERNAL
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.topic_names import check_topic_name, collision_key

_DELAY_MAX_MS = int(str(TOPIC_SETTINGS["delay.max.ms"].default))
PARTITIONS_MAX = 10_000
"""The limit on partitions of one request over all its topics, as in Kafka."""


class TopicPlan(NamedTuple):
    """The size of a new topic. assignment: the replicas of its partitions as they were asked for, or None to place them."""

    partitions: int
    replication_factor: int
    assignment: Assignment | None


class Alteration(NamedTuple):
    """New settings of a topic. changes: name, value before and after of those that are different in effect.

    is_resized: whether it has another `min.insync.replicas`.
    """

    topic: Topic
    overrides: dict[str, Value]
    changes: list[tuple[str, str | None, str | None]]
    is_resized: bool

    @property
    def row(self) -> TopicRow:
        """Return the topic's row with them."""
        return topic_row(self.topic, len(self.topic.registrations), self.overrides)

    @property
    def is_done(self) -> bool:
        """Return whether the topic has them."""
        return self.topic.overrides == self.overrides

    @property
    def changes_levels(self) -> bool:
        """Return whether there are other topics of delays with them."""
        return any(name == LEVELS for name, _, _ in self.changes)


class Alterations(NamedTuple):
    """The topics whose settings change, and why others' may not. One that stays as it is, is in neither."""

    altered: list[Alteration]
    refused: dict[Topic, KafkaError]


class TopicPlans:
    """The checks against the topics that are there. `settings` returns the broker's current settings."""

    def __init__(self, topics: Topics, settings: Callable[[], Settings]) -> None:
        self._topics = topics
        self._settings = settings

    def plan(self, new: NewTopic) -> TopicPlan:
        """Validate a new topic and return its size. Raise as `TopicAdmin.create` if it is not valid."""
        return self._plan(new, {}, self._room())

    def plan_all(self, wanted: Sequence[NewTopic]) -> Generator[None, None, list[TopicPlan | KafkaError]]:
        """Return the sizes of new topics that are created together, and the errors of those that are not valid, in turns."""
        planned: list[TopicPlan | KafkaError] = []
        taken: dict[str, str] = {}
        room = self._room()
        for new in wanted:
            yield
            try:
                plan = self._plan(new, taken, room)
            except KafkaError as error:
                planned.append(as_value(error))
                continue
            planned.append(plan)
            levels = _levels(new)
            taken |= {collision_key(name): name for name in (new.name, *levels)}
            room -= plan.partitions * (1 + len(levels)) if new.name not in INTERNAL else 0
        return planned

    def _plan(self, new: NewTopic, taken: Mapping[str, str], room: int) -> TopicPlan:
        """`taken`: the names of topics that are created with it, by collision key. room: how many partitions there may be more."""
        check_topic_name(new.name)
        if new.name == CLUSTER_METADATA:
            raise InvalidRequestError(f"Creation of internal topic {CLUSTER_METADATA} is prohibited.")
        other = self._topics.find_collision(new.name) or taken.get(collision_key(new.name))
        if other == new.name or new.name in self._topics:
            raise TopicAlreadyExistsError(f"Topic '{new.name}' already exists.")
        if other is not None:
            raise InvalidTopicError(f"Topic '{new.name}' collides with existing topic: {other}")
        plan = self._plan_assigned(new) if new.assignments else self._plan_placed(new)
        parse_overrides(new.config or {})
        if not new.is_level:
            check_own_settings({}, new.config or {})
        levels = _levels(new)
        self.check_levels(new.name, levels, taken)
        self._check_room(new.name, plan.partitions * (1 + len(levels)), room)
        return plan

    def check_levels(self, target: str, names: Iterable[str], taken: Mapping[str, str] | None = None) -> None:
        """Raise `InvalidConfigError` if topics of delays cannot have these names, because they are illegal or taken."""
        for name in names:
            try:
                check_topic_name(name)
            except InvalidTopicError as error:
                raise InvalidConfigError(f"{LEVELS}: {error}") from None
            other = self._topics.find_collision(name) or (taken or {}).get(collision_key(name))
            known = None if other is None else self._topics.find(other)
            if other is not None and not (other == name and known is not None and is_level_of(known, target)):
                raise InvalidConfigError(f"{LEVELS}: there would be a topic '{name}', and '{other}' exists already.")

    def plan_alterations(self, changes: Mapping[Topic, Change]) -> Generator[None, None, Alterations]:
        """Return what changes of topics' settings make of them, in turns."""
        planned = Alterations([], {})
        for topic, change in changes.items():
            yield
            try:
                self._check_served(topic)
                overrides = parse_overrides(change(overrides_as_text(topic.overrides)))
                self._check_settings(topic, overrides)
            except KafkaError as error:
                planned.refused[topic] = as_value(error)
                continue
            if overrides != topic.overrides:
                settings = self._settings()
                before, after = settings.describe_topic(topic.overrides), settings.describe_topic(overrides)
                planned.altered.append(
                    Alteration(topic, overrides, changed_values(before, after), is_resized(topic, overrides, settings))
                )
        return planned

    def _check_served(self, topic: Topic) -> None:
        """Raise `UnknownTopicOrPartitionError` if a topic has been deleted since it was looked up."""
        if not self._topics.is_current(topic):
            raise UnknownTopicOrPartitionError()

    def _check_settings(self, topic: Topic, overrides: Mapping[str, Value]) -> None:
        """Raise `InvalidConfigError` if these settings would change those of the broker alone, or ask for names that are taken."""
        check_own_settings(topic.overrides, overrides)
        self.check_levels(topic.name, level_names(topic.name, str(overrides.get(LEVELS) or "")))

    def journal_factor(self, setting: str) -> int:
        """Return the replicas of a journal's partitions, of the setting with that name.

        Its default is meant for clusters: where nobody has set it, there are no more than brokers. A number that was set is that of
        the topic, which is not created before there are as many brokers, as in Kafka.
        """
        settings = self._settings()
        wanted: int = getattr(settings.broker, setting.replace(".", "_"))
        return wanted if settings.is_set(setting) else min(wanted, len(self._topics.image.brokers))

    def check_room(self, name: str, more: int) -> None:
        """Raise `PolicyViolationError` if `more` partitions would exceed `max.partitions`."""
        self._check_room(name, more, self._room())

    def _room(self) -> int:
        have = sum(len(topic.registrations) for topic in self._topics.unordered() if topic.name not in INTERNAL)
        return self._settings().broker.max_partitions - have

    def _check_room(self, name: str, more: int, room: int) -> None:
        if name not in INTERNAL and more > room:
            most = self._settings().broker.max_partitions
            raise PolicyViolationError(f"The broker would have more than {most} partitions (max.partitions).")

    def check_all_more(self, wanted: Iterable[MorePartitions]) -> Generator[None, None, list[KafkaError | None]]:
        """Return for each topic that gets more partitions, together with the others, why it may not, or None. In turns."""
        checked: list[KafkaError | None] = []
        room = self._room()
        for more in wanted:
            yield
            try:
                room -= self._check_more(*more, room)
                checked.append(None)
            except KafkaError as error:
                checked.append(as_value(error))
        return checked

    def _check_more(self, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None, room: int) -> int:
        """Return how many partitions there are more, with those of topics of delays. Raise if the topic may not have `count`."""
        self._check_served(topic)
        check_not_internal(topic.name)
        check_not_level(self._topics, topic)
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
                    f"Attempted to add {count - have} additional partition(s), but only {len(assignments)} "
                    "assignment(s) were specified."
                )
            check_assignments(assignments, self._topics.image.brokers, factor_of(topic.registrations))
            new_partitions(self._topics.image, assignments, first=have)
        else:
            check_factor(self._topics.image, factor_of(topic.registrations))
        more = (count - have) * (1 + len(level_names(topic.name, topic.config.delay_levels)))
        self._check_room(topic.name, more, room)
        return more

    def _plan_assigned(self, new: NewTopic) -> TopicPlan:
        if new.replication_factor != -1:
            raise InvalidRequestError(
                "A manual partition assignment was specified, but replication factor was not set to -1."
            )
        if new.partitions != -1:
            raise InvalidRequestError(
                "A manual partition assignment was specified, but numPartitions was not set to -1."
            )
        assigned = sorted(new.assignments or ())
        if [index for index, _ in assigned] != list(range(len(assigned))):
            raise InvalidReplicaAssignmentError("partitions should be a consecutive 0-based integer sequence")
        assignment = [brokers for _, brokers in assigned]
        check_assignments(assignment, self._topics.image.brokers)
        new_partitions(self._topics.image, assignment)
        return TopicPlan(len(assignment), len(assignment[0]), assignment)

    def _plan_placed(self, new: NewTopic) -> TopicPlan:
        config, count, factor = self._settings().broker, new.partitions, new.replication_factor
        if factor < -1 or factor == 0:
            raise InvalidReplicationFactorError(
                "Replication factor must be larger than 0, or -1 to use the default value."
            )
        if count == -1:
            count = config.num_partitions
        if count < 1:
            raise InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
        if count > PARTITIONS_MAX:
            raise PolicyViolationError("Excessively large number of partitions per request.")
        if factor == -1:
            factor = max(config.default_replication_factor, 1)
        check_factor(self._topics.image, factor)
        return TopicPlan(count, factor, None)


def _levels(new: NewTopic) -> list[str]:
    """Return the names of the topics of delays of a new topic whose settings are valid."""
    return level_names(new.name, (new.config or {}).get(LEVELS) or "")


def is_resized(topic: Topic, overrides: Mapping[str, Value], settings: Settings) -> bool:
    """Return whether a topic has another `min.insync.replicas` with these settings of its own."""
    return settings.topic(overrides).min_insync_replicas != topic.config.min_insync_replicas


def check_assignments(assignments: Iterable[Sequence[int]], brokers: Container[int], factor: int | None = None) -> None:
    """Raise `InvalidReplicaAssignmentError` as `check_assignment`, and unless all have as many replicas, or `factor`."""
    for replicas in assignments:
        check_assignment(replicas, brokers)
        if factor is not None and len(replicas) != factor:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
                f"consistent with previous partitions, which have {factor} replica(s)."
            )
        factor = len(replicas)


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
        for name, text in overrides.items():
            check_length(name, text or "")
        parsed = parse_topic_overrides(overrides)
        check_values(parsed)
        check_delays(parsed, _DELAY_MAX_MS)
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
