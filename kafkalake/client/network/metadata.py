"""The cluster as a client knows it: brokers, topics, leaders; and when that is asked for again. No socket, no clock.

A refresh asks for all topics that are followed; those of a producer are forgotten when they are idle. Leaders come from Metadata
responses and, before those, from the errors of Produce and Fetch (KIP-951). Of two leaders of a partition the one with the newer
epoch counts, unless the topic is another one by its id.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from kafkalake.client.cluster import BrokerNode, PartitionInfo, TopicInfo, topic_info
from kafkalake.client.network.backoff import ExponentialBackoff
from kafkalake.client.requests import error_name
from kafkalake.errors import KafkaError, KafkaLakeError, LeaderNotAvailableError, error_for_code
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.cluster import MetadataRequest, MetadataRequestTopic, MetadataResponse, NodeEndpoint
from kafkalake.wire.messages.groups import FindCoordinatorResponse

_LAST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The newest known state. `errors`: of topics that were asked for and have no entry in `topics`."""

    cluster_id: str | None = None
    controller_id: int = -1
    nodes: Mapping[int, BrokerNode] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    errors: Mapping[str, KafkaError] = field(default_factory=dict)
    names: Mapping[UUID, str] = field(default_factory=dict)

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the node that leads a partition, None if none is known."""
        info = self.topics.get(topic)
        if info is None or not 0 <= partition < len(info.partitions):
            return None
        leader = info.partitions[partition].leader
        return leader if leader >= 0 else None


class Metadata:
    """See the module. `version` rises with each change of `cluster` or `error`."""

    def __init__(
        self, max_age_ms: int, backoff: ExponentialBackoff, *, create_topics: bool, max_idle_ms: int | None = None
    ) -> None:
        """max_idle_ms: after how long a topic that is not added again is forgotten, at the next refresh. None: never."""
        self.cluster = ClusterMetadata()
        self.version = 0
        self.error: KafkaLakeError | None = None
        self.is_asked = False
        self._max_age_ms = max_age_ms
        self._backoff = backoff
        self._create_topics = create_topics
        self._max_idle_ms = max_idle_ms
        self._topics: set[str] | None = set()
        self._added: set[str] = set()
        """The topics that were added since the last refresh."""
        self._added_ms: dict[str, int] = {}
        """When the topics were added last, by the time of the refresh after that."""
        self._is_wanted = True
        self._attempts = 0
        self._not_before_ms = 0
        self._refreshed_ms: int | None = None

    def add(self, topics: Iterable[str]) -> None:
        """Follow these topics too."""
        wanted = set(topics)
        self._added |= wanted
        if self._topics is not None and not self._topics.issuperset(wanted):
            self._topics |= wanted
            self._ask_at_once()

    def follow(self, topics: Iterable[str]) -> None:
        """Follow these topics and no others."""
        wanted = set(topics)
        if wanted - (self.cluster.topics.keys() if self._topics is None else self._topics):
            self._ask_at_once()
        self._topics = wanted

    def follow_all(self) -> None:
        """Follow all topics of the cluster."""
        if self._topics is not None:
            self._ask_at_once()
        self._topics = None

    @property
    def follows_all(self) -> bool:
        """Return whether all topics of the cluster are followed: of those that do not exist there is no error."""
        return self._topics is None

    def request_update(self) -> None:
        """Refresh as soon as the pause after the last attempt is over."""
        self._is_wanted = True

    def due_ms(self) -> int:
        """Return when a refresh is due."""
        if self._is_wanted or self._refreshed_ms is None:
            return self._not_before_ms
        return max(self._not_before_ms, self._refreshed_ms + self._max_age_ms)

    def request(self, now_ms: int) -> MetadataRequest:
        """Return the request of a refresh, which is under way then."""
        self._forget_idle(now_ms)
        self.is_asked = True
        self._is_wanted = False
        topics = None if self._topics is None else [MetadataRequestTopic(name=name) for name in sorted(self._topics)]
        return MetadataRequest(topics=topics, allow_auto_topic_creation=self._create_topics and topics is not None)

    def take(self, response: MetadataResponse, now_ms: int) -> None:
        """Take over the response of a refresh. A topic without a leader, or that is not there yet, is asked for again."""
        self.is_asked = False
        self._refreshed_ms = now_ms
        self.cluster = _merged(self.cluster, response, self._topics)
        self.error = None
        self.version += 1
        if any(error.retriable for error in self.cluster.errors.values()) or _lacks_leaders(self.cluster):
            self._is_wanted = True
            self._pause(now_ms)
        else:
            self._attempts = 0
            self._not_before_ms = now_ms + self._backoff.delay_ms(0)

    def fail(self, error: KafkaLakeError, now_ms: int) -> None:
        """Take the news that a refresh failed. Another one follows."""
        self.is_asked = False
        self._is_wanted = True
        self.error = error
        self.version += 1
        self._pause(now_ms)

    def leader(self, topic: str, partition: int) -> int | None:
        """Return the node that leads a partition, None if none is known."""
        return self.cluster.leader(topic, partition)

    def take_leaders(
        self, leaders: Mapping[TopicPartition, tuple[int, int]], endpoints: Iterable[NodeEndpoint]
    ) -> set[TopicPartition]:
        """Take over (node, epoch) of partitions as errors name them. Return the partitions whose leader is a newer one."""
        nodes = dict(self.cluster.nodes)
        nodes.update(_nodes(endpoints))
        topics = dict(self.cluster.topics)
        changed = set()
        for (topic, partition), (leader, epoch) in leaders.items():
            info = topics.get(topic)
            if info is None or leader not in nodes or not 0 <= partition < len(info.partitions):
                continue
            if epoch > info.partitions[partition].leader_epoch:
                topics[topic] = _with_leader(info, partition, leader, epoch)
                changed.add((topic, partition))
        if changed:
            self.cluster = replace(self.cluster, nodes=nodes, topics=topics)
            self.version += 1
        return changed

    def take_coordinator(self, found: FindCoordinatorResponse) -> bool:
        """Take over where a coordinator is, as an answer without an error names it. Return whether it can be connected to."""
        endpoint = NodeEndpoint(node_id=found.node_id, host=found.host, port=found.port)
        known = self.cluster.nodes.get(found.node_id)
        named = _nodes([endpoint]) if found.host else {}
        if named and (known is None or (known.host, known.port) != (found.host, found.port)):
            self.cluster = replace(self.cluster, nodes={**self.cluster.nodes, **named})
            self.version += 1
        return found.node_id in self.cluster.nodes

    def _forget_idle(self, now_ms: int) -> None:
        added, self._added = self._added, set()
        if self._max_idle_ms is None or self._topics is None:
            return
        self._added_ms.update(dict.fromkeys(added, now_ms))
        idle_ms = now_ms - self._max_idle_ms
        self._added_ms = {topic: added_ms for topic, added_ms in self._added_ms.items() if added_ms > idle_ms}
        self._topics &= self._added_ms.keys()

    def _ask_at_once(self) -> None:
        self._is_wanted = True
        self._not_before_ms = 0
        self._attempts = 0

    def _pause(self, now_ms: int) -> None:
        self._not_before_ms = now_ms + self._backoff.delay_ms(self._attempts)
        self._attempts += 1


def _nodes(endpoints: Iterable[NodeEndpoint]) -> dict[int, BrokerNode]:
    """Return the nodes of a response. Ids below 0 are none of a cluster's, and nobody listens at ports that do not exist."""
    return {
        each.node_id: BrokerNode(each.node_id, each.host, each.port, each.rack)
        for each in endpoints
        if each.node_id >= 0 and 0 < each.port <= _LAST_PORT
    }


def _lacks_leaders(cluster: ClusterMetadata) -> bool:
    return any(partition.leader < 0 for topic in cluster.topics.values() for partition in topic.partitions)


def _with_leader(info: TopicInfo, partition: int, leader: int, epoch: int) -> TopicInfo:
    partitions = list(info.partitions)
    partitions[partition] = replace(partitions[partition], leader=leader, leader_epoch=epoch)
    return replace(info, partitions=tuple(partitions))


def _merged(known: ClusterMetadata, response: MetadataResponse, wanted: Container[str] | None) -> ClusterMetadata:
    """Return the newer state. wanted: topics that are followed, None for all: others are dropped."""
    topics: dict[str, TopicInfo] = {}
    errors: dict[str, KafkaError] = {}
    for answered in response.topics:
        name = answered.name or ""
        if wanted is not None and name not in wanted:
            continue
        if answered.error_code:
            errors[name] = error_for_code(
                answered.error_code,
                f"topic '{name}': {error_name(answered.error_code).lower().removesuffix(' exception')}",
            )
        elif not _is_numbered(info := topic_info(answered)):
            errors[name] = LeaderNotAvailableError(f"topic '{name}': an answer lacks some of its partitions")
        else:
            topics[name] = _newer(known.topics.get(name), info)
    return ClusterMetadata(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        nodes=_nodes(response.brokers),
        topics=topics,
        errors=errors,
        names={info.topic_id: name for name, info in topics.items() if info.topic_id is not None},
    )


def _is_numbered(info: TopicInfo) -> bool:
    """Return whether a topic's partitions are numbered from 0 on, by which they are found."""
    return all(each.partition == number for number, each in enumerate(info.partitions))


def _newer(known: TopicInfo | None, info: TopicInfo) -> TopicInfo:
    """Return `info`, with the known leaders where their epochs are newer: a broker may lag behind."""
    if known is None or known.topic_id != info.topic_id:
        return info
    partitions = tuple(map(_newer_partition, info.partitions, _padded(known.partitions, len(info.partitions))))
    return replace(info, partitions=partitions)


def _padded(known: tuple[PartitionInfo, ...], count: int) -> list[PartitionInfo | None]:
    return [*known[:count], *[None] * (count - len(known))]


def _newer_partition(info: PartitionInfo, known: PartitionInfo | None) -> PartitionInfo:
    if known is None or known.leader_epoch <= info.leader_epoch:
        return info
    return known
