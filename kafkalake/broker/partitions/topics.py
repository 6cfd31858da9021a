"""The topics of the cluster, by name and by id, and the replicas of their partitions that this broker has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from kafkalake.broker.partitions.partition import Partition
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import NO_LEADER, ClusterImage, PartitionRegistration, TopicIdPartition
from kafkalake.config.setting import Value
from kafkalake.config.topics import TopicConfig
from kafkalake.errors import NotLeaderOrFollowerError, UnknownTopicIdError, UnknownTopicOrPartitionError
from kafkalake.storage.config import LogConfig
from kafkalake.topic_names import collision_key
from kafkalake.topic_partition import TopicPartition

_NEVER_MS = 2**63 - 1


@dataclass(slots=True, eq=False, weakref_slot=True)
class Topic:
    """A topic. `overrides` are its own settings, `config` the same with the broker's defaults filled in.

    `registrations`: its partitions in the cluster's image, see `Topics.apply`. `replicas`: those led by this broker, by number.
    """

    name: str
    topic_id: UUID
    overrides: dict[str, Value]
    config: TopicConfig
    created_at_ms: int
    registrations: tuple[PartitionRegistration, ...] = ()
    replicas: dict[int, Partition] = field(default_factory=dict)

    def leader(self, index: int) -> Partition:
        """Return the replica by which this broker leads a partition.

        Raise `UnknownTopicOrPartitionError` if the topic has no such partition, `NotLeaderOrFollowerError` if it is led elsewhere.
        """
        replica = self.replicas.get(index)
        if replica is None:
            raise NotLeaderOrFollowerError() if self.is_led_elsewhere(index) else UnknownTopicOrPartitionError()
        return replica

    def is_led_elsewhere(self, index: int) -> bool:
        """Return whether the topic has such a partition, and this broker does not lead it."""
        return index not in self.replicas and 0 <= index < len(self.registrations)

    @property
    def leaderless(self) -> list[TopicIdPartition]:
        """The partitions without a leader."""
        return [(self.topic_id, index) for index, each in enumerate(self.registrations) if each.leader == NO_LEADER]

    @property
    def election_rules(self) -> ElectionRules:
        """The settings that elections of its leaders follow."""
        return ElectionRules(self.config.min_insync_replicas, self.config.unclean_leader_election_enable)

    @property
    def is_flushed_by_time(self) -> bool:
        """Return whether `flush.ms` is set."""
        return self.config.flush_ms < _NEVER_MS


class Topics:
    """All topics served. A topic is added once it is committed and its logs are open. `image` is the cluster's newest version."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._flushed_by_time: set[Topic] = set()
        self._by_collision_key: dict[str, str] = {}

    def __iter__(self) -> Iterator[Topic]:
        """Return the topics sorted by name."""
        return iter([self._by_name[name] for name in sorted(self._by_name)])

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def is_current(self, topic: Topic) -> bool:
        """Return whether a topic that was found before is still here: it may be deleted, and another have its name."""
        return self._by_name.get(topic.name) is topic

    def find_collision(self, name: str) -> str | None:
        """Return the name of a topic that collides with `name`, or is equal to it, None if there is none."""
        return self._by_collision_key.get(collision_key(name))

    def unordered(self) -> Iterable[Topic]:
        """Return all topics in no particular order."""
        return self._by_name.values()

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted(self._by_name)

    def add(self, topic: Topic) -> None:
        """Add a topic."""
        assert topic.name not in self._by_name
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._by_collision_key[collision_key(topic.name)] = topic.name
        if topic.is_flushed_by_time:
            self._flushed_by_time.add(topic)

    def remove(self, topic: Topic) -> None:
        """Remove a topic."""
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        self._by_collision_key.pop(collision_key(topic.name), None)
        self._flushed_by_time.discard(topic)

    def configure(self, topic: Topic, overrides: dict[str, Value], config: TopicConfig, of_logs: LogConfig) -> None:
        """Use other settings of a topic from now on, `of_logs` for its logs."""
        topic.overrides, topic.config = overrides, config
        for partition in topic.replicas.values():
            partition.log.configure(of_logs)
            partition.require_min_isr(config.min_insync_replicas)
        if topic.is_flushed_by_time and topic.name in self._by_name:
            self._flushed_by_time.add(topic)
        else:
            self._flushed_by_time.discard(topic)

    def apply(self, image: ClusterImage, new: Iterable[Topic] = (), gone: Iterable[Topic] = ()) -> None:
        """Follow a newer version of the cluster's image, in which topics are new or gone."""
        assert image.version > self.image.version
        for topic in gone:
            self.remove(topic)
        for topic in new:
            self.add(topic)
        self.image = image
        for topic in self._by_id.values():
            topic.registrations = image.partitions.get(topic.topic_id, ())

    def find(self, name: str) -> Topic | None:
        """Return the topic with that name, or None."""
        return self._by_name.get(name)

    def find_id(self, topic_id: UUID) -> Topic | None:
        """Return the topic with that id, or None."""
        return self._by_id.get(topic_id)

    def topic(self, name: str) -> Topic:
        """Return the topic with that name. Raise `UnknownTopicOrPartitionError` if there is none."""
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopicOrPartitionError()
        return topic

    def topic_by_id(self, topic_id: UUID) -> Topic:
        """Return the topic with that id. Raise `UnknownTopicIdError` if there is none."""
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicIdError()
        return topic

    def election_rules(self, topic_id: UUID) -> ElectionRules:
        """Return the rules of a topic's elections, Kafka's defaults if it is not served."""
        topic = self._by_id.get(topic_id)
        return ElectionRules() if topic is None else topic.election_rules

    def leader(self, name: str, index: int) -> Partition:
        """Return a partition that this broker leads. Raise as `Topic.leader`, and if there is no such topic."""
        return self.topic(name).leader(index)

    def leader_id(self, partition: TopicPartition) -> int:
        """Return the id of the broker that leads a partition, or `NO_LEADER`. Raise `UnknownTopicOrPartitionError`."""
        name, index = partition
        registrations = self.topic(name).registrations
        if not 0 <= index < len(registrations):
            raise UnknownTopicOrPartitionError()
        return registrations[index].leader

    def serves(self, topic: str | UUID, index: int) -> bool:
        """Return whether a topic with that name or id has that partition."""
        found = self.find(topic) if isinstance(topic, str) else self.find_id(topic)
        return found is not None and 0 <= index < len(found.registrations)

    def partitions(self) -> Iterator[Partition]:
        """Yield all partitions with an open log."""
        for topic in list(self._by_name.values()):
            yield from (partition for partition in topic.replicas.values() if not partition.is_offline)

    def with_flush_ms(self) -> list[Topic]:
        """Return the topics with `flush.ms`, in order of their names."""
        return sorted(self._flushed_by_time, key=lambda topic: topic.name)

    def flushed_by_time(self) -> Iterator[Partition]:
        """Yield the partitions with an open log and `flush.ms`, in order of their topics' names."""
        for topic in self.with_flush_ms():
            yield from (partition for partition in topic.replicas.values() if not partition.is_offline)
