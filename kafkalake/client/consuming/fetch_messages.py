"""Fetch requests of a session as messages, and the partitions of a response, with topics by name or by id (KIP-516)."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from kafkalake.client.consuming.fetch_sessions import SessionRequest, WantedPartition
from kafkalake.client.consuming.settings import ConsumerSettings
from kafkalake.topic_partition import TopicPartition, by_topic
from kafkalake.wire.messages.records import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)


def fetch_request(settings: ConsumerSettings, asked: SessionRequest) -> FetchRequest:
    """Return the request of a session, with the ids of topics if the session has them."""
    ids = asked.topic_ids
    return FetchRequest(
        replica_id=-1,
        max_wait=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        isolation_level=int(settings.is_read_committed),
        topics=[
            FetchTopic(
                topic="" if topic in ids else topic,
                topic_id=ids.get(topic),
                partitions=[_partition(number, asked.partitions[topic, number]) for number in numbers],
            )
            for topic, numbers in by_topic(asked.partitions).items()
        ],
        session_id=asked.session_id,
        session_epoch=asked.session_epoch,
        forgotten_topics_data=[
            ForgottenTopic(topic="" if topic in ids else topic, topic_id=ids.get(topic), partitions=numbers)
            for topic, numbers in by_topic(asked.forgotten).items()
        ],
        rack_id=settings.client_rack,
    )


def _partition(number: int, wanted: WantedPartition) -> FetchPartition:
    return FetchPartition(
        partition=number,
        fetch_offset=wanted.fetch_offset,
        current_leader_epoch=wanted.current_leader_epoch,
        partition_max_bytes=wanted.partition_max_bytes,
    )


def parts_of(response: FetchResponse, names: Mapping[UUID, str]) -> list[tuple[TopicPartition, PartitionData]]:
    """Return the partitions of a response. names: of the topics by id. A topic of an unknown id is left out."""
    found = []
    for topic in response.responses:
        name = topic.topic if topic.topic_id is None else names.get(topic.topic_id)
        if name is not None:
            found += [((name, data.partition_index), data) for data in topic.partitions]
    return found
