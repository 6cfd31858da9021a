"""Offsets of partitions: found by time, and deleted up to. Requests go to the partitions' leaders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kafkalake.client.administration.answers import raise_result, require_partitions, result_error
from kafkalake.client.administration.call import AdminCall
from kafkalake.client.administration.topics import find_leaders
from kafkalake.client.network.script import Script
from kafkalake.client.request_parts import cut
from kafkalake.client.requests import DELETE_RECORDS, LIST_OFFSETS
from kafkalake.errors import KafkaError, PolicyViolationError
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
    partitions are done all the same.
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
        errors: list[KafkaError] = []
        for some in _requests(leaders):
            messages = {leader: message(partitions) for leader, partitions in some.items()}
            answers = yield from call.request_all(DELETE_RECORDS, messages, work_ms=call.work_ms)
            for topic in (topic for answer in answers.values() for topic in answer.topics):
                for each in topic.partitions:
                    error = result_error(each, f"partition {topic.name}-{each.partition_index}")
                    if error is None:
                        found[topic.name, each.partition_index] = each.low_watermark
                    else:
                        errors.append(_with_reason(error, topic.name))
        if errors:  # what is retriable is asked for again, whatever else is refused
            raise max(errors, key=lambda error: error.retriable)
        require_partitions(before, found)
        return found

    return (yield from call.retrying(attempt))


def _requests(leaders: Mapping[int, list[TopicPartition]]) -> Iterator[dict[int, list[TopicPartition]]]:
    """Yield partitions by their leaders, as many of each at once as one request has."""
    parts = {leader: cut(of) for leader, of in leaders.items()}
    for number in range(max(map(len, parts.values()), default=0)):
        yield {leader: of[number] for leader, of in parts.items() if number < len(of)}


def _with_reason(error: KafkaError, topic: str) -> KafkaError:
    """Return the error, a `PolicyViolationError` with the reason, for which the response has no room."""
    if not isinstance(error, PolicyViolationError):
        return error
    return PolicyViolationError(
        f"records of topic '{topic}' are not deleted: it has delete.protected=true, or, in Apache Kafka, a "
        "cleanup.policy without delete"
    )
