"""Transactions of a producer with a simulated coordinator, of both versions: errors of each kind, then life goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from simulated_producer import SimulatedProducer

from kafkalake.client.errors import IllegalStateError, TransactionAbortedError, TransactionMustAbortError
from kafkalake.client.producing.transactions import NEXT, Outcome, State, Transactions
from kafkalake.client.records import ConsumerGroupMetadata, OffsetAndMetadata
from kafkalake.client.requests import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    END_TXN_AND_RAISE_EPOCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    TXN_OFFSET_COMMIT_AND_ADD,
    ClientApi,
)
from kafkalake.errors import KafkaError, KafkaLakeError, ProducerFencedError, TransactionalIdAuthorizationError
from kafkalake.wire.messages.cluster import MetadataResponse
from kafkalake.wire.messages.groups import FindCoordinatorResponse
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.offsets import PartitionResult, TopicResult, TxnOffsetCommitResponse
from kafkalake.wire.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnResponse,
    InitProducerIdResponse,
)

NOT_COORDINATOR, LOADING, INVALID_EPOCH, MAPPING, CONCURRENT, FENCED = 16, 14, 47, 49, 51, 90
TOPIC_DENIED, GROUP_DENIED, TXN_DENIED, UNKNOWN_MEMBER, ABORTABLE, INVALID_RECORD = 29, 30, 53, 25, 120, 87
GROUP = ConsumerGroupMetadata("g", 3, "m")
OFFSETS = {("in", 0): OffsetAndMetadata(5)}


class TransactionalProducer(SimulatedProducer):
    """A transactional producer. `errors`: codes that the next requests of an API are answered with. `asked`: APIs, in order.

    lacking: how many of the next answers of an API have no partitions. Without `names_brokers` Metadata answers have none.
    """

    def __init__(self, version: int, *, names_brokers: bool = True, **settings: object) -> None:
        super().__init__(transactional_id="x", linger_ms=0, **settings)
        self.errors: dict[str, list[int]] = {}
        self.lacking: dict[str, int] = {}
        self.asked: list[str] = []
        self.epoch = -1
        self.ended: list[bool] = []
        self.coordinator = 1
        end = END_TXN_AND_RAISE_EPOCH if version == 2 else END_TXN
        commit = TXN_OFFSET_COMMIT_AND_ADD if version == 2 else TXN_OFFSET_COMMIT
        handlers: dict[ClientApi[Any, Any], Callable[[Any, int], Message]] = {
            FIND_COORDINATOR: lambda request, code: FindCoordinatorResponse(
                error_code=code, node_id=self.coordinator, host=f"b{self.coordinator}", port=9092
            ),
            INIT_PRODUCER_ID: self._init,
            ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ADD_OFFSETS_TO_TXN: lambda request, code: AddOffsetsToTxnResponse(error_code=code),
            commit: self._commit_offsets,
            end: self._end,
        }
        for broker in self.brokers:
            broker.features = {"transaction.version": version}
            broker.handlers |= {api: self._handler(api, handle) for api, handle in handlers.items()}
            if not names_brokers:
                broker.handlers[METADATA] = lambda request: MetadataResponse(topics=[])
        self.start()

    def do(self, operation: Callable[[Transactions], Outcome], milliseconds: int = 3_000) -> None:
        """Do an operation. Raise its error."""
        outcomes: list[Outcome] = []
        self.core.sender.call(lambda: outcomes.append(self.core.operate(operation)))
        self.run(milliseconds)
        assert outcomes[0].is_done
        outcomes[0].is_heard = True
        if outcomes[0].error is not None:
            raise outcomes[0].error

    @property
    def state(self) -> State:
        assert self.core.transactions is not None
        return self.core.transactions.state

    def write(self, value: bytes) -> None:
        """Send one record in a transaction of its own."""
        self.do(Transactions.begin)
        future = self.send(value)
        self.do(Transactions.commit)
        assert future.get(0)

    def _handler(self, api: ClientApi[Any, Any], handle: Callable[[Any, int], Message]) -> Callable[[Any], Message]:
        def answer(request: Any) -> Message:
            self.asked.append(api.name)
            codes = self.errors.get(api.name)
            return handle(request, codes.pop(0) if codes else 0)

        return answer

    def _init(self, request: Any, code: int) -> Message:
        self.epoch += not code
        return InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)

    def _lacks_partitions(self, api: str) -> bool:
        left = self.lacking.get(api, 0)
        self.lacking[api] = left - 1
        return left > 0

    def _add_partitions(self, request: Any, code: int) -> Message:
        if self._lacks_partitions("AddPartitionsToTxn"):
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[])
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
                        for each in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def _commit_offsets(self, request: Any, code: int) -> Message:
        assert (request.generation_id, request.member_id) == (3, "m")
        if self._lacks_partitions("TxnOffsetCommit"):
            return TxnOffsetCommitResponse(topics=[])
        return TxnOffsetCommitResponse(
            topics=[TopicResult(name="in", partitions=[PartitionResult(partition_index=0, error_code=code)])]
        )

    def _end(self, request: Any, code: int) -> Message:
        if not code:
            self.ended.append(request.committed)
            self.epoch += 1
        return EndTxnResponse(error_code=code, producer_id=7, producer_epoch=self.epoch)


@pytest.fixture(params=[1, 2])
def producer(request: pytest.FixtureRequest) -> TransactionalProducer:
    made = TransactionalProducer(request.param)
    made.do(Transactions.initialize)
    made.asked.clear()
    return made


def test_a_transaction_asks_for_what_its_version_needs(producer: TransactionalProducer) -> None:
    version = producer.brokers[0].features["transaction.version"]
    for _ in range(2):
        producer.do(Transactions.begin)
        future = producer.send(b"a")
        producer.do(lambda transactions: transactions.send_offsets(OFFSETS, GROUP))
        producer.do(Transactions.commit)
        assert future.get(0)
    once = ["AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"]
    if version == 2:
        once = ["TxnOffsetCommit", "EndTxn"]
    asked = [api for api in producer.asked if api != "FindCoordinator"]
    assert [sorted(asked[: len(once)]), sorted(asked[len(once) :])] == [sorted(once)] * 2
    assert producer.ended == [True, True]
    assert producer.logs["t", 0].producers[7][0] == (1 if version == 2 else 0)


def test_the_coordinator_is_asked_before_the_metadata_of_the_cluster_is_there() -> None:
    """It waited for the pause between retries, a tenth of a second of each producer that was faster than its metadata."""
    producer = TransactionalProducer(2, names_brokers=False)
    producer.do(Transactions.initialize, 1)
    assert producer.epoch == 0


def test_a_transaction_without_records_asks_nothing(producer: TransactionalProducer) -> None:
    for end in (Transactions.commit, Transactions.abort):
        producer.do(Transactions.begin)
        producer.do(end)
    assert producer.asked == []


def test_an_abort_fails_what_was_not_sent_and_the_next_transaction_goes_on(producer: TransactionalProducer) -> None:
    for _ in range(2):
        producer.do(Transactions.begin)
        sent = producer.send(b"sent")
        producer.run(1_000)
        assert sent.is_done
        unsent = producer.send(b"unsent")
        producer.do(Transactions.abort)
        with pytest.raises(TransactionAbortedError):
            unsent.get(0)
        producer.write(b"good")
    assert producer.ended == [False, True, False, True]


@pytest.mark.parametrize("code", [NOT_COORDINATOR, LOADING, CONCURRENT])
@pytest.mark.parametrize(
    "api", ["FindCoordinator", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "InitProducerId"]
)
def test_errors_that_may_pass_are_retried(api: str, code: int) -> None:
    producer = TransactionalProducer(1)
    producer.errors[api] = [code, code]
    producer.do(Transactions.initialize)
    producer.do(Transactions.begin)
    future = producer.send(b"a")
    producer.do(lambda transactions: transactions.send_offsets(OFFSETS, GROUP))
    producer.do(Transactions.commit)
    assert future.get(0)
    assert not producer.errors[api]
    assert producer.ended == [True]


@pytest.mark.parametrize(
    ("api", "code"),
    [
        ("AddPartitionsToTxn", TOPIC_DENIED),
        ("AddPartitionsToTxn", MAPPING),
        ("AddOffsetsToTxn", GROUP_DENIED),
        ("TxnOffsetCommit", UNKNOWN_MEMBER),
        ("EndTxn", ABORTABLE),
    ],
)
def test_after_some_errors_the_transaction_can_only_be_aborted(api: str, code: int) -> None:
    producer = TransactionalProducer(1)
    producer.do(Transactions.initialize)
    for _ in range(2):
        producer.errors[api] = [code]
        producer.do(Transactions.begin)
        producer.send(b"a")
        with pytest.raises(TransactionMustAbortError):
            producer.do(lambda transactions: transactions.send_offsets(OFFSETS, GROUP))
            producer.do(Transactions.commit)
        with pytest.raises(TransactionMustAbortError):
            producer.core.check_send()
        producer.do(Transactions.abort)
        producer.write(b"good")
    assert producer.ended.count(True) == 2


@pytest.mark.parametrize(
    ("api", "code", "error"),
    [
        ("EndTxn", FENCED, ProducerFencedError),
        ("EndTxn", INVALID_EPOCH, ProducerFencedError),
        ("AddPartitionsToTxn", TXN_DENIED, TransactionalIdAuthorizationError),
        ("EndTxn", INVALID_RECORD, KafkaError),
    ],
)
def test_after_other_errors_the_producer_is_unusable(api: str, code: int, error: type[KafkaLakeError]) -> None:
    producer = TransactionalProducer(1)
    producer.do(Transactions.initialize)
    producer.errors[api] = [code]
    producer.do(Transactions.begin)
    producer.send(b"a")
    for operation in (Transactions.commit, Transactions.abort, Transactions.begin):
        with pytest.raises(error):
            producer.do(operation)
    assert producer.state is State.FATAL_ERROR


def test_a_batch_that_fails_makes_the_transaction_fail(producer: TransactionalProducer) -> None:
    for _ in range(2):
        producer.do(Transactions.begin)
        producer.fault = lambda topic, partition: INVALID_RECORD
        producer.send(b"bad")
        producer.run(1_000)
        producer.fault = lambda topic, partition: 0
        with pytest.raises(TransactionMustAbortError, match="t-0"):
            producer.do(Transactions.commit)
        producer.do(Transactions.abort)
        producer.write(b"good")
    assert producer.logs["t", 0].values == [b"good", b"good"]


def test_a_coordinator_that_moves_is_found_again(producer: TransactionalProducer) -> None:
    producer.do(Transactions.begin)
    producer.send(b"a")
    producer.run(1_000)
    producer.coordinator = 0
    producer.errors["EndTxn"] = [NOT_COORDINATOR]
    producer.do(Transactions.commit)
    assert producer.ended == [True]


def test_a_commit_whose_answer_is_lost_is_repeated(producer: TransactionalProducer) -> None:
    producer.do(Transactions.begin)
    producer.send(b"a")
    producer.run(1_000)
    producer.core.sender.call(lambda: producer.core.operate(Transactions.commit))
    producer.network.hold_answers()
    producer.run()
    producer.network.cut(producer.brokers[1])
    producer.network.deliver()
    producer.run(3_000)
    assert producer.state is State.READY
    assert producer.asked.count("EndTxn") == 2


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_whose_batches_are_given_up_during_its_abort_is_ended_by_the_coordinator(version: int) -> None:
    """Else what a broker has of it would be committed with the next one."""
    producer = TransactionalProducer(version, request_timeout_ms=1_000, delivery_timeout_ms=3_000)
    producer.do(Transactions.initialize)
    producer.do(Transactions.begin)
    producer.send(b"a")
    producer.run(500)
    producer.network.hold_answers()
    producer.send(b"b")
    producer.run(500)
    producer.core.sender.call(lambda: producer.core.operate(Transactions.abort))
    producer.run(5_000)
    producer.network.deliver()
    producer.run(5_000)
    assert producer.state is State.READY
    assert producer.ended == [False]
    producer.write(b"good")


def test_batches_that_are_given_up_after_a_fatal_error_leave_that_error() -> None:
    producer = TransactionalProducer(1, request_timeout_ms=1_000, delivery_timeout_ms=3_000)
    producer.do(Transactions.initialize)
    producer.do(Transactions.begin)
    for broker in producer.brokers:
        broker.handlers[PRODUCE] = lambda request: None
    given_up = producer.send(b"a")
    producer.run(2_600)  # the last attempt is in flight until the time is over
    producer.errors["AddOffsetsToTxn"] = [FENCED]
    with pytest.raises(ProducerFencedError):
        producer.do(lambda transactions: transactions.send_offsets(OFFSETS, GROUP), 100)
    producer.run(2_000)
    assert given_up.is_done and producer.state is State.FATAL_ERROR
    with pytest.raises(ProducerFencedError):
        producer.do(Transactions.abort)


def test_a_transaction_of_offsets_whose_answer_is_lost_is_ended_by_the_coordinator() -> None:
    """With version 2, where committing offsets begins it: else they would be committed with the next one."""
    producer = TransactionalProducer(2)
    producer.do(Transactions.initialize)
    producer.do(Transactions.begin)
    answers = {broker.node_id: broker.handlers[TXN_OFFSET_COMMIT_AND_ADD] for broker in producer.brokers}
    for broker in producer.brokers:
        broker.handlers[TXN_OFFSET_COMMIT_AND_ADD] = lambda request: None
    producer.core.sender.call(
        lambda: producer.core.operate(lambda transactions: transactions.send_offsets(OFFSETS, GROUP))
    )
    producer.run(1_000)
    assert not producer.ended
    for broker in producer.brokers:
        producer.network.cut(broker)
        broker.handlers[TXN_OFFSET_COMMIT_AND_ADD] = answers[broker.node_id]
    producer.do(Transactions.abort)
    assert producer.ended == [False]
    producer.do(Transactions.begin)
    producer.do(lambda transactions: transactions.send_offsets(OFFSETS, GROUP))
    producer.do(Transactions.commit)
    assert producer.ended == [False, True]


@pytest.mark.parametrize(("api", "code"), [("AddPartitionsToTxn", TOPIC_DENIED), ("TxnOffsetCommit", UNKNOWN_MEMBER)])
def test_an_error_that_comes_during_the_abort_does_not_replace_it(api: str, code: int) -> None:
    """Of what was asked for before: else the transaction of the first record would go on as the next one."""
    producer = TransactionalProducer(1)
    producer.do(Transactions.initialize)
    producer.do(Transactions.begin)
    producer.send(b"a", 0)
    producer.run(500)
    producer.do(lambda transactions: transactions.send_offsets(OFFSETS, GROUP))
    producer.errors[api] = [code]
    producer.asked.clear()
    producer.network.hold_answers()
    if api == "TxnOffsetCommit":
        producer.core.sender.call(
            lambda: producer.core.operate(lambda transactions: transactions.send_offsets(OFFSETS, GROUP))
        )
    else:
        producer.send(b"b", 1)
    producer.run(100)
    assert producer.asked == [api]
    producer.core.sender.call(lambda: producer.core.operate(Transactions.abort))
    producer.run(10)
    producer.network.deliver()
    producer.run(3_000)
    assert producer.state is State.READY and producer.ended == [False]
    producer.write(b"good")
    assert producer.ended == [False, True]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("api", ["AddPartitionsToTxn", "TxnOffsetCommit"])
def test_a_partition_that_an_answer_lacks_is_asked_for_again(version: int, api: str) -> None:
    producer = TransactionalProducer(version)
    producer.do(Transactions.initialize)
    producer.lacking[api] = 2
    producer.do(Transactions.begin)
    future = producer.send(b"a")
    producer.do(lambda transactions: transactions.send_offsets(OFFSETS, GROUP))
    producer.do(Transactions.commit)
    assert future.get(0) and producer.ended == [True]
    times = 1 if (version, api) == (2, "AddPartitionsToTxn") else 3
    assert producer.asked.count(api) == (times if times > 1 else 0)


@pytest.mark.parametrize("operation", [Transactions.commit, Transactions.abort])
def test_an_operation_that_has_ended_unheard_may_be_called_again_and_once_heard_not(
    producer: TransactionalProducer, operation: Callable[[Transactions], Outcome]
) -> None:
    producer.do(Transactions.begin)
    producer.send(b"v")
    producer.run(1_000)
    assert producer.core.transactions is not None
    outcome = operation(producer.core.transactions)
    producer.run(3_000)  # the caller's time was over before
    assert outcome.is_done and producer.state is State.READY
    other = Transactions.abort if operation is Transactions.commit else Transactions.commit
    with pytest.raises(IllegalStateError):
        producer.do(other)
    producer.do(operation)
    assert producer.ended == [operation is Transactions.commit]
    with pytest.raises(IllegalStateError):
        producer.do(operation)
    producer.write(b"next")


@pytest.mark.parametrize("end", [Transactions.commit, Transactions.abort])
def test_a_record_that_comes_while_the_transaction_is_ended_is_neither_of_it_nor_of_the_next(
    producer: TransactionalProducer, end: Callable[[Transactions], Outcome]
) -> None:
    """Of a thread that was about to add it: as one that had to wait for memory."""
    producer.do(Transactions.begin)
    producer.send(b"first")
    producer.run()
    producer.network.hold_answers()
    outcomes: list[Outcome] = []
    producer.core.sender.call(lambda: outcomes.append(producer.core.operate(end)))
    producer.run()
    late = producer.send(b"late")
    producer.run()
    producer.network.deliver()
    producer.run(1_000)
    assert outcomes[0].is_done and outcomes[0].error is None
    with pytest.raises(TransactionAbortedError):
        late.get(0)
    producer.write(b"next")
    assert b"late" not in producer.logs["t", 0].values


def test_a_record_that_comes_after_an_error_of_the_transaction_is_not_sent(producer: TransactionalProducer) -> None:
    producer.do(Transactions.begin)
    producer.send(b"first")
    producer.run()
    producer.fault = lambda topic, partition: INVALID_RECORD
    producer.send(b"bad")
    producer.run()
    assert producer.state is State.ABORTABLE_ERROR
    producer.fault = lambda topic, partition: 0
    late = producer.send(b"late")
    producer.run()
    assert late.is_done and producer.logs["t", 0].values == [b"first"]


@pytest.mark.parametrize("version", [1, 2])
def test_an_answer_without_a_producer_id_is_none(version: int) -> None:
    producer = TransactionalProducer(version)
    empty = [InitProducerIdResponse(producer_id=-1, producer_epoch=-1) for _ in range(2)]
    for broker in producer.brokers:
        broker.handlers[INIT_PRODUCER_ID] = lambda request: empty.pop() if empty else producer._init(request, 0)
    producer.do(Transactions.initialize)
    producer.write(b"a")
    assert producer.logs["t", 0].values == [b"a"]


def test_operations_at_the_wrong_time_are_refused() -> None:
    producer = TransactionalProducer(2)
    for operation in (Transactions.begin, Transactions.commit, Transactions.abort):
        with pytest.raises(IllegalStateError, match="uninitialized"):
            producer.do(operation)
    producer.do(Transactions.initialize)
    with pytest.raises(IllegalStateError, match="is ready; this needs it to be in a transaction"):
        producer.core.check_send()
    with pytest.raises(IllegalStateError):
        producer.do(Transactions.initialize)
    producer.do(Transactions.begin)
    with pytest.raises(IllegalStateError):
        producer.do(Transactions.begin)


def test_a_producer_without_an_id_has_no_transactions() -> None:
    outcome = SimulatedProducer().core.operate(Transactions.begin)
    assert isinstance(outcome.error, IllegalStateError)


def test_every_state_but_the_last_is_left_again() -> None:
    assert NEXT.keys() == set(State)
    assert [state for state, following in NEXT.items() if not following] == [State.FATAL_ERROR]
