"""ListTransactions (66), versions 0-2: transactional ids of this broker with their producer and state.

Filters: state and producer id; 1: duration of the open transaction, ms (KIP-994); 2: a regular expression that must match the
whole id (KIP-1152), INVALID_REGULAR_EXPRESSION if it is invalid.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.broker.transactions.requests import TransactionFilter
from kafkalake.errors import KafkaError
from kafkalake.server.authorizer import Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
)


def handle(request: Request[ListTransactionsRequest]) -> Generator[None, None, ListTransactionsResponse]:
    body = request.body
    wanted = TransactionFilter(
        states=frozenset(body.state_filters),
        producer_ids=frozenset(body.producer_id_filters),
        duration_ms=body.duration_filter,
        pattern=body.transactional_id_pattern,
    )
    try:
        found = yield from request.context.broker.transactions.coordinator.list_transactions(wanted)
    except KafkaError as error:
        return ListTransactionsResponse(error_code=error.code)
    listed = []
    for one in found.transactions:
        if request.allows(Resource.TRANSACTIONAL_ID, one.transactional_id):
            listed.append(
                ListTransactionsTransactionState(
                    transactional_id=one.transactional_id, producer_id=one.producer_id, transaction_state=one.state
                )
            )
        yield
    return ListTransactionsResponse(unknown_state_filters=list(found.unknown_states), transaction_states=listed)
