"""ConsumerGroupHeartbeat (68), versions 0-1: join, stay in and leave a group of the consumer protocol (KIP-848).

- 0: the broker assigns an id to a joining member without one. 1: the client always chooses it (KIP-1082); regular
  expressions of topics, matched here.
- Answered when its changes are durable. Null fields have not changed since the last heartbeat.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from kafkalake.broker.groups import assignors
from kafkalake.broker.groups.consumer_requests import JOIN_EPOCH, HeartbeatRequest, HeartbeatResult
from kafkalake.errors import KafkaError, TopicAuthorizationError
from kafkalake.server.authorizer import Resource
from kafkalake.server.group_lookup import check_group, code_of
from kafkalake.server.request import Request
from kafkalake.topic_partition import by_topic
from kafkalake.uuid_text import ZERO_UUID, encode_uuid
from kafkalake.wire.messages.groups import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_OWN_MEMBER_ID_VERSION = 1


def handle(request: Request[ConsumerGroupHeartbeatRequest]) -> Generator[None, None, None]:
    body = request.body

    def reply(result: HeartbeatResult) -> None:
        _reply(request, result)

    try:
        check_group(request, body.group_id)
        for name in body.subscribed_topic_names or ():
            if not request.allows(Resource.TOPIC, name):
                raise TopicAuthorizationError()
            yield
    except KafkaError as error:
        reply(HeartbeatResult(type(error), message=request.error_text(error)))
        return
    member_id = body.member_id
    if not member_id and body.member_epoch == JOIN_EPOCH and request.version < _OWN_MEMBER_ID_VERSION:
        member_id = encode_uuid(request.context.broker.world.ids())
    names = body.subscribed_topic_names
    heartbeat = HeartbeatRequest(
        member_id=member_id,
        member_epoch=body.member_epoch,
        client_id=request.client_id or "",
        client_host=f"/{request.connection.address}",
        group_instance_id=body.instance_id,
        rack_id=body.rack_id,
        rebalance_timeout_ms=body.rebalance_timeout,
        topics=None if names is None else tuple(names),
        regex=body.subscribed_topic_regex,
        assignor=body.server_assignor,
        owned=_owned(body.topic_partitions),
    )
    request.forget_body()
    request.context.broker.groups.consumers.heartbeat(body.group_id, heartbeat, request.guarded(reply))


def _owned(topics: Sequence[TopicPartitions] | None) -> assignors.Assignment | None:
    if topics is None:
        return None
    return frozenset((topic.topic_id or ZERO_UUID, partition) for topic in topics for partition in topic.partitions)


def _reply(request: Request[ConsumerGroupHeartbeatRequest], result: HeartbeatResult) -> None:
    if result.error is not None:
        request.reply(
            ConsumerGroupHeartbeatResponse(
                error_code=code_of(result.error), error_message=result.message or str(result.error())
            )
        )
        return
    assignment = None
    if result.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in by_topic(result.assignment).items()
            ]
        )
    request.reply(
        ConsumerGroupHeartbeatResponse(
            member_id=result.member_id,
            member_epoch=result.member_epoch,
            heartbeat_interval=result.heartbeat_interval_ms,
            assignment=assignment,
        )
    )
