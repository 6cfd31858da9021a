"""DescribeLogDirs (35), versions 1-4: the log directory and the size of each partition in it. 2: flexible. 4: disk space.

There is one log directory. Null topics means all. Unknown partitions are omitted.
"""

from __future__ import annotations

import contextlib
import shutil
from typing import NamedTuple, Protocol

from kafkalake.errors import (
    ClusterAuthorizationError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.cluster import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


class _Log(Protocol):
    @property
    def size_bytes(self) -> int:
        """The size of its files, which are read."""
        ...


class _Chosen(NamedTuple):
    """A replica that is asked for."""

    topic: str
    number: int
    log: _Log


async def handle(request: Request[DescribeLogDirsRequest]) -> DescribeLogDirsResponse:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=ClusterAuthorizationError.code)
    broker = request.context.broker
    chosen = _chosen(request)
    root = broker.logs.root
    try:
        sizes = await broker.run_blocking(lambda: [each.log.size_bytes for each in chosen])
        disk = shutil.disk_usage(root)
    except (OSError, KafkaStorageError):
        return DescribeLogDirsResponse(
            results=[DescribeLogDirsResult(error_code=KafkaStorageError.code, log_dir=str(root))]
        )
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for each, size in zip(chosen, sizes, strict=True):
        found = DescribeLogDirsPartition(partition_index=each.number, partition_size=size)
        topics.setdefault(each.topic, []).append(found)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=str(root),
                topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
                total_bytes=disk.total,
                usable_bytes=disk.free,
            )
        ]
    )


def _chosen(request: Request[DescribeLogDirsRequest]) -> list[_Chosen]:
    """Return the replicas here that are asked for, whether they lead or follow."""
    broker = request.context.broker
    if request.body.topics is None:
        asked = [(topic, index) for topic in broker.topics for index in range(len(topic.registrations))]
    else:
        named = [(broker.topics.find(each.topic), each.partitions) for each in request.body.topics]
        asked = [(topic, index) for topic, indexes in named if topic is not None for index in indexes]
    chosen = []
    for topic, index in dict.fromkeys(asked):
        with contextlib.suppress(NotLeaderOrFollowerError, UnknownTopicOrPartitionError, KafkaStorageError):
            chosen.append(_Chosen(topic.name, index, broker.replicas.find_log(topic, index)))
    return chosen
