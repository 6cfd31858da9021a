"""Messages of producers and transactions."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalake.wire.messages.message import Message, Response
from kafkalake.wire.messages.offsets import TopicIndexes


class InitProducerIdRequest(Message):
    transactional_id: str | None = None
    transaction_timeout: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


class InitProducerIdResponse(Response):
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0


class AddPartitionsToTxnTransaction(Message):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    verify_only: bool = False
    topics: Sequence[AddPartitionsToTxnTopic] = ()


class AddPartitionsToTxnTopic(Message):
    name: str = ""
    partitions: Sequence[int] = ()


class AddPartitionsToTxnRequest(Message):
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: Sequence[AddPartitionsToTxnTopic] = ()
    transactions: Sequence[AddPartitionsToTxnTransaction] = ()


class AddPartitionsToTxnResult(Message):
    transactional_id: str = ""
    topic_results: Sequence[AddPartitionsToTxnTopicResult] = ()


class AddPartitionsToTxnPartitionResult(Message):
    partition_index: int = 0
    partition_error_code: int = 0


class AddPartitionsToTxnTopicResult(Message):
    name: str = ""
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult] = ()


class AddPartitionsToTxnResponse(Response):
    results_by_topic_v3_and_below: Sequence[AddPartitionsToTxnTopicResult] = ()
    error_code: int = 0
    results_by_transaction: Sequence[AddPartitionsToTxnResult] = ()


class AddOffsetsToTxnRequest(Message):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""


class AddOffsetsToTxnResponse(Response):
    error_code: int = 0


class EndTxnRequest(Message):
    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False


class EndTxnResponse(Response):
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = -1


class WritableTxnMarker(Message):
    producer_id: int = 0
    producer_epoch: int = 0
    transaction_result: bool = False
    topics: Sequence[TopicIndexes] = ()
    coordinator_epoch: int = 0


class WriteTxnMarkersRequest(Message):
    markers: Sequence[WritableTxnMarker] = ()


class WritableTxnMarkerPartitionResult(Message):
    partition_index: int = 0
    error_code: int = 0
    first_offset: int = -1
    last_offset: int = -1


class WritableTxnMarkerTopicResult(Message):
    name: str = ""
    partitions: Sequence[WritableTxnMarkerPartitionResult] = ()


class WritableTxnMarkerResult(Message):
    producer_id: int = 0
    topics: Sequence[WritableTxnMarkerTopicResult] = ()


class WriteTxnMarkersResponse(Response):
    markers: Sequence[WritableTxnMarkerResult] = ()


class DescribeProducersRequest(Message):
    topics: Sequence[TopicIndexes] = ()


class ProducerState(Message):
    producer_id: int = 0
    producer_epoch: int = 0
    last_sequence: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = 0
    current_txn_start_offset: int = -1


class PartitionResponse(Message):
    partition_index: int = 0
    error_code: int = 0
    error_message: str | None = None
    active_producers: Sequence[ProducerState] = ()


class TopicResponse(Message):
    name: str = ""
    partitions: Sequence[PartitionResponse] = ()


class DescribeProducersResponse(Response):
    topics: Sequence[TopicResponse] = ()


class DescribeTransactionsRequest(Message):
    transactional_ids: Sequence[str] = ()


class TopicData(Message):
    topic: str = ""
    partitions: Sequence[int] = ()


class TransactionState(Message):
    error_code: int = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout: int = 0
    transaction_start_time: int = -1
    producer_id: int = 0
    producer_epoch: int = 0
    topics: Sequence[TopicData] = ()


class DescribeTransactionsResponse(Response):
    transaction_states: Sequence[TransactionState] = ()


class ListTransactionsRequest(Message):
    state_filters: Sequence[str] = ()
    producer_id_filters: Sequence[int] = ()
    duration_filter: int = -1
    transactional_id_pattern: str | None = None


class ListTransactionsTransactionState(Message):
    transactional_id: str = ""
    producer_id: int = 0
    transaction_state: str = ""


class ListTransactionsResponse(Response):
    error_code: int = 0
    unknown_state_filters: Sequence[str] = ()
    transaction_states: Sequence[ListTransactionsTransactionState] = ()


class KnownTransactionsRequest(Message):
    producer_ids: Sequence[int] = ()


class KnownTransaction(Message):
    producer_id: int = 0
    topics: Sequence[TopicIndexes] = ()


class KnownTransactionsResponse(Response):
    """See `broker.transactions.transaction_peers.KnownTransactions`."""

    error_code: int = 0
    coordinated: Sequence[int] = ()
    unfinished: Sequence[KnownTransaction] = ()
    committed: Sequence[int] = ()
