"""DescribeTransactions (65), version 0: transactional ids, their producer, state, and the partitions of the open transaction."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.errors import KafkaError
from kafkalake.server.authorizer import Resource
from kafkalake.server.request import Request
from kafkalake.server.transaction_lookup import check_transactional_id
from kafkalake.wire.messages.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(request: Request[DescribeTransactionsRequest]) -> Generator[None, None, DescribeTransactionsResponse]:
    answers = []
    for each in dict.fromkeys(request.body.transactional_ids):
        answers.append(_describe(request, each))
        yield
    return DescribeTransactionsResponse(transaction_states=answers)


def _describe(request: Request[DescribeTransactionsRequest], transactional_id: str) -> TransactionState:
    try:
        check_transactional_id(request, transactional_id)
        found = request.context.broker.transactions.coordinator.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(transactional_id=transactional_id, error_code=error.code)
    topics: dict[str, list[int]] = {}
    for topic, partition in found.partitions:
        if request.allows(Resource.TOPIC, topic):
            topics.setdefault(topic, []).append(partition)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=found.state,
        transaction_timeout=found.timeout_ms,
        transaction_start_time=found.started_at_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
