"""ConsumerGroupDescribe (69), versions 0-1: state, epochs and members of groups of the consumer protocol (KIP-848).

GROUP_ID_NOT_FOUND for a missing group, or one of the classic protocol, which DescribeGroups describes. 1: whether a
member uses the classic protocol (KIP-1099), which none does here.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

from kafkalake.broker.groups import assignors
from kafkalake.broker.groups.consumer_requests import ConsumerGroupDescription, ConsumerMemberDescription
from kafkalake.broker.partitions.topics import Topics
from kafkalake.errors import KafkaError, TopicAuthorizationError
from kafkalake.made_array import made_from
from kafkalake.server.authorizer import Resource
from kafkalake.server.group_lookup import check_group
from kafkalake.server.handlers.metadata import NOT_ASKED, operation_bits
from kafkalake.server.request import Request
from kafkalake.topic_partition import by_topic
from kafkalake.wire.messages.groups import (
    Assignment,
    ConsumerGroupDescribeDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
    TopicPartitions,
)

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


def handle(request: Request[ConsumerGroupDescribeRequest]) -> Generator[None, None, ConsumerGroupDescribeResponse]:
    answers = []
    for each in dict.fromkeys(request.body.group_ids):
        answers.append((yield from _describe(request, each)))
        yield
    return ConsumerGroupDescribeResponse(groups=answers)


def _describe(
    request: Request[ConsumerGroupDescribeRequest], group_id: str
) -> Generator[None, None, ConsumerGroupDescribeDescribedGroup]:
    try:
        check_group(request, group_id)
        group = request.context.broker.groups.consumers.describe(group_id)
        yield from _check_topics(request, group)
    except KafkaError as error:
        message = request.error_text(error)
        return ConsumerGroupDescribeDescribedGroup(group_id=group_id, error_code=error.code, error_message=message)
    operations = NOT_ASKED
    if request.body.include_authorized_operations:
        operations = operation_bits(request, Resource.GROUP, group_id)
    return ConsumerGroupDescribeDescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=made_from(group.members, partial(_member, request.context.broker.topics)),
        authorized_operations=operations,
    )


def _check_topics(
    request: Request[ConsumerGroupDescribeRequest], group: ConsumerGroupDescription
) -> Generator[None, None, None]:
    """Raise `TopicAuthorizationError` unless the client may describe all topics that the group's members subscribe to."""
    checked: set[str] = set()
    for member in group.members:
        for name in member.topics:
            if name not in checked and not request.allows(Resource.TOPIC, name):
                raise TopicAuthorizationError(
                    "The group has described topic(s) that the client is not authorized to describe."
                )
            checked.add(name)
        yield


def _member(topics: Topics, member: ConsumerMemberDescription) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        subscribed_topic_regex=member.regex,
        assignment=_assignment(topics, member.assignment),
        target_assignment=_assignment(topics, member.target),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(topics: Topics, assignment: assignors.Assignment) -> Assignment:
    """Return the partitions of existing topics. A deleted topic has no name any more."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=partitions)
            for topic_id, partitions in by_topic(assignment).items()
            if (topic := topics.find_id(topic_id)) is not None
        ]
    )
