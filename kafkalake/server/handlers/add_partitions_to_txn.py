"""AddPartitionsToTxn (24), versions 0-5: add partitions to a producer's transaction before it writes to them.

- 2: PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before. 3: flexible. 4: several transactions in one request, and `verify_only`: between
  brokers (KIP-890). 5: TRANSACTION_ABORTABLE if a partition to verify is not in the transaction.
  Of version 4 on the producer takes part in transactions version 2. A group's partition of `__consumer_offsets` may be added then.
- All or nothing: if a partition does not exist, the others get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from functools import partial

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.transactions.ending import CLIENT_VERSION_2
from kafkalake.broker.transactions.requests import PartitionResults
from kafkalake.errors import (
    InvalidTxnStateError,
    KafkaError,
    OperationNotAttemptedError,
    TopicAuthorizationError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from kafkalake.internal_topics import DELAYED_JOURNAL, GROUP_JOURNAL, INTERNAL
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_topic
from kafkalake.server.transaction_lookup import check_transactional_id, transaction_code
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

_BATCHED_SINCE = 4
_FENCED_SINCE = 2
_ABORTABLE_SINCE = 5


def handle(request: Request[AddPartitionsToTxnRequest]) -> Generator[None, None, None]:
    if request.version >= _BATCHED_SINCE:
        yield from _Batch(request).start()
        return
    body = request.body
    producer = ProducerIdAndEpoch(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
    topics = body.v3_and_below_topics

    def reply(results: PartitionResults) -> None:
        request.work(_answer_one(request, topics, results))

    yield from _decide(request, body.v3_and_below_transactional_id, producer, topics, request.guarded(reply))


class _Batch:
    """Replies when all transactions of the request have their results."""

    def __init__(self, request: Request[AddPartitionsToTxnRequest]) -> None:
        self._request = request
        self._transactions = request.body.transactions
        self._results: dict[int, PartitionResults] = {}

    def start(self) -> Generator[None, None, None]:
        if not self._transactions:
            self._request.reply(AddPartitionsToTxnResponse())
        for number, one in enumerate(self._transactions):
            producer = ProducerIdAndEpoch(one.producer_id, one.producer_epoch)
            yield from _decide(
                self._request,
                one.transactional_id,
                producer,
                one.topics,
                self._request.guarded(partial(self._decided, number)),
                verify_only=one.verify_only,
            )
            yield

    def _decided(self, number: int, results: PartitionResults) -> None:
        self._results[number] = results
        if len(self._results) == len(self._transactions):
            self._request.work(self._answer())

    def _answer(self) -> Generator[None, None, AddPartitionsToTxnResponse]:
        answers = []
        for number, one in enumerate(self._transactions):
            topics = yield from _topics(self._request, one.topics, self._results[number])
            answers.append(AddPartitionsToTxnResult(transactional_id=one.transactional_id, topic_results=topics))
            yield
        return AddPartitionsToTxnResponse(results_by_transaction=answers)


def _decide(
    request: Request[AddPartitionsToTxnRequest],
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    topics: Iterable[AddPartitionsToTxnTopic],
    reply: Callable[[PartitionResults], None],
    *,
    verify_only: bool = False,
) -> Generator[None, None, None]:
    keys = yield from _keys(topics)
    try:
        check_transactional_id(request, transactional_id)
    except KafkaError as error:
        reply(dict.fromkeys(keys, type(error)))
        return
    if verify_only:
        request.context.broker.transactions.admission.verify(transactional_id, producer, keys, reply)
    else:
        yield from _add(request, transactional_id, producer, keys, reply)


def _add(
    request: Request[AddPartitionsToTxnRequest],
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    keys: list[TopicPartition],
    reply: Callable[[PartitionResults], None],
) -> Generator[None, None, None]:
    between_brokers = request.version >= _BATCHED_SINCE
    internal = INTERNAL - {GROUP_JOURNAL, DELAYED_JOURNAL} if between_brokers else INTERNAL
    partitions = {name: _writable_partitions(request, name, internal) for name in {name for name, _ in keys}}
    refused: dict[TopicPartition, ErrorClass] = {}
    for key in keys:
        refusal = _refusal(key, partitions)
        if refusal is not None:
            refused[key] = refusal
        yield
    if refused:
        reply({**dict.fromkeys(keys, OperationNotAttemptedError), **refused})
        return
    request.context.broker.transactions.admission.add(
        transactional_id,
        producer,
        keys,
        lambda error: reply(dict.fromkeys(keys, error)),
        client_version=CLIENT_VERSION_2 if between_brokers else 0,
    )


def _keys(topics: Iterable[AddPartitionsToTxnTopic]) -> Generator[None, None, list[TopicPartition]]:
    keys: dict[TopicPartition, None] = {}
    for topic in topics:
        keys.update(((topic.name, index), None) for index in topic.partitions)
        yield
    return list(keys)


def _writable_partitions(
    request: Request[AddPartitionsToTxnRequest], name: str, internal: Collection[str]
) -> int | ErrorClass:
    """Return the topic's number of partitions, or the error that prevents writing to it."""
    try:
        if name in internal:
            raise TopicAuthorizationError()
        return len(find_topic(request, name).registrations)
    except KafkaError as error:
        return type(error)


def _refusal(key: TopicPartition, partitions: Mapping[str, int | ErrorClass]) -> ErrorClass | None:
    name, index = key
    found = partitions[name]
    if not isinstance(found, int):
        return found
    return None if 0 <= index < found else UnknownTopicOrPartitionError


def _answer_one(
    request: Request[AddPartitionsToTxnRequest], topics: Iterable[AddPartitionsToTxnTopic], results: PartitionResults
) -> Generator[None, None, AddPartitionsToTxnResponse]:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(yield from _topics(request, topics, results)))


def _topics(
    request: Request[AddPartitionsToTxnRequest], topics: Iterable[AddPartitionsToTxnTopic], results: PartitionResults
) -> Generator[None, None, list[AddPartitionsToTxnTopicResult]]:
    answers: list[AddPartitionsToTxnTopicResult] = []
    for topic in topics:
        answers.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=(partitions := [])))
        for index in topic.partitions:
            error = _code(request, results[topic.name, index])
            partitions.append(AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=error))
            yield
        yield
    return answers


def _code(request: Request[AddPartitionsToTxnRequest], error: ErrorClass | None) -> int:
    if error is TransactionAbortableError and request.version < _ABORTABLE_SINCE:
        return InvalidTxnStateError.code
    return transaction_code(request, error, _FENCED_SINCE)
