"""ListPartitionReassignments (46), version 0: the partitions that are moving to other brokers, of all topics (null) or of some."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

from kafkalake.broker.partitions.topics import Topics
from kafkalake.cluster.image import PartitionRegistration
from kafkalake.errors import ClusterAuthorizationError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    request: Request[ListPartitionReassignmentsRequest],
) -> Generator[None, None, ListPartitionReassignmentsResponse]:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return ListPartitionReassignmentsResponse(error_code=ClusterAuthorizationError.code)
    topics = request.context.broker.topics
    found = []
    for name, indexes in _asked(topics, request.body.topics):
        ongoing = []
        for index in indexes:
            yield
            partition = _partition(topics, name, index)
            if partition is not None and partition.is_moving:
                ongoing.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=partition.replicas,
                        adding_replicas=partition.adding,
                        removing_replicas=partition.removing,
                    )
                )
        if ongoing:
            found.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return ListPartitionReassignmentsResponse(topics=found)


def _asked(
    topics: Topics, asked: Sequence[ListPartitionReassignmentsTopics] | None
) -> Iterator[tuple[str, Sequence[int]]]:
    if asked is None:
        yield from ((each.name, range(len(each.registrations))) for each in topics)
    else:
        yield from ((each.name, each.partition_indexes) for each in asked)


def _partition(topics: Topics, name: str, index: int) -> PartitionRegistration | None:
    topic = topics.find(name)
    return None if topic is None else topics.image.partition((topic.topic_id, index))


def refusal(body: ListPartitionReassignmentsRequest, code: int, message: str) -> ListPartitionReassignmentsResponse:
    """Return the response that refuses all of a request."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=message)
