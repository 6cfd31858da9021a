"""AlterReplicaLogDirs (34), versions 1-2: another log directory for replicas. A broker has one; any other: LOG_DIR_NOT_FOUND."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.errors import ClusterAuthorizationError, KafkaError, LogDirNotFoundError, ReplicaNotAvailableError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.controller import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(request: Request[AlterReplicaLogDirsRequest]) -> Generator[None, None, AlterReplicaLogDirsResponse]:
    allowed = request.allows(Resource.CLUSTER, CLUSTER_NAME)
    found: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.body.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                error = _error(request, directory.path, topic.name, index) if allowed else ClusterAuthorizationError()
                found.setdefault(topic.name, []).append(
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=0 if error is None else error.code
                    )
                )
                yield
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=each) for name, each in found.items()]
    )


def _error(request: Request[AlterReplicaLogDirsRequest], path: str, topic: str, index: int) -> KafkaError | None:
    broker = request.context.broker
    if path != str(broker.logs.root.absolute()):
        return LogDirNotFoundError()
    return None if broker.topics.serves(topic, index) else ReplicaNotAvailableError()
