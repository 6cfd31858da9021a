"""OffsetFetch (9), versions 1-9: committed offsets of groups.

- 2: null topics mean all with an offset; an error of the whole group is at the top level. 5: leader epochs. 6: flexible.
- 7: `require_stable`, UNSTABLE_OFFSET_COMMIT while a transaction may still change an offset (KIP-447). 8: several groups
  (KIP-709). 9: member id and epoch of the consumer protocol: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (KIP-848). Classic groups
  ignore them.
- Without a committed offset: offset -1, leader epoch -1, no error.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable

from kafkalake.broker.groups.records import CommittedOffset
from kafkalake.errors import KafkaError, TopicAuthorizationError
from kafkalake.server.authorizer import Resource
from kafkalake.server.group_lookup import check_group
from kafkalake.server.request import Request
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    TopicIndexes,
)

_GROUPS_VERSION = 8
_PARTITIONS_A_STEP = 100


def handle(request: Request[OffsetFetchRequest]) -> Generator[None, None, OffsetFetchResponse]:
    body = request.body
    if request.version < _GROUPS_VERSION:
        only = OffsetFetchRequestGroup(group_id=body.group_id, topics=body.topics)
        found = yield from _group(request, only)
        return OffsetFetchResponse(error_code=found.error_code, topics=found.topics)
    answers = []
    for group in {group.group_id: group for group in body.groups}.values():
        answers.append((yield from _group(request, group)))
        yield
    return OffsetFetchResponse(groups=answers)


def _group(
    request: Request[OffsetFetchRequest], group: OffsetFetchRequestGroup
) -> Generator[None, None, OffsetFetchResponseGroup]:
    group_id, topics = group.group_id, group.topics
    try:
        check_group(request, group_id)
        found = yield from _all(request, group) if topics is None else _some(request, group, topics)
    except KafkaError as error:
        return OffsetFetchResponseGroup(
            group_id=group_id, error_code=error.code, topics=_refused(request, topics or (), error)
        )
    return OffsetFetchResponseGroup(group_id=group_id, topics=found)


def _refused(
    request: Request[OffsetFetchRequest], topics: Iterable[TopicIndexes], error: KafkaError
) -> list[OffsetFetchResponseTopic]:
    """Return the partitions with the group's error in version 1, which has no other place for it."""
    if request.version >= 2:
        return []
    return [
        OffsetFetchResponseTopic(
            name=topic.name, partitions=[_partition(index, type(error)) for index in topic.partition_indexes]
        )
        for topic in topics
    ]


def _some(
    request: Request[OffsetFetchRequest], group: OffsetFetchRequestGroup, topics: Iterable[TopicIndexes]
) -> Generator[None, None, list[OffsetFetchResponseTopic]]:
    answers = []
    for topic in topics:
        try:
            _check(request, topic.name)
        except KafkaError as error:
            partitions = [_partition(index, type(error)) for index in topic.partition_indexes]
        else:
            partitions = []
            for start in range(0, len(topic.partition_indexes), _PARTITIONS_A_STEP):
                some = topic.partition_indexes[start : start + _PARTITIONS_A_STEP]
                found = _fetch(request, group, [(topic.name, index) for index in some])
                partitions += [_partition(index, found[topic.name, index]) for index in some]
                yield
        answers.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
        yield
    if not answers:
        _fetch(request, group, [])  # raises the group's error
    return answers


def _check(request: Request[OffsetFetchRequest], name: str) -> None:
    if not request.allows(Resource.TOPIC, name):
        raise TopicAuthorizationError()


def _all(
    request: Request[OffsetFetchRequest], group: OffsetFetchRequestGroup
) -> Generator[None, None, list[OffsetFetchResponseTopic]]:
    _fetch(request, group, [])  # raises the group's error
    by_topic: dict[str, list[OffsetFetchResponsePartition]] = {}
    keys = request.context.broker.groups.offsets.committed_in(group.group_id)
    for start in range(0, len(keys), _PARTITIONS_A_STEP):
        found = _fetch(request, group, keys[start : start + _PARTITIONS_A_STEP])
        for (name, index), committed in found.items():
            if request.allows(Resource.TOPIC, name):
                by_topic.setdefault(name, []).append(_partition(index, committed))
        yield
    for partitions in by_topic.values():
        partitions.sort(key=lambda each: each.partition_index)
    return [OffsetFetchResponseTopic(name=name, partitions=by_topic[name]) for name in sorted(by_topic)]


def _fetch(
    request: Request[OffsetFetchRequest], group: OffsetFetchRequestGroup, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, CommittedOffset | type[KafkaError] | None]:
    return request.context.broker.groups.offsets.fetch(
        group.group_id,
        partitions,
        require_stable=request.body.require_stable,
        member=(group.member_id, group.member_epoch),
    )


def _partition(index: int, committed: CommittedOffset | type[KafkaError] | None) -> OffsetFetchResponsePartition:
    if isinstance(committed, CommittedOffset):
        return OffsetFetchResponsePartition(
            partition_index=index,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )
    code = 0 if committed is None else committed.code
    return OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
