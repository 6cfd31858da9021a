"""Offsets of partitions: found by time, and deleted up to. Requests go to the partitions' leaders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafkalake.client.administration.answers import raise_result, require_partitions
from kafkalake.client.administration.call import AdminCall
from kafkalake.client.administration.topics import find_leaders
from kafkalake.client.network.script import Script
from kafkalake.client.requests import DELETE_RECORDS, LIST_OFFSETS, PARTITIONS_AT_ONCE
from kafkalake.errors import PolicyViolationError
from kafkalake.topic_partition import TopicPartition, by_topic
from kafkalake.wire.messages.records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Special timestamps of ListOffsets (KIP-79, KIP-734)."""


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset found by time, and the timestamp of its record in ms since 1970. Both are -1 if there is none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


def list_offsets(
    call: AdminCall, times: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> Script[dict[TopicPartition, ListedOffset]]:
    """Return for each partition in `times` the first offset with a timestamp at or after the given one (ms since 1970).

    `EARLIEST`, `LATEST` and `MAX_TIMESTAMP` are special timestamps. The offset is -1 if no record is that new.
    """

    def message(partitions: list[TopicPartition]) -> ListOffsetsRequest:
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[ListOffsetsPartition(partition_index=each, timestamp=times[name, each]) for each in of],
            )
            for name, of in by_topic(partitions).items()
        ]
        return ListOffsetsRequest(replica_id=-1, isolation_level=int(read_committed), topics=topics)

    def attempt() -> Script[dict[TopicPartition, ListedOffset]]:
        leaders = yield from find_leaders(call, times)
        found = {}
        for some in _requests(leaders):
            messages = {leader: message(partitions) for leader, partitions in some.items()}
            answers = yield from call.request_all(LIST_OFFSETS, messages)
            for topic in (topic for answer in answers.values() for topic in answer.topics):
                for each in topic.partitions:
                    raise_result(each, f"partition {topic.name}-{each.partition_index}")
                    listed = ListedOffset(each.offset, each.timestamp, each.leader_epoch)
                    found[topic.name, each.partition_index] = listed
        require_partitions(times, found)
        return found

    return (yield from call.retrying(attempt))


def delete_records(call: AdminCall, before: Mapping[TopicPartition, int]) -> Script[dict[TopicPartition, int]]:
    """Delete the records before an offset (-1: the high watermark) of each partition. Return the new log start offsets.

    Raise `PolicyViolationError` if a topic keeps its records, `KafkaError` if a broker refuses for another reason. Other
    partitions may be done then.
    """

    def message(partitions: list[TopicPartition]) -> DeleteRecordsRequest:
        topics = [
            DeleteRecordsTopic(
                name=name,
                partitions=[DeleteRecordsPartition(partition_index=each, offset=before[name, each]) for each in of],
            )
            for name, of in by_topic(partitions).items()
        ]
        return DeleteRecordsRequest(topics=topics, timeout=call.work_ms)

    def attempt() -> Script[dict[TopicPartition, int]]:
        leaders = yield from find_leaders(call, before)
        found = {}
        for some in _requests(leaders):
            messages = {leader: message(partitions) for leader, partitions in some.items()}
            answers = yield from call.request_all(DELETE_RECORDS, messages, work_ms=call.work_ms)
            for topic in (topic for answer in answers.values() for topic in answer.topics):
                for each in topic.partitions:
                    _raise_refusal(each.error_code, topic.name)
                    raise_result(each, f"partition {topic.name}-{each.partition_index}")
                    found[topic.name, each.partition_index] = each.low_watermark
        require_partitions(before, found)
        return found

    return (yield from call.retrying(attempt))


def _requests(leaders: Mapping[int, list[TopicPartition]]) -> Iterator[dict[int, list[TopicPartition]]]:
    """Yield partitions by their leaders, as many of each at once as one request has."""
    for first in range(0, max(map(len, leaders.values()), default=0), PARTITIONS_AT_ONCE):
        parts = {leader: of[first : first + PARTITIONS_AT_ONCE] for leader, of in leaders.items()}
        yield {leader: part for leader, part in parts.items() if part}


def _raise_refusal(code: int, topic: str) -> None:
    """Raise `PolicyViolationError` with the reason, for which the response has no room."""
    if code == PolicyViolationError.code:
        raise PolicyViolationError(
            f"records of topic '{topic}' are not deleted: it has delete.protected=true, or, in Apache Kafka, a "
            "cleanup.policy without delete"
        )
