"""DescribeLogDirs (35), versions 1-4: the log directory and the size of each partition in it. 2: flexible. 4: disk space.

There is one log directory. Null topics means all. Unknown partitions are omitted.
"""

from __future__ import annotations

import shutil

from kafkalake.broker.partitions.partition import Partition
from kafkalake.errors import ClusterAuthorizationError, KafkaStorageError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.cluster import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


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
    for partition, size in zip(chosen, sizes, strict=True):
        topics.setdefault(partition.topic.name, []).append(
            DescribeLogDirsPartition(partition_index=partition.index, partition_size=size)
        )
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


def _chosen(request: Request[DescribeLogDirsRequest]) -> list[Partition]:
    topics = request.context.broker.topics
    asked = request.body.topics
    if asked is None:
        return list(topics.partitions())
    chosen = []
    for each in asked:
        topic = topics.find(each.topic)
        if topic is not None:
            chosen += [topic.replicas[index] for index in each.partitions if index in topic.replicas]
    return [partition for partition in dict.fromkeys(chosen) if not partition.is_offline]
