"""InitProducerId (22), versions 0-5: a producer id for an idempotent producer, or the next epoch of a transactional one.

- 2: flexible. 3: a producer may send its current id and epoch (KIP-360); without a transactional id it gets a new one.
  4: PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before. 5: as 4 (KIP-890). An id is never reused, not even after a crash.
- With a transactional id the previous producer is fenced. Its open transaction is aborted first, and the response is
  CONCURRENT_TRANSACTIONS until that is done.
"""

from __future__ import annotations

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.transactions.requests import ProducerResult
from kafkalake.errors import ClusterAuthorizationError, InvalidRequestError, KafkaError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Answer, Request
from kafkalake.server.transaction_lookup import check_transactional_id, transaction_code
from kafkalake.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse

_FENCED_SINCE = 4


def handle(request: Request[InitProducerIdRequest]) -> Answer:
    if request.context.broker.producer_ids.are_there:
        return _handle(request)
    return _when_there(request)


async def _when_there(request: Request[InitProducerIdRequest]) -> InitProducerIdResponse | None:
    """Wait for ids from the controller. If there are none then, the answer is COORDINATOR_LOAD_IN_PROGRESS, as in Kafka."""
    broker = request.context.broker
    await broker.producer_ids.have_some(broker.config.request_timeout_ms)
    return _handle(request)


def _handle(request: Request[InitProducerIdRequest]) -> InitProducerIdResponse | None:
    body = request.body
    try:
        if body.transactional_id is None:
            return _answer(request, _idempotent(request))
        check_transactional_id(request, body.transactional_id)
        expected = _expected(body.producer_id, body.producer_epoch)
    except KafkaError as error:
        return _answer(request, ProducerResult(type(error)))
    request.context.broker.transactions.coordinator.init_producer_id(
        body.transactional_id,
        body.transaction_timeout,
        expected,
        request.guarded(lambda result: request.reply(_answer(request, result))),
    )
    return None


def _idempotent(request: Request[InitProducerIdRequest]) -> ProducerResult:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        raise ClusterAuthorizationError()
    return ProducerResult(None, request.context.broker.producer_ids.next_id(), 0)


def _expected(producer_id: int, epoch: int) -> ProducerIdAndEpoch | None:
    if (producer_id == -1) != (epoch == -1):
        raise InvalidRequestError("either both of producer id and epoch are given, or none")
    return None if producer_id == -1 else ProducerIdAndEpoch(producer_id, epoch)


def _answer(request: Request[InitProducerIdRequest], result: ProducerResult) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=transaction_code(request, result.error, _FENCED_SINCE),
        producer_id=result.producer_id,
        producer_epoch=result.epoch,
    )
