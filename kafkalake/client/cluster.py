"""The brokers behind a bootstrap address: addresses, partition leaders, and one connection to each.

Owns the connections and the newest metadata. Retries what Kafka calls retriable, with exponential backoff, within a timeout.
Metadata is refreshed after every error that indicates stale metadata.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar
from uuid import UUID

from kafkalake.client.connection import Address, BrokerConnection, parse_addresses
from kafkalake.client.requests import METADATA, error_name
from kafkalake.clock import Clock, SystemClock
from kafkalake.close_names import did_you_mean
from kafkalake.errors import (
    BrokerUnavailableError,
    ConfigurationError,
    ConnectionLostError,
    InvalidTopicError,
    KafkaError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    as_value,
    error_for_code,
    with_retriable,
)
from kafkalake.wire.messages.cluster import MetadataRequest, MetadataRequestTopic, TopicMetadata

DEFAULT_BOOTSTRAP_SERVERS = "127.0.0.1:9092"
FIRST_PAUSE_MS = 50
LONGEST_PAUSE_MS = 1_000
RETRY_TIMEOUT_MS = 30_000

Result = TypeVar("Result")


@dataclass(frozen=True)
class BrokerNode:
    """A broker of the cluster, as it advertises itself. is_fenced: it leads nothing, and only its controller reaches it."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True)
class PartitionInfo:
    """A partition. `leader` is -1 if it has none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True)
class TopicInfo:
    """A topic and its partitions, ordered by number."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]


class Cluster:
    """Connections and metadata of one cluster. Use it in a `with` block, from one thread.

    `bootstrap_servers` is `host:port[,host:port...]`. Raise `ConfigurationError` for an invalid address. The first request raises
    `BrokerUnavailableError` if no broker answers.
    """

    def __init__(
        self,
        bootstrap_servers: str = DEFAULT_BOOTSTRAP_SERVERS,
        *,
        client_id: str = "kafkalake",
        request_timeout_ms: int = 30_000,
        retry_timeout_ms: int = RETRY_TIMEOUT_MS,
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        try:
            self._bootstrap = parse_addresses(bootstrap_servers)
        except ValueError as error:
            raise ConfigurationError(f"bootstrap servers: {error}") from None
        self.request_timeout_ms = request_timeout_ms
        self._client_id = client_id
        self._retry_timeout_ms = retry_timeout_ms
        self._clock = clock or SystemClock()
        self._pause = pause
        self._connections: dict[Address, BrokerConnection] = {}
        self._nodes: dict[int, BrokerNode] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._controller_id = -1
        self.cluster_id: str | None = None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # Connections

    def any_broker(self) -> BrokerConnection:
        """Return an open connection, else one to the first bootstrap address or known broker. Raise `BrokerUnavailableError`."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        addresses = [*self._bootstrap, *(Address(node.host, node.port) for node in self._nodes.values())]
        failures: dict[Address, BrokerUnavailableError] = {}
        for address in dict.fromkeys(addresses):
            try:
                return self._connection(address)
            except BrokerUnavailableError as error:
                failures[address] = as_value(error)
        if len(failures) == 1:
            raise next(iter(failures.values()))
        raise BrokerUnavailableError("; ".join(str(error) for error in failures.values()))

    def broker(self, broker_id: int) -> BrokerConnection:
        """Return a connection to the broker with this id. Raise `BrokerUnavailableError` if it is unknown or does not answer."""
        node = self._nodes.get(broker_id)
        if node is None:
            self.refresh(())
            node = self._nodes.get(broker_id)
        if node is None:
            raise BrokerUnavailableError(f"broker {broker_id} is not part of the cluster now")
        return self._connection(Address(node.host, node.port))

    def controller(self) -> BrokerConnection:
        """Return a connection to the controller, which handles topics and settings."""
        self.refresh(())
        return self.broker(self._controller_id) if self._controller_id >= 0 else self.any_broker()

    def leader(self, topic: str, partition: int) -> int:
        """Return the broker id of a partition's leader. Raise as `led_partition`."""
        return self.led_partition(topic, partition).leader

    def led_partition(self, topic: str, partition: int) -> PartitionInfo:
        """Return a partition that has a leader. Raise `UnknownTopicOrPartitionError` or `LeaderNotAvailableError`."""
        info = self._topics.get(topic)
        if info is None or partition >= len(info.partitions):
            info = self.topic(topic)
        if not 0 <= partition < len(info.partitions):
            raise _missing(
                f"topic '{topic}' has no partition {partition}; it has {len(info.partitions)}, numbered from 0"
            )
        found = info.partitions[partition]
        if found.leader < 0:
            raise LeaderNotAvailableError(f"partition {topic}-{partition} has no leader now")
        return found

    # Metadata

    def brokers(self) -> list[BrokerNode]:
        """Return the brokers of the cluster, ordered by id."""
        self.refresh(())
        return sorted(self._nodes.values(), key=lambda node: node.broker_id)

    def topics(self) -> list[TopicInfo]:
        """Return all topics, ordered by name, including internal ones."""
        self.retrying(lambda: self.refresh(None))
        return [self._topics[name] for name in sorted(self._topics)]

    def topic(self, name: str, *, create: bool = False, wait_ms: int = 0) -> TopicInfo:
        """Return one topic from fresh metadata. Raise `UnknownTopicOrPartitionError` with similar names if it does not exist.

        `create`: let the broker create the topic if its settings allow auto-creation. `wait_ms`: how long to retry a missing topic.
        """
        deadline = self._clock.monotonic_ms() + wait_ms
        pause_ms = FIRST_PAUSE_MS
        while True:
            error = self.retrying(lambda: self._refresh_topic(name, create))
            if error is None:
                return self._topics[name]
            if isinstance(error, InvalidTopicError):
                raise InvalidTopicError(f"'{name}' is not a topic's name: those are letters, digits, '.', '_' and '-'")
            if not isinstance(error, UnknownTopicOrPartitionError | LeaderNotAvailableError):
                raise error
            if self._clock.monotonic_ms() >= deadline:
                break
            self._pause(pause_ms / 1000)
            pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
        if isinstance(error, LeaderNotAvailableError):
            raise error
        raise _missing(f"topic '{name}' does not exist{self._close_names(name)}")

    def refresh(self, topics: Iterable[str] | None, *, create: bool = False) -> dict[str, KafkaError]:
        """Fetch metadata of the brokers and of the named topics (None: all). Return the errors by topic."""
        connection = self.any_broker()
        version = connection.version(METADATA)
        wanted = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
        answer = connection.request(METADATA, MetadataRequest(topics=wanted, allow_auto_topic_creation=create))
        assert version >= METADATA.lowest
        self.cluster_id = answer.cluster_id
        self._controller_id = answer.controller_id
        self._nodes = {
            node.node_id: BrokerNode(node.node_id, node.host, node.port, node.rack) for node in answer.brokers
        }
        if topics is None:
            self._topics = {}
        errors = {}
        for topic in answer.topics:
            name = topic.name or ""
            if topic.error_code:
                self._topics.pop(name, None)
                errors[name] = error_for_code(topic.error_code, f"topic '{name}': {error_name(topic.error_code)}")
            else:
                self._topics[name] = topic_info(topic)
        return errors

    def forget(self, topic: str) -> None:
        """Drop the cached metadata of a topic, so that the next use fetches it again."""
        self._topics.pop(topic, None)

    # Retries

    def retrying(self, operation: Callable[[], Result], *, timeout_ms: int | None = None) -> Result:
        """Run `operation` until it succeeds, raises an error that is not retriable, or the timeout is reached.

        An unreachable broker fails at once. A lost connection is opened again.
        """
        bound = self._retry_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._clock.monotonic_ms() + bound
        attempt = 0
        while True:
            try:
                return operation()
            except ConnectionLostError:
                if attempt >= 3 or self._clock.monotonic_ms() >= deadline:
                    raise
            except KafkaError as error:
                if not error.retriable or self._clock.monotonic_ms() >= deadline:
                    raise
            self.pause(attempt)
            attempt += 1

    def pause(self, attempt: int) -> None:
        """Sleep before attempt number `attempt + 1`: doubling from 50 ms to 1 s, with jitter."""
        pause_ms = min(FIRST_PAUSE_MS * 2 ** min(attempt, 10), LONGEST_PAUSE_MS)
        self._pause(pause_ms * random.uniform(0.8, 1.2) / 1000)

    def _connection(self, address: Address) -> BrokerConnection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = BrokerConnection(
                address, client_id=self._client_id, request_timeout_ms=self.request_timeout_ms
            )
            self._connections[address] = connection
        return connection

    def _refresh_topic(self, name: str, create: bool) -> KafkaError | None:
        """Return the error of one topic as a value, so that a missing topic is not retried."""
        return self.refresh([name], create=create).get(name)

    def _close_names(self, name: str) -> str:
        """Return `; did you mean 'x'?`, or an empty string."""
        self.refresh(None)
        hint = did_you_mean(name, self._topics)
        return f"; {hint}" if hint else ""


def _missing(message: str) -> UnknownTopicOrPartitionError:
    """Return the non-retriable error for a topic or partition missing from the newest metadata."""
    return with_retriable(UnknownTopicOrPartitionError(message), False)


def topic_info(topic: TopicMetadata) -> TopicInfo:
    """Return a topic as a Metadata response describes it."""
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicInfo(
        name=topic.name or "",
        topic_id=topic.topic_id,
        is_internal=bool(topic.is_internal),
        partitions=tuple(
            PartitionInfo(
                partition=partition.partition_index,
                leader=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replicas=tuple(int(node) for node in partition.replica_nodes),
                isr=tuple(int(node) for node in partition.isr_nodes),
                offline_replicas=tuple(int(node) for node in partition.offline_replicas),
            )
            for partition in partitions
        ),
    )
