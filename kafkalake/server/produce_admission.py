"""Transactional batches of a Produce request, appended after the transaction coordinator has admitted them.

Nothing of the request is appended before. Refused batches get the error that matches the request's version.
"""

from __future__ import annotations

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.partitions.append_queue import ProduceRequest
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.transactions.requests import PartitionResults
from kafkalake.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
    TransactionAbortableError,
)
from kafkalake.record import layout as at
from kafkalake.server.request import Request
from kafkalake.server.transaction_lookup import check_transactional_id
from kafkalake.topic_partition import TopicPartition

_ABORTABLE_SINCE = 11
_ADDS_SINCE = 12
_UNAVAILABLE = (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError)


def admit(request: Request[object], transactional_id: str, produce: ProduceRequest) -> None:
    """Start `produce` once each of its transactional batches is admitted or refused."""
    waiting: dict[TopicPartition, list[PendingAppend]] = {}
    producers: set[ProducerIdAndEpoch] = set()
    for each in produce.batches:
        if each.result is None and each.batch is not None and each.partition is not None:
            header = each.batch.header
            if header[at.ATTRIBUTES] & at.ATTRIBUTE_TRANSACTIONAL:
                waiting.setdefault((each.partition.topic.name, each.partition.index), []).append(each)
                producers.add(ProducerIdAndEpoch(int(header[at.PRODUCER_ID]), int(header[at.PRODUCER_EPOCH])))
    broker = request.context.broker

    def admitted(results: PartitionResults) -> None:
        for key, error in results.items():
            if error is not None:
                for refused in waiting[key]:
                    refused.refuse(_refusal(request.version, error))
        produce.start(broker.append_queue)

    if not waiting:
        admitted({})
        return
    try:
        check_transactional_id(request, transactional_id)
        if len(producers) > 1:
            raise InvalidProducerIdMappingError("Transactional records contained more than one producer ID")
    except KafkaError as error:
        admitted(dict.fromkeys(waiting, type(error)))
        return
    broker.transactions.admission.admit(
        transactional_id, producers.pop(), tuple(waiting), request.guarded(admitted), add=request.version >= _ADDS_SINCE
    )


def _refusal(version: int, error: ErrorClass) -> KafkaError:
    """Return the error for the client. Older versions lack some errors and get one with the right client behaviour."""
    if error is ProducerFencedError:
        return InvalidProducerEpochError()
    if error in _UNAVAILABLE or (error is ConcurrentTransactionsError and version < _ADDS_SINCE):
        return NotEnoughReplicasError(
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.label}"
        )
    if error is TransactionAbortableError and version < _ABORTABLE_SINCE:
        error = InvalidTxnStateError
    if error is InvalidTxnStateError:
        return InvalidTxnStateError("Partition was not added to the transaction")
    return error()
