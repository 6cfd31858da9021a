"""KnownTransactions (10006, kafkalake's own), version 0: what this broker, as a coordinator, knows of producers' transactions.

For leaders of partitions that look for orphans (`broker/transactions/orphans.py`), about a thousand producers at most.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.transactions.orphans import ASKED_MAX, known_transactions
from kafkalake.errors import ClusterAuthorizationError, InvalidRequestError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.offsets import TopicIndexes
from kafkalake.wire.messages.transactions import (
    KnownTransaction,
    KnownTransactionsRequest,
    KnownTransactionsResponse,
)


def handle(request: Request[KnownTransactionsRequest]) -> Generator[None, None, KnownTransactionsResponse]:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return KnownTransactionsResponse(error_code=ClusterAuthorizationError.code)
    if len(request.body.producer_ids) > ASKED_MAX:
        return KnownTransactionsResponse(error_code=InvalidRequestError.code)
    table = request.context.broker.transactions.coordinator.table
    known = yield from known_transactions(table, frozenset(request.body.producer_ids))
    return KnownTransactionsResponse(
        coordinated=sorted(known.coordinated),
        unfinished=[
            KnownTransaction(
                producer_id=producer_id,
                topics=[TopicIndexes(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
            )
            for producer_id, topics in _by_producer(known.unfinished).items()
        ],
        committed=sorted(known.committed),
    )


def _by_producer(unfinished: frozenset[tuple[int, TopicPartition]]) -> dict[int, dict[str, list[int]]]:
    found: dict[int, dict[str, list[int]]] = {}
    for producer_id, (name, index) in sorted(unfinished):
        found.setdefault(producer_id, {}).setdefault(name, []).append(index)
    return found
