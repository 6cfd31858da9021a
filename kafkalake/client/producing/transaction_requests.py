"""The requests of a transactional producer to its coordinators, and the errors in their responses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kafkalake.client.producing.idempotence import Identity
from kafkalake.client.producing.identities import error_in
from kafkalake.client.records import ConsumerGroupMetadata, OffsetAndMetadata
from kafkalake.client.requests import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    END_TXN_AND_RAISE_EPOCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    TXN_OFFSET_COMMIT_AND_ADD,
    A,
    ClientApi,
    error_name,
)
from kafkalake.errors import KafkaError, NetworkExceptionError, OperationNotAttemptedError, error_for_code
from kafkalake.topic_partition import TopicPartition, partition_name
from kafkalake.wire.messages.groups import FindCoordinatorRequest
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.offsets import (
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from kafkalake.wire.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

GROUP, TRANSACTION = 0, 1
"""Types of keys that have a coordinator."""

Codes = dict[TopicPartition, int]
"""Error codes by partition."""


class Kind(Enum):
    """The requests."""

    FIND = "find"
    INITIALIZE = "initialize"
    ADD_PARTITIONS = "add partitions"
    ADD_GROUP = "add a group"
    COMMIT_OFFSETS = "commit offsets"
    END = "end"


@dataclass(frozen=True, slots=True)
class Step:
    """A request. key: type and name that its coordinator is found by, None for any broker. errors: those in a response.

    found, partitions, group_id: what the coordinator was asked for.
    """

    kind: Kind
    api: ClientApi[Any, Any]
    message: Message
    key: tuple[int, str] | None
    errors: Callable[[Any], list[KafkaError]]
    found: tuple[int, str] | None = None
    partitions: frozenset[TopicPartition] = frozenset()
    group_id: str = ""


def find(key: tuple[int, str]) -> Step:
    """Return the request for a coordinator."""
    return Step(
        Kind.FIND,
        FIND_COORDINATOR,
        FindCoordinatorRequest(key=key[1], key_type=key[0]),
        None,
        _top_level(f"the coordinator of '{key[1]}'"),
        found=key,
    )


def initialize(transactional_id: str, timeout_ms: int, identity: Identity) -> Step:
    """Return the request for a producer id, or for the next epoch of `identity`."""
    message = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout=timeout_ms,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
    )

    def errors(response: InitProducerIdResponse) -> list[KafkaError]:
        error = error_in(response, transactional_id)
        return [] if error is None else [error]

    return Step(Kind.INITIALIZE, INIT_PRODUCER_ID, message, (TRANSACTION, transactional_id), errors)


def add_partitions(transactional_id: str, identity: Identity, partitions: Iterable[TopicPartition]) -> Step:
    """Return the request that adds partitions to the transaction."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(partitions):
        by_topic[topic].append(partition)
    message = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in by_topic.items()],
    )
    return Step(
        Kind.ADD_PARTITIONS,
        ADD_PARTITIONS_TO_TXN,
        message,
        (TRANSACTION, transactional_id),
        _answers_of(frozenset(partitions), _added_partitions),
        partitions=frozenset(partitions),
    )


def add_group(transactional_id: str, identity: Identity, group_id: str) -> Step:
    """Return the request that adds the offsets of a group to the transaction."""
    message = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        group_id=group_id,
    )
    return Step(
        Kind.ADD_GROUP,
        ADD_OFFSETS_TO_TXN,
        message,
        (TRANSACTION, transactional_id),
        _top_level(f"group '{group_id}'"),
        group_id=group_id,
    )


def commit_offsets(
    transactional_id: str,
    identity: Identity,
    offsets: dict[TopicPartition, OffsetAndMetadata],
    group: ConsumerGroupMetadata,
    *,
    adds: bool,
) -> Step:
    """Return the request that commits offsets in the transaction. adds: it adds the group too."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for (topic, partition), offset in offsets.items():
        entry = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset.offset,
            committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
            committed_metadata=offset.metadata,
        )
        by_topic[topic].append(entry)
    message = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in by_topic.items()],
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
    )
    api = TXN_OFFSET_COMMIT_AND_ADD if adds else TXN_OFFSET_COMMIT
    errors = _answers_of(offsets.keys(), _committed_offsets)
    return Step(Kind.COMMIT_OFFSETS, api, message, (GROUP, group.group_id), errors)


def end(transactional_id: str, identity: Identity, *, is_commit: bool, raises_epoch: bool) -> Step:
    """Return the request that ends the transaction. raises_epoch: its response has the next epoch."""
    message = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        committed=is_commit,
    )
    api = END_TXN_AND_RAISE_EPOCH if raises_epoch else END_TXN
    return Step(Kind.END, api, message, (TRANSACTION, transactional_id), _top_level(transactional_id))


def _top_level(subject: str) -> Callable[[Any], list[KafkaError]]:
    def errors(response: Any) -> list[KafkaError]:
        return _errors([(response.error_code, subject)])

    return errors


def _added_partitions(response: AddPartitionsToTxnResponse) -> Codes:
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }


def _committed_offsets(response: TxnOffsetCommitResponse) -> Codes:
    return {
        (topic.name, each.partition_index): each.error_code for topic in response.topics for each in topic.partitions
    }


def _answers_of(partitions: Collection[TopicPartition], codes: Callable[[A], Codes]) -> Callable[[A], list[KafkaError]]:
    """Return the function that finds the errors of partitions in a response. One that it lacks may have any."""

    def errors(response: A) -> list[KafkaError]:
        found = codes(response)
        lacking = [each for each in sorted(partitions) if each not in found]
        if lacking:
            return [NetworkExceptionError(f"the response has no result for partition {partition_name(lacking[0])}")]
        return _errors((code, f"partition {partition_name(each)}") for each, code in found.items())

    return errors


def _errors(codes: Iterable[tuple[int, str]]) -> list[KafkaError]:
    """Return the errors of codes. One partition's error leaves others untried, which is no error of theirs."""
    return [
        error_for_code(code, f"{subject}: {error_name(code).lower()}")
        for code, subject in codes
        if code not in (0, OperationNotAttemptedError.code)
    ]
