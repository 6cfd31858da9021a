"""ConsumerGroupDescribe (69), versions 0-1: state, epochs and members of groups of the consumer protocol (KIP-848).

GROUP_ID_NOT_FOUND for a missing group, or one of the classic protocol, which DescribeGroups describes. 1: whether a
member uses the classic protocol (KIP-1099), which none does here.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kafkalake.broker.groups.assignors import Assignment
from kafkalake.broker.groups.consumer_records import by_topic
from kafkalake.broker.groups.consumer_requests import ConsumerGroupDescription, ConsumerMemberDescription
from kafkalake.errors import KafkaError, TopicAuthorizationError
from kafkalake.server.authorizer import Operation, Resource
from kafkalake.server.group_lookup import check_group
from kafkalake.server.handlers.metadata import operation_bits
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import allows_topic

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def handle(request: Request) -> Generator[None, None, dict[str, Any]]:
    answers = []
    for each in dict.fromkeys(request.body.group_ids):
        answers.append(_describe(request, each))
        yield
    return {"groups": answers}


def _describe(request: Request, group_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"group_id": group_id}
    try:
        check_group(request, Operation.DESCRIBE, group_id)
        group = request.context.broker.groups.consumers.describe(group_id)
        _check_topics(request, group)
    except KafkaError as error:
        answer.update(error_code=error.code, error_message=request.error_text(error))
        return answer
    if request.body.include_authorized_operations:
        answer["authorized_operations"] = operation_bits(request, Resource.GROUP, group_id)
    answer.update(
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=[_member(request, member) for member in group.members],
    )
    return answer


def _check_topics(request: Request, group: ConsumerGroupDescription) -> None:
    """Raise `TopicAuthorizationError` unless the client may describe all topics that the group's members subscribe to."""
    for name in {name for member in group.members for name in member.topics}:
        if not allows_topic(request, Operation.DESCRIBE, name):
            raise TopicAuthorizationError(
                "The group has described topic(s) that the client is not authorized to describe."
            )


def _member(request: Request, member: ConsumerMemberDescription) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topics,
        "subscribed_topic_regex": member.regex,
        "assignment": _assignment(request, member.assignment),
        "target_assignment": _assignment(request, member.target),
        "member_type": _CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    }


def _assignment(request: Request, assignment: Assignment) -> dict[str, Any]:
    """Return the partitions of existing topics. A deleted topic has no name any more."""
    topics = request.context.broker.topics
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "topic_name": topic.name, "partitions": partitions}
            for topic_id, partitions in by_topic(assignment).items()
            if (topic := topics.find_id(topic_id)) is not None
        ]
    }
