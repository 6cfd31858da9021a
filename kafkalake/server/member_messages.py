"""The values of `broker.controller.protocol` as messages, and back: a broker sends them, the controller's handlers receive them.

What may be long is read and written in turns (`server.turns`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import groupby

from kafkalake.broker.controller.protocol import Heartbeat
from kafkalake.cluster.controller_election import Vote
from kafkalake.cluster.image import BrokerRegistration, ControllerRegistration, Endpoint, TopicIdPartition
from kafkalake.cluster.partition_changes import ANY_EPOCH, IsrChange, IsrState, Replica
from kafkalake.config.listener import KAFKAS_PROTOCOLS
from kafkalake.errors import InvalidRequestError, KafkaError, error_for_code
from kafkalake.wire.messages.membership import (
    AlteredPartition,
    AlteredPartitionTopic,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    IsrMember,
    OfflineTopic,
    RegisteredListener,
)

_RECOVERED, _RECOVERING = 0, 1
_NO_EPOCH = -1
_LISTENERS_MAX = 100
_TEXT_MAX = 255
"""Of a name, a host, a rack, in characters: the length of a host name."""
_VOTES = (None, Vote.REACHES, Vote.MISSES)


def registration_request(
    broker: BrokerRegistration, cluster_id: str, *, previous_epoch: int, is_cut: bool
) -> BrokerRegistrationRequest:
    """Return the request by which a broker registers."""
    return BrokerRegistrationRequest(
        broker_id=broker.broker_id,
        cluster_id=cluster_id,
        incarnation_id=broker.incarnation_id,
        listeners=_listeners(broker.endpoints),
        rack=broker.rack,
        previous_broker_epoch=previous_epoch,
        machine=broker.machine,
        boot_id=broker.boot_id,
        is_cut=is_cut,
        is_voter=broker.is_voter,
    )


def _listeners(endpoints: Iterable[Endpoint]) -> list[RegisteredListener]:
    return [
        RegisteredListener(
            name=each.listener,
            host=each.host,
            port=each.port,
            security_protocol=KAFKAS_PROTOCOLS.index(each.security_protocol),
        )
        for each in endpoints
    ]


def registration_of(body: BrokerRegistrationRequest) -> BrokerRegistration:
    """Return the registration in a request, without an epoch. Raise `InvalidRequestError` if it lacks what a broker needs."""
    if body.incarnation_id is None or body.broker_id < 0:
        raise InvalidRequestError("A broker registers with its id and an incarnation id.")
    _require_short(body.rack or "", body.machine, body.boot_id)
    return BrokerRegistration(
        body.broker_id,
        _NO_EPOCH,
        body.incarnation_id,
        _endpoints(body.listeners),
        body.rack,
        body.machine,
        body.boot_id,
        is_voter=body.is_voter,
    )


def _endpoints(listeners: Sequence[RegisteredListener]) -> tuple[Endpoint, ...]:
    names = {each.name for each in listeners}
    unknown = any(not 0 <= each.security_protocol < len(KAFKAS_PROTOCOLS) for each in listeners)
    if not 0 < len(listeners) <= _LISTENERS_MAX or len(names) < len(listeners) or unknown:
        raise InvalidRequestError("Each listener has a name of its own and one of Kafka's security protocols.")
    for each in listeners:
        _require_short(each.name, each.host)
    return tuple(
        Endpoint(each.name, each.host, each.port, KAFKAS_PROTOCOLS[each.security_protocol]) for each in listeners
    )


def _require_short(*texts: str) -> None:
    """Raise `InvalidRequestError` if a text is too long to be kept in the image of the cluster."""
    if any(len(each) > _TEXT_MAX for each in texts):
        raise InvalidRequestError(f"A text of a registration has at most {_TEXT_MAX} characters.")


def controller_request(node: ControllerRegistration) -> ControllerRegistrationRequest:
    """Return the request by which a node registers that is a controller only."""
    return ControllerRegistrationRequest(
        controller_id=node.controller_id, incarnation_id=node.incarnation_id, listeners=_listeners(node.endpoints)
    )


def controller_of(body: ControllerRegistrationRequest) -> ControllerRegistration:
    """Return the registration in a request. Raise `InvalidRequestError` if it lacks what a controller needs."""
    if body.incarnation_id is None or body.controller_id < 0:
        raise InvalidRequestError("A controller registers with its id and an incarnation id.")
    return ControllerRegistration(body.controller_id, body.incarnation_id, _endpoints(body.listeners))


def heartbeat_request(heartbeat: Heartbeat) -> BrokerHeartbeatRequest:
    """Return the request of a sign of life."""
    return BrokerHeartbeatRequest(
        broker_id=heartbeat.broker_id,
        broker_epoch=heartbeat.broker_epoch,
        current_metadata_offset=heartbeat.version,
        want_fence=heartbeat.wants_fence,
        want_shut_down=heartbeat.wants_shutdown,
        offline_topics=_by_topic(heartbeat.offline),
        cut_topics=_by_topic(heartbeat.cut),
    )


def _by_topic(replicas: Iterable[TopicIdPartition]) -> list[OfflineTopic]:
    topics = groupby(sorted(replicas), lambda each: each[0])
    return [OfflineTopic(topic_id=topic_id, partitions=[index for _, index in each]) for topic_id, each in topics]


def heartbeat_of(body: BrokerHeartbeatRequest) -> Generator[None, None, Heartbeat]:
    """Return the sign of life in a request."""
    offline = yield from _replicas_of(body.offline_topics)
    cut = yield from _replicas_of(body.cut_topics)
    return Heartbeat(
        body.broker_id,
        body.broker_epoch,
        body.current_metadata_offset,
        body.want_fence,
        body.want_shut_down,
        offline,
        cut,
    )


def _replicas_of(topics: Sequence[OfflineTopic]) -> Generator[None, None, frozenset[TopicIdPartition]]:
    found = set()
    for topic in topics:
        if topic.topic_id is not None:
            for index in topic.partitions:
                found.add((topic.topic_id, index))
                yield
        yield
    return frozenset(found)


def code_of_vote(vote: Vote | None) -> int:
    """Return the number of a vote in a message."""
    return _VOTES.index(vote)


def vote_of_code(code: int) -> Vote | None:
    """Return a vote by its number in a message."""
    return _VOTES[code] if 0 <= code < len(_VOTES) else None


def isr_request(broker_id: int, broker_epoch: int, changes: Iterable[IsrChange]) -> AlterPartitionRequest:
    """Return the request of changes of ISRs."""
    topics = groupby(sorted(changes, key=lambda each: each.partition), lambda each: each.partition[0])
    return AlterPartitionRequest(
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        topics=[
            AlterPartitionTopic(
                topic_id=topic_id,
                partitions=[
                    AlterPartitionData(
                        partition_index=each.partition[1],
                        leader_epoch=each.leader_epoch,
                        new_isr_with_epochs=[
                            IsrMember(broker_id=replica.broker_id, broker_epoch=replica.broker_epoch)
                            for replica in each.isr
                        ],
                        leader_recovery_state=_RECOVERING if each.is_recovering else _RECOVERED,
                        partition_epoch=each.partition_epoch,
                    )
                    for each in partitions
                ],
            )
            for topic_id, partitions in topics
        ],
    )


def isr_changes_of(body: AlterPartitionRequest) -> Generator[None, None, list[IsrChange]]:
    """Return the changes of ISRs in a request. Raise `InvalidRequestError` if one is of no topic."""
    found = []
    for topic in body.topics:
        if topic.topic_id is None:
            raise InvalidRequestError("The ISR of a partition is changed by the id of its topic.")
        for each in topic.partitions:
            isr = [Replica(member.broker_id, member.broker_epoch) for member in each.new_isr_with_epochs]
            isr = isr or [Replica(broker_id, ANY_EPOCH) for broker_id in each.new_isr]  # version 2
            found.append(
                IsrChange(
                    (topic.topic_id, each.partition_index),
                    each.leader_epoch,
                    each.partition_epoch,
                    tuple(isr),
                    each.leader_recovery_state == _RECOVERING,
                )
            )
            yield
        yield
    return found


def isr_response(
    changes: Sequence[IsrChange], outcomes: Sequence[IsrState | KafkaError]
) -> Generator[None, None, AlterPartitionResponse]:
    """Return the response to changes of ISRs, each with its outcome."""
    topics = []
    for topic_id, each in groupby(zip(changes, outcomes, strict=True), lambda each: each[0].partition[0]):
        partitions = []
        for change, outcome in each:
            partitions.append(_altered(change.partition[1], outcome))
            yield
        topics.append(AlteredPartitionTopic(topic_id=topic_id, partitions=partitions))
    return AlterPartitionResponse(topics=topics)


def _altered(index: int, outcome: IsrState | KafkaError) -> AlteredPartition:
    if isinstance(outcome, KafkaError):
        return AlteredPartition(partition_index=index, error_code=outcome.code)
    return AlteredPartition(
        partition_index=index,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=outcome.isr,
        leader_recovery_state=_RECOVERING if outcome.is_recovering else _RECOVERED,
        partition_epoch=outcome.partition_epoch,
    )


def isr_outcomes(body: AlterPartitionResponse) -> dict[TopicIdPartition, IsrState | KafkaError]:
    """Return the outcomes in a response."""
    return {
        (topic.topic_id, each.partition_index): error_for_code(each.error_code)
        if each.error_code
        else IsrState(
            each.leader_id,
            each.leader_epoch,
            each.partition_epoch,
            tuple(each.isr),
            each.leader_recovery_state == _RECOVERING,
        )
        for topic in body.topics
        if topic.topic_id is not None
        for each in topic.partitions
    }
