"""ElectLeaders (43), versions 0-2: elections of leaders, preferred (type 0) or unclean (1), of some partitions or of all (null).

All of a request is one version of the cluster. A partition that needs no election gets ELECTION_NOT_NEEDED; where all partitions
are asked for, it is left out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from uuid import UUID

from kafkalake.cluster.election import Election
from kafkalake.cluster.image import TopicIdPartition
from kafkalake.errors import (
    ClusterAuthorizationError,
    ElectionNotNeededError,
    InvalidRequestError,
    KafkaError,
    UnknownTopicOrPartitionError,
)
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)

_ELECTIONS = {0: Election.PREFERRED, 1: Election.UNCLEAN}
Known = Mapping[str, tuple[UUID, int]]
"""The topics asked for that exist, by name: id and number of partitions."""


async def handle(request: Request[ElectLeadersRequest]) -> ElectLeadersResponse:
    body = request.body
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return ElectLeadersResponse(error_code=ClusterAuthorizationError.code)
    deadline = request.deadline(body.timeout)
    election = _ELECTIONS.get(body.election_type) if request.version >= 1 else Election.PREFERRED
    if election is None:
        return ElectLeadersResponse(error_code=InvalidRequestError.code)
    known = {topic.name: (topic.topic_id, len(topic.registrations)) for topic in request.context.broker.topics}
    asked = await request.in_turns(_partitions(known, body))
    controller = request.context.broker.controller
    try:
        errors = await controller.elect_leaders(asked, election, timeout_ms=deadline.left_ms)
    except KafkaError as error:
        return refusal(body, error.code, request.error_text(error))
    return await request.in_turns(_response(request, known, errors))


def _asked(known: Known, body: ElectLeadersRequest) -> Iterator[tuple[str, Iterator[int]]]:
    if body.topic_partitions is None:
        return ((name, iter(range(count))) for name, (_, count) in known.items())
    return ((each.topic, iter(each.partitions)) for each in body.topic_partitions)


def _partitions(known: Known, body: ElectLeadersRequest) -> Generator[None, None, list[TopicIdPartition]]:
    """Return those of the partitions asked for that exist, each once."""
    found: dict[TopicIdPartition, None] = {}
    for name, indexes in _asked(known, body):
        for index in indexes:
            yield
            if (of := _partition(known, name, index)) is not None:
                found[of] = None
    return list(found)


def _partition(known: Known, name: str, index: int) -> TopicIdPartition | None:
    topic_id, count = known.get(name, (None, 0))
    return (topic_id, index) if topic_id is not None and 0 <= index < count else None


def _response(
    request: Request[ElectLeadersRequest], known: Known, errors: Mapping[TopicIdPartition, KafkaError]
) -> Generator[None, None, ElectLeadersResponse]:
    is_of_all = request.body.topic_partitions is None
    results = []
    for name, indexes in _asked(known, request.body):
        found = []
        for index in indexes:
            yield
            error = _error(known, errors, name, index)
            if not (is_of_all and isinstance(error, ElectionNotNeededError)):
                found.append(_result(request, index, error))
        if found or not is_of_all:
            results.append(ReplicaElectionResult(topic=name, partition_result=found))
    return ElectLeadersResponse(replica_election_results=results)


def _error(known: Known, errors: Mapping[TopicIdPartition, KafkaError], name: str, index: int) -> KafkaError | None:
    if name not in known:
        return UnknownTopicOrPartitionError(f"No such topic as {name}")
    of = _partition(known, name, index)
    if of is None:
        return UnknownTopicOrPartitionError(f"No such partition as {name}-{index}")
    return errors.get(of)


def _result(request: Request[ElectLeadersRequest], index: int, error: KafkaError | None) -> ElectLeadersPartitionResult:
    if error is None:
        return ElectLeadersPartitionResult(partition_id=index)
    return ElectLeadersPartitionResult(
        partition_id=index, error_code=error.code, error_message=request.error_text(error)
    )


def refusal(body: ElectLeadersRequest, code: int, message: str) -> ElectLeadersResponse:
    """Return the response that refuses all of a request."""
    results = [
        ReplicaElectionResult(
            topic=asked.topic,
            partition_result=[
                ElectLeadersPartitionResult(partition_id=index, error_code=code, error_message=message)
                for index in asked.partitions
            ],
        )
        for asked in body.topic_partitions or ()
    ]
    return ElectLeadersResponse(replica_election_results=results, error_code=code)
