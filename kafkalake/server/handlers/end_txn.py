"""EndTxn (26), versions 0-5: commit or abort a transaction, answered when the decision is durable, before the markers are written.

2: PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before. 3: flexible. 4: as 3. 5: transactions version 2 (KIP-890): the response has the
producer's id and epoch for its next transaction.
"""

from __future__ import annotations

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.transactions.ending import EndRequest
from kafkalake.broker.transactions.requests import ProducerResult
from kafkalake.errors import KafkaError
from kafkalake.server.request import Request
from kafkalake.server.transaction_lookup import check_transactional_id, transaction_code
from kafkalake.wire.messages.transactions import EndTxnRequest, EndTxnResponse

_FENCED_SINCE = 2
_VERSION_2_SINCE = 5


def handle(request: Request[EndTxnRequest]) -> EndTxnResponse | None:
    body = request.body
    try:
        check_transactional_id(request, body.transactional_id)
    except KafkaError as error:
        return _answer(request, ProducerResult(type(error)))
    end = EndRequest(
        ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
        committed=body.committed,
        version_2=request.version >= _VERSION_2_SINCE,
    )
    request.context.broker.transactions.coordinator.end(
        body.transactional_id, end, request.guarded(lambda result: request.reply(_answer(request, result)))
    )
    return None


def _answer(request: Request[EndTxnRequest], result: ProducerResult) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=transaction_code(request, result.error, _FENCED_SINCE),
        producer_id=result.producer_id,
        producer_epoch=result.epoch,
    )
