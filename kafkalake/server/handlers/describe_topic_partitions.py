"""DescribeTopicPartitions (75), version 0: topics and partitions in pages (KIP-966).

No topics means all. Topics are ordered by name. `response_partition_limit` (at most `max.request.partition.size.limit`) bounds a
page, and the cursor in the response is the first partition of the next one.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.errors import KafkaError
from kafkalake.server.authorizer import Resource
from kafkalake.server.handlers.metadata import operation_bits, topic_metadata
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_described_topic
from kafkalake.wire.messages.cluster import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicMetadata,
)


def handle(request: Request[DescribeTopicPartitionsRequest]) -> Generator[None, None, DescribeTopicPartitionsResponse]:
    body = request.body
    broker = request.context.broker
    everything = not body.topics
    if everything:
        names = [name for name in broker.topics.names() if request.allows(Resource.TOPIC, name)]
    else:
        names = sorted({topic.name for topic in body.topics})
    first_partition = 0
    if body.cursor is not None:
        names = [name for name in names if name >= body.cursor.topic_name]
        if names and names[0] == body.cursor.topic_name:
            first_partition = max(body.cursor.partition_index, 0)
    limit = max(1, min(body.response_partition_limit, broker.config.max_request_partition_size_limit))
    topics: list[TopicMetadata] = []
    for name in names:
        yield
        if limit <= 0:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=0)
            )
        described, following = _describe(request, name, first_partition, limit)
        topics.append(described)
        if following is not None:
            return DescribeTopicPartitionsResponse(
                topics=topics, next_cursor=Cursor(topic_name=name, partition_index=following)
            )
        limit -= len(described.partitions)
        first_partition = 0
    return DescribeTopicPartitionsResponse(topics=topics)


def _describe(
    request: Request[DescribeTopicPartitionsRequest], name: str, first: int, limit: int
) -> tuple[TopicMetadata, int | None]:
    """Return at most `limit` of a topic's partitions from `first` on, and the index after them if there are more, else None."""
    try:
        topic = find_described_topic(request, name)
    except KafkaError as error:
        return TopicMetadata(error_code=error.code, name=name), None
    shown = range(len(topic.registrations))[first : first + limit]
    operations = operation_bits(request, Resource.TOPIC, topic.name)
    answer = topic_metadata(request, topic, shown, operations, knows_listeners=True)
    following = first + len(shown)
    return answer, following if following < len(topic.registrations) else None
