"""TxnOffsetCommit (28), versions 0-5: commit a group's offsets in a transaction. They take effect with its commit marker.

- 2: leader epochs. 3: flexible; the consumer's identity (generation, member, `group_instance_id`: KIP-447). 4:
  TRANSACTION_ABORTABLE, INVALID_TXN_STATE before. 5: adds the group to the transaction, without AddOffsetsToTxn (KIP-890).
- A partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION, and the others are committed.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.groups.offset_requests import CommitRequest, OffsetToCommit, PartitionErrors
from kafkalake.broker.transactions.requests import PartitionResults
from kafkalake.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    InvalidGroupIdError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from kafkalake.server.group_lookup import check_group
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic
from kafkalake.server.transaction_lookup import check_transactional_id
from kafkalake.wire.messages.offsets import (
    OffsetCommitRequestPartition,
    PartitionResult,
    TopicResult,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

_ABORTABLE_SINCE = 4
_ADDS_SINCE = 5


def handle(request: Request[TxnOffsetCommitRequest]) -> Generator[None, None, None]:
    body, broker = request.body, request.context.broker
    producer = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
    try:
        check_transactional_id(request, body.transactional_id)
        check_group(request, body.group_id)
        if not body.group_id:
            raise InvalidGroupIdError
    except KafkaError as error:
        _refuse(request, type(error))
        return
    refused: dict[str, ErrorClass] = {}
    offsets: list[OffsetToCommit] = []
    for topic in body.topics:
        refusal = _refusal(request, topic.name)
        if refusal is not None:
            refused[topic.name] = refusal
        else:
            for each in topic.partitions:
                offsets.append(_offset(topic.name, each))
                yield
    commit = CommitRequest(
        group_id=body.group_id,
        offsets=offsets,
        member_id=body.member_id,
        group_instance_id=body.group_instance_id,
        generation_id=body.generation_id,
        producer=producer,
    )
    key = broker.groups.journal.key(body.group_id)

    def admitted(results: PartitionResults) -> None:
        refusal = results[key]
        if refusal is not None:
            _refuse(request, refusal)
        else:
            broker.groups.offsets.commit(commit, request.guarded(lambda errors: _reply(request, refused, errors)))

    broker.transactions.admission.admit(
        body.transactional_id, producer, (key,), request.guarded(admitted), add=request.version >= _ADDS_SINCE
    )


def _offset(name: str, each: OffsetCommitRequestPartition) -> OffsetToCommit:
    return OffsetToCommit(
        name, each.partition_index, each.committed_offset, each.committed_leader_epoch, each.committed_metadata or ""
    )


def _refusal(request: Request[TxnOffsetCommitRequest], name: str) -> ErrorClass | None:
    try:
        find_topic(request, name)
    except UnknownTopicOrPartitionError:
        return None  # the commit returns this error for each partition
    except KafkaError as error:
        return type(error)
    return None


def _refuse(request: Request[TxnOffsetCommitRequest], error: ErrorClass) -> None:
    refused = {topic.name: error for topic in request.body.topics}
    _reply(request, refused, {})


def _reply(request: Request[TxnOffsetCommitRequest], refused: dict[str, ErrorClass], errors: PartitionErrors) -> None:
    request.work(_answer(request, refused, errors))


def _answer(
    request: Request[TxnOffsetCommitRequest], refused: dict[str, ErrorClass], errors: PartitionErrors
) -> Generator[None, None, TxnOffsetCommitResponse]:
    answers: list[TopicResult] = []
    for topic in request.body.topics:
        answers.append(TopicResult(name=topic.name, partitions=(partitions := [])))
        for each in topic.partitions:
            error = refused.get(topic.name) or errors.get((topic.name, each.partition_index))
            partitions.append(PartitionResult(partition_index=each.partition_index, error_code=_code(request, error)))
            yield
        yield
    return TxnOffsetCommitResponse(topics=answers)


def _code(request: Request[TxnOffsetCommitRequest], error: ErrorClass | None) -> int:
    """Return the error code for the client. Older versions lack some errors and get one with the right client behaviour."""
    if error is None:
        return 0
    if error is ProducerFencedError:
        return InvalidProducerEpochError.code
    if error is TransactionAbortableError and request.version < _ABORTABLE_SINCE:
        return InvalidTxnStateError.code
    if error is ConcurrentTransactionsError and request.version < _ADDS_SINCE:
        return CoordinatorLoadInProgressError.code
    return error.code
