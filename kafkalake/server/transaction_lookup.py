"""Authorization of transactional ids in requests, and error codes of transactions by API version."""

from __future__ import annotations

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.errors import InvalidProducerEpochError, ProducerFencedError, TransactionalIdAuthorizationError
from kafkalake.server.authorizer import Resource
from kafkalake.server.request import Request


def check_transactional_id(request: Request[object], transactional_id: str) -> None:
    """Raise `TransactionalIdAuthorizationError` if the principal may not."""
    if not request.allows(Resource.TRANSACTIONAL_ID, transactional_id):
        raise TransactionalIdAuthorizationError()


def transaction_code(request: Request[object], error: ErrorClass | None, fenced_since: int) -> int:
    """Return the error's code, 0 for none. PRODUCER_FENCED exists from version `fenced_since` on (KIP-588)."""
    if error is None:
        return 0
    if error is ProducerFencedError and request.version < fenced_since:
        return InvalidProducerEpochError.code
    return error.code
