"""Metadata (3), versions 0-13: brokers, topics, partitions and their leaders.

- 0: an empty list means all topics. 1: null means all, empty none; controller, rack, internal topics. 2: cluster id.
  4: the client may forbid auto creation. 5: offline replicas. 7: leader epoch. 8: authorized operations. 10: topic ids in
  the response. 12: topics may be requested by id. 13: an error for the whole response.
- Auto creation is the controller's: another broker sends it CreateTopics, as the client. While the client's quota of mutations is
  exceeded there is no such topic: the client asks again, as with Kafka.
- Auto creation, if `auto.create.topics.enable` and the client allow it: the topic is created (num.partitions) before the
  response, so the client finds it at once. Kafka responds first and lets the client retry. Here that applies to topics beyond
  `auto.create.topics.partitions.per.second`: LEADER_NOT_AVAILABLE.
"""

from __future__ import annotations

from kafkalake.broker.partitions.topics import Topic
from kafkalake.cluster.image import NO_LEADER
from kafkalake.errors import (
    KafkaError,
    LeaderNotAvailableError,
    ListenerNotFoundError,
    ThrottlingQuotaExceededError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from kafkalake.internal_topics import DELAYED_JOURNAL, GROUP_JOURNAL, INTERNAL
from kafkalake.made_array import MadeArray
from kafkalake.server.authorizer import CLUSTER_NAME, OPERATIONS, Operation, Resource
from kafkalake.server.forwarding import entrance_to_controller, forward_as
from kafkalake.server.handlers.create_topics import refusal
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_described_topic, find_topic_by_id
from kafkalake.wire.messages.cluster import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    NodeEndpoint,
    PartitionMetadata,
    TopicMetadata,
)
from kafkalake.wire.messages.topics import CreatableTopic, CreateTopicsRequest

_CREATE_TOPICS_KEY, _CREATE_TOPICS_VERSION = 19, 7
_FOLLOW_TIMEOUT_MS = 1_000
NOT_ASKED = -(2**31)
"""Authorized operations that the request did not ask for."""


async def handle(request: Request[MetadataRequest]) -> MetadataResponse:
    body = request.body
    asked = body.topics
    if asked is None or (request.version == 0 and not asked):
        topics = []
        for topic in request.context.broker.topics:
            if request.allows(Resource.TOPIC, topic.name):
                topics.append(_topic(request, topic))
                await request.turn()
    else:
        topics = []
        for each in {(each.topic_id, each.name): each for each in asked}.values():
            topics.append(await _find(request, each))
            await request.turn()
    return _answer(request, topics)


def _answer(request: Request[MetadataRequest], topics: list[TopicMetadata]) -> MetadataResponse:
    cluster = request.context.broker.cluster
    operations = NOT_ASKED
    if request.body.include_cluster_authorized_operations:
        operations = operation_bits(request, Resource.CLUSTER, CLUSTER_NAME)
    return MetadataResponse(
        brokers=[
            NodeEndpoint(node_id=each.broker_id, host=address.host, port=address.port, rack=each.rack)
            for each, address in cluster.reachable(request.listener)
        ],
        cluster_id=cluster.cluster_id,
        controller_id=entrance_to_controller(request.context),
        cluster_authorized_operations=operations,
        topics=topics,
    )


def operation_bits(request: Request[object], resource: Resource, name: str) -> int:
    """Return the allowed operations as Kafka's bit set: bit n is operation number n (KIP-430)."""
    allows = request.context.authorizer.allows
    principal = request.connection.principal
    return sum(1 << each.value for each in OPERATIONS[resource] if allows(principal, each, resource, name))


async def _find(request: Request[MetadataRequest], asked: MetadataRequestTopic) -> TopicMetadata:
    topic_id, name = asked.topic_id, asked.name
    try:
        if topic_id is not None:
            return _topic(request, find_topic_by_id(request, topic_id))
        broker = request.context.broker
        assert name is not None or request.version >= 10
        may_create = request.body.allow_auto_topic_creation and broker.config.auto_create_topics_enable
        if name is not None and name not in broker.topics and may_create:
            await _create(request, name)
        return _topic(request, find_described_topic(request, name or ""))
    except KafkaError as error:
        return TopicMetadata(error_code=error.code, name=name or None, topic_id=topic_id)


async def _create(request: Request[MetadataRequest], name: str) -> None:
    if not request.allows(Resource.TOPIC, name, Operation.CREATE):
        return
    try:
        if name == GROUP_JOURNAL:
            await request.context.broker.groups.journal.make_ready()
        elif name == DELAYED_JOURNAL:
            await request.context.broker.delayed.make_ready()
        elif request.context.broker.controller.is_active:
            mutations = request.context.quotas.mutations(request)
            await request.context.broker.topic_admin.auto_create(name, count=mutations.count)
        else:
            await _create_at_controller(request, name)
    except TopicAlreadyExistsError:
        return
    except ThrottlingQuotaExceededError:
        raise UnknownTopicOrPartitionError() from None


async def _create_at_controller(request: Request[MetadataRequest], name: str) -> None:
    """Have a topic created, and wait until this broker knows it. Raise `LeaderNotAvailableError` if that takes longer."""
    broker = request.context.broker
    broker.topic_admin.admit_auto_creation(name)
    before = broker.cluster.version
    body = CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)])
    answer = await forward_as(request, _CREATE_TOPICS_KEY, _CREATE_TOPICS_VERSION, body, refusal)
    code = answer.topics[0].error_code
    if code not in (0, TopicAlreadyExistsError.code):
        raise error_for_code(code)
    await broker.membership.follow(before + 1, _FOLLOW_TIMEOUT_MS)
    if name not in broker.topics:
        raise LeaderNotAvailableError()


def _topic(request: Request[MetadataRequest], topic: Topic) -> TopicMetadata:
    asked = request.body.include_topic_authorized_operations
    operations = operation_bits(request, Resource.TOPIC, topic.name) if asked else NOT_ASKED
    partitions = range(len(topic.registrations))
    return topic_metadata(request, topic, partitions, operations, knows_listeners=request.version >= 6)


def topic_metadata(
    request: Request[object],
    topic: Topic,
    partitions: range,
    operations: int,
    *,
    knows_listeners: bool,
) -> TopicMetadata:
    """Return the description of a topic and of some of its partitions, by number, which are described as they are now.

    `knows_listeners`: the client understands LISTENER_NOT_FOUND, for a leader without the listener that the client is connected to.
    """
    cluster, registrations = request.context.broker.cluster, topic.registrations
    leaders = {each.broker_id for each, _ in cluster.reachable(request.listener)}

    def error_code(leader: int) -> int:
        if leader in leaders:
            return 0
        is_alive = leader in cluster.brokers and not cluster.brokers[leader].is_fenced
        return ListenerNotFoundError.code if knows_listeners and is_alive else LeaderNotAvailableError.code

    def describe(index: int) -> PartitionMetadata:
        each = registrations[index]
        return PartitionMetadata(
            error_code=error_code(each.leader),
            partition_index=index,
            leader_id=each.leader if each.leader in leaders else NO_LEADER,
            leader_epoch=each.leader_epoch,
            replica_nodes=each.replicas,
            isr_nodes=each.isr,
            eligible_leader_replicas=each.elr,
            last_known_elr=each.last_known_elr,
            offline_replicas=each.offline,
        )

    return TopicMetadata(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL,
        partitions=MadeArray(describe, partitions),
        topic_authorized_operations=operations,
    )
