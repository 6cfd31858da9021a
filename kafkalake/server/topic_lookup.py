"""Finds topics for requests: by name, or by id in later versions."""

from __future__ import annotations

from uuid import UUID

from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.errors import TopicAuthorizationError, UnknownTopicIdError, UnknownTopicOrPartitionError
from kafkalake.server.authorizer import Resource
from kafkalake.server.request import Request
from kafkalake.topic_names import check_topic_name


def find_topic(request: Request[object], name: str) -> Topic:
    """Return the topic of that name. Raise `TopicAuthorizationError` or `UnknownTopicOrPartitionError`."""
    if not request.allows(Resource.TOPIC, name):
        raise TopicAuthorizationError()
    return request.context.broker.topics.topic(name)


def find_topic_by_id(request: Request[object], topic_id: UUID | None) -> Topic:
    """Return the topic with that id. Raise `UnknownTopicIdError` or `TopicAuthorizationError`."""
    topics: Topics = request.context.broker.topics
    if topic_id is None:
        raise UnknownTopicIdError()
    topic = topics.topic_by_id(topic_id)
    if not request.allows(Resource.TOPIC, topic.name):
        raise TopicAuthorizationError()
    return topic


def find_described_topic(request: Request[object], name: str) -> Topic:
    """Return the topic like `find_topic`, but raise `InvalidTopicError` for an invalid name, as Kafka does in descriptions."""
    try:
        return find_topic(request, name)
    except UnknownTopicOrPartitionError:
        check_topic_name(name)
        raise
