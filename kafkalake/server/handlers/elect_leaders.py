"""ElectLeaders (43), versions 0-2: elections of leaders, preferred (type 0) or unclean (1).

A partition that has its preferred leader gets ELECTION_NOT_NEEDED; where all partitions are asked for (null), it is left out.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.errors import (
    ClusterAuthorizationError,
    ElectionNotNeededError,
    InvalidRequestError,
    KafkaError,
    PreferredLeaderNotAvailableError,
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

_PREFERRED, _UNCLEAN = 0, 1


def handle(request: Request[ElectLeadersRequest]) -> Generator[None, None, ElectLeadersResponse]:
    body = request.body
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return ElectLeadersResponse(error_code=ClusterAuthorizationError.code)
    if request.version >= 1 and body.election_type not in (_PREFERRED, _UNCLEAN):
        return ElectLeadersResponse(error_code=InvalidRequestError.code)
    results = []
    for asked in body.topic_partitions or ():
        found = []
        for index in asked.partitions:
            error = _outcome(request, asked.topic, index)
            found.append(
                ElectLeadersPartitionResult(
                    partition_id=index, error_code=error.code, error_message=request.error_text(error)
                )
            )
            yield
        results.append(ReplicaElectionResult(topic=asked.topic, partition_result=found))
    return ElectLeadersResponse(replica_election_results=results)


def _outcome(request: Request[ElectLeadersRequest], topic: str, index: int) -> KafkaError:
    known = request.context.broker.topics.find(topic)
    if known is None:
        return UnknownTopicOrPartitionError(f"No such topic as {topic}")
    partitions = known.registrations
    if not 0 <= index < len(partitions):
        return UnknownTopicOrPartitionError(f"No such partition as {topic}-{index}")
    if partitions[index].offline:
        return PreferredLeaderNotAvailableError("The preferred leader was not available.")
    return ElectionNotNeededError("Leader election not needed for topic partition.")


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
