"""One transaction of a producer, from its producer id to its end. Source: KIP-98, the flow before KIP-890."""

from __future__ import annotations

from collections.abc import Callable

from kafkalake.client.cluster import Cluster
from kafkalake.client.coordinators import TRANSACTION, ask_coordinator, raise_error
from kafkalake.client.requests import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID, A, ClientApi, Q
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)

TIMEOUT_MS = 900_000
"""Kafka's default largest transaction timeout (`transaction.max.timeout.ms`)."""


class Transaction:
    """The only transaction of a producer with this transactional id. Methods raise the coordinator's errors."""

    def __init__(self, cluster: Cluster, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._producer = (-1, -1)
        self._partitions: set[TopicPartition] = set()
        self.is_committing = False
        """Whether the commit was requested and not acknowledged, so that its outcome is unknown."""

    def begin(self) -> tuple[int, int]:
        """Return the producer id and epoch to write with. Ends an earlier producer's open transaction with this id."""
        values = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout=TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = self._ask(INIT_PRODUCER_ID, values)
        self._producer = answer.producer_id, answer.producer_epoch
        return self._producer

    def add(self, topic: str, partition: int) -> None:
        """Add a partition to the transaction, before the first batch to it is sent."""
        if (topic, partition) in self._partitions:
            return
        producer_id, producer_epoch = self._producer
        values = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )

        def check(answer: AddPartitionsToTxnResponse) -> None:
            for result in answer.results_by_topic_v3_and_below:
                for each in result.results_by_partition:
                    raise_error(each.partition_error_code, f"partition {topic}-{partition}")

        self._ask(ADD_PARTITIONS_TO_TXN, values, check)
        self._partitions.add((topic, partition))

    def end(self, *, commit: bool) -> None:
        """Commit or abort. Does nothing if no partition was added."""
        if not self._partitions:
            return

        producer_id, producer_epoch = self._producer
        values = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=commit,
        )
        self.is_committing = commit
        self._ask(END_TXN, values)
        self.is_committing = False
        self._partitions.clear()

    def _ask(self, api: ClientApi[Q, A], message: Q, check: Callable[[A], None] | None = None) -> A:
        return ask_coordinator(self._cluster, TRANSACTION, self.transactional_id, api, message, check)
