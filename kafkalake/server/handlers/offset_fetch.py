"""OffsetFetch (9), versions 1-9: committed offsets of groups.

- 2: null topics mean all with an offset; an error of the whole group is at the top level. 5: leader epochs. 6: flexible.
- 7: `require_stable`, UNSTABLE_OFFSET_COMMIT while a transaction may still change an offset (KIP-447). 8: several groups
  (KIP-709). 9: member id and epoch of the consumer protocol: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH (KIP-848). Classic groups
  ignore them.
- Without a committed offset: offset -1, leader epoch -1, no error.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any

from kafkalake.broker.groups.records import CommittedOffset
from kafkalake.errors import KafkaError, TopicAuthorizationError
from kafkalake.server.authorizer import Operation
from kafkalake.server.group_lookup import check_group
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import allows_topic
from kafkalake.topic_partition import TopicPartition

_GROUPS_VERSION = 8
_PARTITIONS_A_STEP = 100
_NONE = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": "", "error_code": 0}


def handle(request: Request) -> Generator[None, None, dict[str, Any]]:
    body = request.body
    if request.version < _GROUPS_VERSION:
        return (yield from _group(request, body, body.topics))
    answers = []
    for group in {group.group_id: group for group in body.groups}.values():
        answers.append((yield from _group(request, group, group.topics)))
        yield
    return {"groups": answers}


def _group(request: Request, group: Any, topics: Any) -> Generator[None, None, dict[str, Any]]:
    group_id = group.group_id
    try:
        check_group(request, Operation.DESCRIBE, group_id)
        found = _all(request, group) if topics is None else (yield from _some(request, group, topics))
    except KafkaError as error:
        return {"group_id": group_id, "error_code": error.code, "topics": _refused(request, topics, error)}
    return {"group_id": group_id, "error_code": 0, "topics": found}


def _refused(request: Request, topics: Any, error: KafkaError) -> list[dict[str, Any]]:
    """Return the partitions with the group's error in version 1, which has no other place for it."""
    if request.version >= 2:
        return []
    return [
        {
            "name": topic.name,
            "partitions": [
                {**_NONE, "partition_index": index, "error_code": error.code} for index in topic.partition_indexes
            ],
        }
        for topic in topics
    ]


def _some(request: Request, group: Any, topics: Iterable[Any]) -> Generator[None, None, list[dict[str, Any]]]:
    answers = []
    for topic in topics:
        answer: dict[str, Any] = {"name": topic.name}
        try:
            _check(request, topic.name)
        except KafkaError as error:
            answer["partitions"] = [
                {**_NONE, "partition_index": index, "error_code": error.code} for index in topic.partition_indexes
            ]
        else:
            answer["partitions"] = []
            for start in range(0, len(topic.partition_indexes), _PARTITIONS_A_STEP):
                some = topic.partition_indexes[start : start + _PARTITIONS_A_STEP]
                found = _fetch(request, group, [(topic.name, index) for index in some])
                answer["partitions"] += [_partition(index, found[topic.name, index]) for index in some]
                yield
        answers.append(answer)
        yield
    if not answers:
        _fetch(request, group, [])  # raises the group's error
    return answers


def _check(request: Request, name: str) -> None:
    if not allows_topic(request, Operation.DESCRIBE, name):
        raise TopicAuthorizationError()


def _all(request: Request, group: Any) -> list[dict[str, Any]]:
    found = _fetch(request, group, None)
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (name, index), committed in found.items():
        if allows_topic(request, Operation.DESCRIBE, name):
            by_topic.setdefault(name, []).append(_partition(index, committed))
    return [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]


def _fetch(
    request: Request, group: Any, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, CommittedOffset | type[KafkaError] | None]:
    require_stable = bool(getattr(request.body, "require_stable", False))
    return request.context.broker.groups.offsets.fetch(
        group.group_id,
        partitions,
        require_stable=require_stable,
        member=(getattr(group, "member_id", None), getattr(group, "member_epoch", -1)),
    )


def _partition(index: int, committed: CommittedOffset | type[KafkaError] | None) -> dict[str, Any]:
    if committed is None:
        return {**_NONE, "partition_index": index}
    if isinstance(committed, CommittedOffset):
        return {
            "partition_index": index,
            "committed_offset": committed.offset,
            "committed_leader_epoch": committed.leader_epoch,
            "metadata": committed.metadata,
            "error_code": 0,
        }
    return {**_NONE, "partition_index": index, "error_code": committed.code}
