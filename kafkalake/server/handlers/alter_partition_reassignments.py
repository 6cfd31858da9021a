"""AlterPartitionReassignments (45), versions 0-1: other replicas for partitions, or a move that is under way undone (null).

All of a request is one version of the cluster. 1: whether the replication factor may change. Of a partition that is named twice the
last counts.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from kafkalake.broker.admin.topic_plans import check_assignment
from kafkalake.cluster.image import TopicIdPartition
from kafkalake.errors import (
    ClusterAuthorizationError,
    KafkaError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
    as_value,
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

NamedPartition = tuple[str, int]
_Asked = Mapping[NamedPartition, tuple[TopicIdPartition, ReassignablePartition]]


async def handle(request: Request[AlterPartitionReassignmentsRequest]) -> AlterPartitionReassignmentsResponse:
    body = request.body
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return AlterPartitionReassignmentsResponse(error_code=ClusterAuthorizationError.code)
    asked, errors = await request.in_turns(_read(request))
    try:
        refused = await request.context.broker.controller.alter_reassignments(
            {of: each.replicas for of, each in asked.values()}, may_change_factor=body.allow_replication_factor_change
        )
    except KafkaError as error:
        return refusal(body, error.code, request.error_text(error))
    errors |= {name: refused[of] for name, (of, _) in asked.items() if of in refused}
    return await request.in_turns(_response(request, errors))


def _read(
    request: Request[AlterPartitionReassignmentsRequest],
) -> Generator[None, None, tuple[_Asked, dict[NamedPartition, KafkaError]]]:
    """Return the moves that are asked for, and the errors of those that cannot be."""
    asked: dict[NamedPartition, tuple[TopicIdPartition, ReassignablePartition]] = {}
    errors: dict[NamedPartition, KafkaError] = {}
    for topic in request.body.topics:
        for each in topic.partitions:
            yield
            name = topic.name, each.partition_index
            try:
                asked[name] = _checked(request, topic.name, each), each
            except KafkaError as error:
                errors[name] = as_value(error)
    return asked, errors


def _checked(
    request: Request[AlterPartitionReassignmentsRequest], topic: str, asked: ReassignablePartition
) -> TopicIdPartition:
    broker, index = request.context.broker, asked.partition_index
    known = broker.topics.find(topic)
    if known is None:
        raise UnknownTopicOrPartitionError(f"Unable to find a topic named {topic}.")
    if not 0 <= index < len(known.registrations):
        raise UnknownTopicOrPartitionError(f"Unable to find partition {topic}:{index}.")
    if asked.replicas is None and not known.registrations[index].is_moving:
        raise NoReassignmentInProgressError("No partition reassignment is in progress.")
    if asked.replicas is not None:
        check_assignment(asked.replicas, broker.cluster.brokers)
    return known.topic_id, index


def _response(
    request: Request[AlterPartitionReassignmentsRequest], errors: Mapping[NamedPartition, KafkaError]
) -> Generator[None, None, AlterPartitionReassignmentsResponse]:
    responses = []
    for topic in request.body.topics:
        partitions = []
        for each in topic.partitions:
            yield
            error = errors.get((topic.name, each.partition_index))
            partitions.append(
                ReassignablePartitionResponse(
                    partition_index=each.partition_index,
                    error_code=0 if error is None else error.code,
                    error_message=None if error is None else request.error_text(error),
                )
            )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(
        responses=responses, allow_replication_factor_change=request.body.allow_replication_factor_change
    )


def refusal(body: AlterPartitionReassignmentsRequest, code: int, message: str) -> AlterPartitionReassignmentsResponse:
    """Return the response that refuses all of a request."""
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message)
