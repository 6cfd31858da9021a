"""Committed offsets of groups: read, alter, delete. Requests go to the group's coordinator. Source: Kafka protocol guide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalake.client.administration.answers import no_result, raise_error, require_partitions
from kafkalake.client.administration.call import AdminCall
from kafkalake.client.arguments import checked_offsets
from kafkalake.client.network.script import Script
from kafkalake.client.records import OffsetAndMetadata
from kafkalake.client.requests import COMMITTED_AT_ONCE, GROUP, OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from kafkalake.errors import UnknownTopicOrPartitionError, error_for_code
from kafkalake.topic_partition import TopicPartition, by_topic, partition_name
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
    """Commit offsets for a group without members, many of them in several requests: what was committed before an error stays.

    Raise `UnknownMemberIdError` if the group has members.
    """
    places = sorted(checked_offsets(offsets).items())
    for first in range(0, len(places), COMMITTED_AT_ONCE):
        yield from _alter(call, group_id, dict(places[first : first + COMMITTED_AT_ONCE]))


def _alter(call: AdminCall, group_id: str, places: Mapping[TopicPartition, OffsetAndMetadata]) -> Script[None]:
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

    _check_partitions((yield from call.ask_coordinator(GROUP, group_id, OFFSET_COMMIT, message, check)), places)


def delete_offsets(call: AdminCall, group_id: str, partitions: Iterable[TopicPartition]) -> Script[None]:
    """Delete committed offsets, many of them in several requests: what was deleted before an error stays so.

    Raise `GroupSubscribedToTopicError` for topics the group is subscribed to.
    """
    asked = list(partitions)
    for first in range(0, max(len(asked), 1), COMMITTED_AT_ONCE):
        yield from _delete(call, group_id, asked[first : first + COMMITTED_AT_ONCE])


def _delete(call: AdminCall, group_id: str, asked: list[TopicPartition]) -> Script[None]:
    """Delete committed offsets in one request."""
    topics = [
        OffsetDeleteRequestTopic(
            name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indices]
        )
        for topic, indices in by_topic(asked).items()
    ]
    message = OffsetDeleteRequest(group_id=group_id, topics=topics)
    _check_partitions((yield from call.ask_coordinator(GROUP, group_id, OFFSET_DELETE, message)), asked)


def _commit(index: int, place: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=place.offset,
        committed_leader_epoch=-1 if place.leader_epoch is None else place.leader_epoch,
        committed_metadata=place.metadata,
    )


def _check_partitions(answer: OffsetCommitResponse | OffsetDeleteResponse, asked: Iterable[TopicPartition]) -> None:
    found = {
        (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
    }
    for partition, code in found.items():
        raise_error(code, f"partition {partition_name(partition)}")
    require_partitions(asked, found)
