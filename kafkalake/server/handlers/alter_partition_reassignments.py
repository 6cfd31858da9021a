"""AlterPartitionReassignments (45), versions 0-1: other replicas for partitions.

Partitions are not replicated yet, so none can move: the assignment that can be reached is the current one, and it is reached at
once. 1: whether the replication factor may change.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.admin.topic_plans import check_assignment
from kafkalake.errors import (
    ClusterAuthorizationError,
    InvalidReplicaAssignmentError,
    KafkaError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def handle(
    request: Request[AlterPartitionReassignmentsRequest],
) -> Generator[None, None, AlterPartitionReassignmentsResponse]:
    body = request.body
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return AlterPartitionReassignmentsResponse(error_code=ClusterAuthorizationError.code)
    responses = []
    for topic in body.topics:
        partitions = []
        for partition in topic.partitions:
            partitions.append(_answer(request, topic.name, partition))
            yield
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(
        responses=responses, allow_replication_factor_change=body.allow_replication_factor_change
    )


def _answer(
    request: Request[AlterPartitionReassignmentsRequest], topic: str, asked: ReassignablePartition
) -> ReassignablePartitionResponse:
    try:
        _check(request, topic, asked)
    except KafkaError as error:
        message = request.error_text(error)
        return ReassignablePartitionResponse(
            partition_index=asked.partition_index, error_code=error.code, error_message=message
        )
    return ReassignablePartitionResponse(partition_index=asked.partition_index)


def _check(request: Request[AlterPartitionReassignmentsRequest], topic: str, asked: ReassignablePartition) -> None:
    """Raise what Kafka answers, or `InvalidReplicaAssignmentError` for an assignment that is not the current one."""
    broker = request.context.broker
    known = broker.topics.find(topic)
    if known is None:
        raise UnknownTopicOrPartitionError(f"Unable to find a topic named {topic}.")
    if not 0 <= asked.partition_index < len(known.registrations):
        raise UnknownTopicOrPartitionError(f"Unable to find partition {topic}:{asked.partition_index}.")
    if asked.replicas is None:
        raise NoReassignmentInProgressError("No partition reassignment is in progress.")
    check_assignment(asked.replicas, broker.cluster.brokers)
    if tuple(asked.replicas) != known.registrations[asked.partition_index].replicas:
        raise InvalidReplicaAssignmentError("The partition cannot move: partitions are not replicated yet.")


def refusal(body: AlterPartitionReassignmentsRequest, code: int, message: str) -> AlterPartitionReassignmentsResponse:
    """Return the response that refuses all of a request."""
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message)
