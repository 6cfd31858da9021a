"""Administration: topics, partitions, settings, offsets. Each function sends its request to the responsible broker.

Broker errors are raised as the classes of `kafkalake.errors`, with the broker's message if it sends one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from kafkalake.client.cluster import Cluster
from kafkalake.client.connection import BrokerConnection
from kafkalake.client.requests import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DELETE_TOPICS_BY_ID,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_OFFSETS,
    A,
    ClientApi,
    Q,
    error_name,
)
from kafkalake.errors import KafkaError, NotControllerError, PolicyViolationError, error_for_code
from kafkalake.wire.messages.records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kafkalake.wire.messages.topics import (
    AlterableConfig,
    AlterConfigsResource,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)

OPERATION_TIMEOUT_MS = 30_000

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Special timestamps of ListOffsets (KIP-79, KIP-734)."""

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SET_CONFIG, DELETE_CONFIG, APPEND_CONFIG = 0, 1, 2

CONFIG_SOURCES = {
    0: "UNKNOWN",
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
"""Sources of a setting's value, as named by `kafka-configs`."""


class Result(Protocol):
    """A part of a response with an error of its own. 0: none."""

    error_code: int


@dataclass(frozen=True)
class CreatedTopic:
    """The broker's response for a created topic. -1 and None if its version lacks the field."""

    name: str
    topic_id: UUID | None
    partitions: int
    replication_factor: int


@dataclass(frozen=True)
class ConfigEntry:
    """One setting of a topic or a broker. `source` is one of `CONFIG_SOURCES`' values."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        """Return whether the value is the built-in default."""
        return self.source in ("DEFAULT_CONFIG", "UNKNOWN")


@dataclass(frozen=True)
class ListedOffset:
    """An offset found by time, and the timestamp of its record in ms since 1970. Both are -1 if there is none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = -1,
    replication_factor: int = -1,
    config: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> CreatedTopic:
    """Create a topic. -1 takes the broker's default.

    Raise `TopicAlreadyExistsError`, `InvalidTopicError`, `InvalidConfigError` or `InvalidPartitionsError`.
    """
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=(),
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()],
    )
    answer = ask_controller(
        cluster,
        CREATE_TOPICS,
        CreateTopicsRequest(topics=[topic], timeout=OPERATION_TIMEOUT_MS, validate_only=validate_only),
        lambda answer: answer.topics,
    )
    (result,) = answer.topics
    raise_result(result, f"topic '{name}'")
    return CreatedTopic(
        name=name,
        topic_id=result.topic_id,
        partitions=result.num_partitions,
        replication_factor=result.replication_factor,
    )


def delete_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, KafkaError]:
    """Delete topics. Return the errors by topic."""
    answer = ask_controller(
        cluster,
        DELETE_TOPICS,
        DeleteTopicsRequest(topic_names=tuple(names), timeout=OPERATION_TIMEOUT_MS),
        lambda answer: answer.responses,
    )
    errors = {}
    for result in answer.responses:
        assert result.name is not None
        cluster.forget(result.name)
        error = result_error(result, f"topic '{result.name}'")
        if error is not None:
            errors[result.name] = error
    return errors


def delete_topic(cluster: Cluster, topic_id: UUID) -> None:
    """Delete the topic with this id, and no other of its name.

    Raise `UnknownTopicIdError` if it is gone, `PolicyViolationError` if it is protected, `KafkaError` if the broker refuses for
    another reason.
    """
    answer = ask_controller(
        cluster,
        DELETE_TOPICS_BY_ID,
        DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic_id)], timeout=OPERATION_TIMEOUT_MS),
        lambda answer: answer.responses,
    )
    (result,) = answer.responses
    if result.name is not None:
        cluster.forget(result.name)
    raise_result(result, f"topic {topic_id}")


def create_partitions(cluster: Cluster, topic: str, count: int, *, validate_only: bool = False) -> None:
    """Increase a topic's number of partitions to `count`. Raise `InvalidPartitionsError` if it has as many or more."""
    answer = ask_controller(
        cluster,
        CREATE_PARTITIONS,
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
            timeout=OPERATION_TIMEOUT_MS,
            validate_only=validate_only,
        ),
        lambda answer: answer.results,
    )
    (result,) = answer.results
    raise_result(result, f"topic '{topic}'")
    cluster.forget(topic)


def describe_configs(
    cluster: Cluster, resource_type: int, names: Sequence[str], *, documentation: bool = False
) -> dict[str, list[ConfigEntry]]:
    """Return settings of topics (`TOPIC_RESOURCE`) or brokers (`BROKER_RESOURCE`, names are ids), by resource, ordered by name."""
    resources = [
        DescribeConfigsResource(resource_type=resource_type, resource_name=name, configuration_keys=None)
        for name in names
    ]
    connection = _broker_for(cluster, resource_type, names)
    values = DescribeConfigsRequest(resources=resources, include_documentation=documentation)
    answer = cluster.retrying(lambda: _request(connection(), DESCRIBE_CONFIGS, values))
    found = {}
    for result in answer.results:
        raise_result(result, f"'{result.resource_name}'")
        entries = [
            ConfigEntry(
                name=entry.name,
                value=entry.value,
                source=CONFIG_SOURCES.get(entry.config_source, "UNKNOWN"),
                read_only=bool(entry.read_only),
                sensitive=bool(entry.is_sensitive),
                documentation=entry.documentation,
            )
            for entry in result.configs
        ]
        found[str(result.resource_name)] = sorted(entries, key=lambda entry: entry.name)
    return found


def alter_configs(
    cluster: Cluster,
    resource_type: int,
    name: str,
    *,
    set_values: Mapping[str, str] | None = None,
    delete: Sequence[str] = (),
    append: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """Set some settings of a topic or broker, reset others to their default, and append to others still (KIP-339).

    Raise `InvalidConfigError` and others.
    """
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for operation, values in ((SET_CONFIG, set_values), (APPEND_CONFIG, append))
        for key, value in (values or {}).items()
    ]
    configs += [AlterableConfig(name=key, config_operation=DELETE_CONFIG, value=None) for key in delete]
    connection = _broker_for(cluster, resource_type, [name])
    resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = cluster.retrying(lambda: _request(connection(), INCREMENTAL_ALTER_CONFIGS, request))
    for result in answer.responses:
        raise_result(result, f"'{result.resource_name}'")


def list_offsets(
    cluster: Cluster,
    topic: str,
    times: Mapping[int, int],
    *,
    read_committed: bool = False,
) -> dict[int, ListedOffset]:
    """Return for each partition in `times` the first offset with a timestamp at or after the given one (ms since 1970).

    `EARLIEST`, `LATEST` and `MAX_TIMESTAMP` are special timestamps. The offset is -1 if no record is that new.
    """

    def ask() -> dict[int, ListedOffset]:
        by_leader: dict[int, list[ListOffsetsPartition]] = {}
        for partition, timestamp in times.items():
            entry = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            by_leader.setdefault(cluster.leader(topic, partition), []).append(entry)
        found = {}
        for leader, partitions in by_leader.items():
            values = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(read_committed),
                topics=[ListOffsetsTopic(name=topic, partitions=partitions)],
            )
            answer = cluster.broker(leader).request(LIST_OFFSETS, values)
            for result in answer.topics[0].partitions:
                try:
                    raise_result(result, f"partition {topic}-{result.partition_index}")
                except KafkaError:
                    cluster.forget(topic)
                    raise
                found[result.partition_index] = ListedOffset(result.offset, result.timestamp, result.leader_epoch)
        return found

    return cluster.retrying(ask)


def delete_records(cluster: Cluster, topic: str, before: Mapping[int, int]) -> dict[int, int]:
    """Delete the records before an offset (-1: the high watermark) per partition. Return the new log start offsets.

    Raise `PolicyViolationError` if the topic keeps its records, `KafkaError` if the broker refuses for another reason.
    """

    def ask() -> dict[int, int]:
        found = {}
        for partition, offset in before.items():
            entry = DeleteRecordsPartition(partition_index=partition, offset=offset)
            values = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=topic, partitions=[entry])], timeout=OPERATION_TIMEOUT_MS
            )
            answer = cluster.broker(cluster.leader(topic, partition)).request(DELETE_RECORDS, values)
            (result,) = answer.topics[0].partitions
            try:
                raise_result(result, f"partition {topic}-{partition}")
            except PolicyViolationError:
                # The response has no room for the reason.
                raise PolicyViolationError(
                    f"records of topic '{topic}' are not deleted: it has delete.protected=true, or, in Apache Kafka, a "
                    "cleanup.policy without delete"
                ) from None
            except KafkaError:
                cluster.forget(topic)
                raise
            found[partition] = result.low_watermark
        return found

    return cluster.retrying(ask)


def ask_controller(cluster: Cluster, api: ClientApi[Q, A], message: Q, results: Callable[[A], Sequence[Result]]) -> A:
    """Send one request to the controller. Retry if all results are NOT_CONTROLLER."""

    def ask() -> A:
        answer = _request(cluster.controller(), api, message)
        codes = {result.error_code for result in results(answer)}
        if codes == {NotControllerError.code}:
            raise NotControllerError(f"{api.name}: the controller has moved")
        return answer

    return cluster.retrying(ask)


def _broker_for(cluster: Cluster, resource_type: int, names: Sequence[str]) -> Callable[[], BrokerConnection]:
    """Return a function that connects to the broker itself for its own settings, to any broker otherwise."""
    if resource_type == BROKER_RESOURCE and names and names[0]:
        return lambda: cluster.broker(int(names[0]))
    return cluster.any_broker


def _request(connection: BrokerConnection, api: ClientApi[Q, A], message: Q) -> A:
    return connection.request(api, message, timeout_ms=OPERATION_TIMEOUT_MS + 5_000)


def result_error(result: Result, subject: str) -> KafkaError | None:
    """Return a result's error with the broker's message, or else with the name of its error code and `subject`."""
    code = result.error_code
    if not code:
        return None
    said = getattr(result, "error_message", None)
    if said:
        return error_for_code(code, str(said).rstrip("."))
    return error_for_code(code, f"{subject}: {error_name(code)}")


def raise_result(result: Result, subject: str) -> None:
    """Raise the error of a result, as `result_error` returns it, if it has one."""
    error = result_error(result, subject)
    if error is not None:
        raise error
