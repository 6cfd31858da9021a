"""LowestOffsets (10007, kafkalake's own), version 0: the lowest committed offset of each partition of some topics.

Of the groups that this broker coordinates, for brokers whose topics keep what a group has not read (`retention.groups.guard`).
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.groups.lowest_offsets import LowestOffset, lowest_offsets
from kafkalake.errors import ClusterAuthorizationError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.offsets import (
    LowestOffsetsPartition,
    LowestOffsetsRequest,
    LowestOffsetsResponse,
    LowestOffsetsTopic,
)


def handle(request: Request[LowestOffsetsRequest]) -> Generator[None, None, LowestOffsetsResponse]:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return LowestOffsetsResponse(error_code=ClusterAuthorizationError.code)
    table = request.context.broker.groups.coordinator.table
    lowest = yield from lowest_offsets(table, frozenset(request.body.topics))
    topics: dict[str, list[LowestOffsetsPartition]] = {}
    for (name, index), each in lowest.of_partitions.items():
        topics.setdefault(name, []).append(_partition(index, each))
        yield
    return LowestOffsetsResponse(
        coordinated=sorted(lowest.coordinated),
        topics=[LowestOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def _partition(index: int, lowest: LowestOffset) -> LowestOffsetsPartition:
    return LowestOffsetsPartition(partition_index=index, committed_offset=lowest.offset, group_id=lowest.group)
