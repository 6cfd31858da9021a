"""Committed offsets of groups: read, alter, delete. Requests go to the group's coordinator. Source: Kafka protocol guide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafkalake.client.administration.answers import missing_partitions, no_result, raise_error, result_error
from kafkalake.client.administration.call import AdminCall
from kafkalake.client.administration.several_requests import ask_in_parts
from kafkalake.client.arguments import checked_offsets
from kafkalake.client.network.script import Script
from kafkalake.client.records import OffsetAndMetadata
from kafkalake.client.request_parts import COMMITTED_AT_ONCE, cut
from kafkalake.client.requests import GROUP, OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from kafkalake.errors import (
    KafkaError,
    KafkaLakeError,
    UnknownTopicOrPartitionError,
    error_for_code,
    with_clause,
)
from kafkalake.topic_partition import TopicPartition, by_topic
from kafkalake.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
)

_NO_GENERATION = -1


def committed_offsets(call: AdminCall, group_id: str) -> Script[dict[TopicPartition, OffsetAndMetadata]]:
    """Return all committed offsets of a group, none if the group does not exist."""
    message = OffsetFetchRequest(group_id=group_id, topics=None)
    answer = yield from call.ask_coordinator(GROUP, group_id, OFFSET_FETCH, message)
    found = {}
    for topic in answer.topics:
        for each in topic.partitions:
            raise_error(each.error_code, f"partition {topic.name}-{each.partition_index}")
            if each.committed_offset >= 0:
                epoch = each.committed_leader_epoch if each.committed_leader_epoch >= 0 else None
                found[str(topic.name), each.partition_index] = OffsetAndMetadata(
                    each.committed_offset, epoch, each.metadata or ""
                )
    return found


def alter_offsets(
    call: AdminCall, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
) -> Script[None]:
    """Commit offsets for a group without members, many of them in several requests.

    Raise the first partition's error, whose text counts the partitions that are committed all the same, and
    `UnknownMemberIdError` if the group has members.
    """
    places = checked_offsets(offsets)
    if places:
        parts = cut(sorted(places), COMMITTED_AT_ONCE)
        results = yield from ask_in_parts(
            parts, lambda part: _alter(call, group_id, {each: places[each] for each in part})
        )
        _raise_first(results, "committed")


def _alter(
    call: AdminCall, group_id: str, places: Mapping[TopicPartition, OffsetAndMetadata]
) -> Script[dict[TopicPartition, KafkaError | None]]:
    """Commit offsets in one request."""
    topics = [
        OffsetCommitRequestTopic(name=topic, partitions=[_commit(index, places[topic, index]) for index in indices])
        for topic, indices in by_topic(places).items()
    ]
    message = OffsetCommitRequest(
        group_id=group_id, generation_id_or_member_epoch=_NO_GENERATION, member_id="", topics=topics
    )

    def check(answer: OffsetCommitResponse) -> None:
        """Raise an error of the coordinator, which is asked again, or of all. That a topic is missing does not change."""
        codes = {each.error_code for topic in answer.topics for each in topic.partitions}
        if not codes:
            raise no_result(f"group '{group_id}'")
        for code in sorted(codes - {0, UnknownTopicOrPartitionError.code}):
            if len(codes) == 1 or error_for_code(code, "").retriable:
                raise_error(code, f"group '{group_id}'")

    return _results((yield from call.ask_coordinator(GROUP, group_id, OFFSET_COMMIT, message, check)), places)


def delete_offsets(call: AdminCall, group_id: str, partitions: Iterable[TopicPartition]) -> Script[None]:
    """Delete committed offsets, many of them in several requests.

    Raise the first partition's error, whose text counts the partitions whose offsets are deleted all the same:
    `GroupSubscribedToTopicError` for topics the group is subscribed to.
    """
    parts = cut(sorted(set(partitions)), COMMITTED_AT_ONCE)
    _raise_first((yield from ask_in_parts(parts, lambda part: _delete(call, group_id, part))), "deleted")


def _delete(
    call: AdminCall, group_id: str, asked: Sequence[TopicPartition]
) -> Script[dict[TopicPartition, KafkaError | None]]:
    """Delete committed offsets in one request."""
    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indices]
        )
        for topic, indices in by_topic(asked).items()
    ]
    message = OffsetDeleteRequest(group_id=group_id, topics=topics)
    return _results((yield from call.ask_coordinator(GROUP, group_id, OFFSET_DELETE, message)), asked)


def _commit(index: int, place: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=place.offset,
        committed_leader_epoch=-1 if place.leader_epoch is None else place.leader_epoch,
        committed_metadata=place.metadata,
    )


def _results(
    answer: OffsetCommitResponse | OffsetDeleteResponse, asked: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    """Return the error of each partition, None if it has none."""
    found = {
        (topic.name, each.partition_index): result_error(each, f"partition {topic.name}-{each.partition_index}")
        for topic in answer.topics
        for each in topic.partitions
    }
    return found | missing_partitions(asked, found)


def _raise_first(results: Mapping[TopicPartition, KafkaLakeError | None], done: str) -> None:
    """Raise the first error, with the number of partitions that have none."""
    errors = [error for error in results.values() if error is not None]
    others = len(results) - len(errors)
    if errors and others:
        raise with_clause(errors[0], f"the offsets of {others} other partition{'s'[: others > 1]} were {done}")
    if errors:
        raise errors[0]
