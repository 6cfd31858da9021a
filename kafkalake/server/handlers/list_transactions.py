"""ListTransactions (66), versions 0-2: transactional ids of this broker with their producer and state.

Filters: state and producer id; 1: duration of the open transaction, ms (KIP-994); 2: a regular expression that must match the
whole id (KIP-1152), INVALID_REGULAR_EXPRESSION if it is invalid.
"""

from __future__ import annotations

from typing import Any

from kafkalake.broker.transactions.requests import TransactionFilter
from kafkalake.errors import KafkaError
from kafkalake.server.authorizer import Operation
from kafkalake.server.request import Request
from kafkalake.server.transaction_lookup import allows_transactional_id


def handle(request: Request) -> dict[str, Any]:
    body = request.body
    wanted = TransactionFilter(
        states=frozenset(body.state_filters),
        producer_ids=frozenset(body.producer_id_filters),
        duration_ms=getattr(body, "duration_filter", -1),
        pattern=getattr(body, "transactional_id_pattern", None),
    )
    try:
        found = request.context.broker.transactions.coordinator.list_transactions(wanted)
    except KafkaError as error:
        return {"error_code": error.code}
    return {
        "error_code": 0,
        "unknown_state_filters": list(found.unknown_states),
        "transaction_states": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "transaction_state": one.state,
            }
            for one in found.transactions
            if allows_transactional_id(request, Operation.DESCRIBE, one.transactional_id)
        ],
    }
