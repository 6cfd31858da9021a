"""AlterPartitionReassignments (45), versions 0-1: other replicas for partitions, or a move that is under way undone (null).

All of a request is one version of the cluster. 1: whether the replication factor may change. Each element has its own result, as in
Kafka: of those of one partition the last one that can be counts.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

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

_Asked = Mapping[TopicIdPartition, ReassignablePartition]
_Read = TopicIdPartition | KafkaError
"""The partition that an element of the request names, or why it cannot be moved as it asks."""


async def handle(request: Request[AlterPartitionReassignmentsRequest]) -> AlterPartitionReassignmentsResponse:
    body = request.body
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return refusal(body, ClusterAuthorizationError.code, str(ClusterAuthorizationError()))
    deadline = request.deadline(body.timeout)
    asked, elements = await request.in_turns(_read(request))
    try:
        refused = await request.context.broker.controller.alter_reassignments(
            {of: each.replicas for of, each in asked.items()},
            may_change_factor=body.allow_replication_factor_change,
            timeout_ms=deadline.left_ms,
        )
    except KafkaError as error:
        return refusal(body, error.code, request.error_text(error))
    outcomes = (each if isinstance(each, KafkaError) else refused.get(each) for each in elements)
    return await request.in_turns(_response(request, outcomes))


def _read(request: Request[AlterPartitionReassignmentsRequest]) -> Generator[None, None, tuple[_Asked, list[_Read]]]:
    """Return the moves that are asked for, and what was read of each element of the request, in order."""
    asked: dict[TopicIdPartition, ReassignablePartition] = {}
    elements: list[_Read] = []
    for topic in request.body.topics:
        for each in topic.partitions:
            yield
            try:
                of = _checked(request, topic.name, each)
            except KafkaError as error:
                elements.append(as_value(error))
                continue
            asked[of] = each
            elements.append(of)
    return asked, elements


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
    request: Request[AlterPartitionReassignmentsRequest], outcomes: Iterable[KafkaError | None]
) -> Generator[None, None, AlterPartitionReassignmentsResponse]:
    """`outcomes`: the error of each element of the request, None for success, in order."""
    remaining = iter(outcomes)
    responses = []
    for topic in request.body.topics:
        partitions = []
        for each in topic.partitions:
            yield
            error = next(remaining)
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
    responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=each.partition_index, error_code=code, error_message=message
                )
                for each in topic.partitions
            ],
        )
        for topic in body.topics
    ]
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=message, responses=responses)
