"""DescribeLogDirs (35), versions 1-4: the log directory and the size of each partition in it. 2: flexible. 4: disk space.

There is one log directory. Null topics means all. Unknown partitions are omitted.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from kafkalake.broker.partitions.topics import Topic
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
    chosen = await request.in_turns(_chosen(request))
    root = broker.logs.root
    try:
        sizes = await broker.run_blocking(lambda: [each.log.size_bytes for each in chosen])
        disk = shutil.disk_usage(root)
    except (OSError, KafkaStorageError):
        return DescribeLogDirsResponse(
            results=[DescribeLogDirsResult(error_code=KafkaStorageError.code, log_dir=str(root))]
        )
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=str(root),
                topics=await request.in_turns(_topics(chosen, sizes)),
                total_bytes=disk.total,
                usable_bytes=disk.free,
            )
        ]
    )


def _asked(request: Request[DescribeLogDirsRequest]) -> Iterator[tuple[Topic, Iterable[int]]]:
    topics = request.context.broker.topics
    if request.body.topics is None:
        yield from ((topic, range(len(topic.registrations))) for topic in topics)
    else:
        named = ((topics.find(each.topic), each.partitions) for each in request.body.topics)
        yield from ((topic, indexes) for topic, indexes in named if topic is not None)


def _chosen(request: Request[DescribeLogDirsRequest]) -> Generator[None, None, list[_Chosen]]:
    """Return the replicas here that are asked for, whether they lead or follow, each once."""
    find_log = request.context.broker.replicas.find_log
    seen: set[tuple[Topic, int]] = set()
    chosen = []
    for topic, indexes in _asked(request):
        for index in indexes:
            yield
            if (topic, index) in seen:
                continue
            seen.add((topic, index))
            with contextlib.suppress(NotLeaderOrFollowerError, UnknownTopicOrPartitionError, KafkaStorageError):
                chosen.append(_Chosen(topic.name, index, find_log(topic, index)))
    return chosen


def _topics(chosen: Sequence[_Chosen], sizes: Sequence[int]) -> Generator[None, None, list[DescribeLogDirsTopic]]:
    """Return the replicas with the sizes of their logs, by topic."""
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for each, size in zip(chosen, sizes, strict=True):
        yield
        found = DescribeLogDirsPartition(partition_index=each.number, partition_size=size)
        topics.setdefault(each.topic, []).append(found)
    return [DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
