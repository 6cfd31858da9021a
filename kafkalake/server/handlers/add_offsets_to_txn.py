"""AddOffsetsToTxn (25), versions 0-4: add a group's offsets to a producer's transaction before it commits them.

2: PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before. 3: flexible. 4: as 3; clients of transactions version 2 omit this request.
It adds the group's partition of `__consumer_offsets`, so that it gets the transaction's marker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.errors import KafkaError
from kafkalake.server.group_lookup import check_group
from kafkalake.server.request import Request
from kafkalake.server.transaction_lookup import check_transactional_id, transaction_code
from kafkalake.wire.messages.transactions import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_SINCE = 2


def handle(request: Request[AddOffsetsToTxnRequest]) -> Coroutine[object, object, AddOffsetsToTxnResponse] | None:
    if not request.context.broker.groups.journal.is_ready:
        return _when_ready(request)
    _add(request, request.guarded(lambda error: request.reply(_answer(request, error))))
    return None


async def _when_ready(request: Request[AddOffsetsToTxnRequest]) -> AddOffsetsToTxnResponse:
    """Create the journal first: a client may send this before FindCoordinator, which creates it otherwise."""
    added: asyncio.Future[ErrorClass | None] = asyncio.get_running_loop().create_future()
    try:
        await request.context.broker.groups.journal.make_ready()
    except KafkaError as error:
        return _answer(request, type(error))
    _add(request, added.set_result)
    return _answer(request, await added)


def _add(request: Request[AddOffsetsToTxnRequest], reply: Callable[[ErrorClass | None], None]) -> None:
    body, broker = request.body, request.context.broker
    try:
        check_transactional_id(request, body.transactional_id)
        check_group(request, body.group_id)
    except KafkaError as error:
        reply(type(error))
        return
    broker.transactions.admission.add(
        body.transactional_id,
        ProducerIdAndEpoch(body.producer_id, body.producer_epoch),
        [broker.groups.journal.key(body.group_id)],
        reply,
    )


def _answer(request: Request[AddOffsetsToTxnRequest], error: ErrorClass | None) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=transaction_code(request, error, _FENCED_SINCE))
