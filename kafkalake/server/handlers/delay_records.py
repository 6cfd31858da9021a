"""DelayRecords (10008, kafkalake's own), version 0: batches of records that wait, for partitions of `__delayed` led here.

Sent by the leaders of the partitions that they were produced to. Answered when all are durable or refused. The partition of a
transactional batch is added to its producer's transaction first.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from kafkalake.broker.callbacks import Done
from kafkalake.broker.delayed.hand_ins import check_hand_in
from kafkalake.errors import KafkaError
from kafkalake.record.batch import ProducerBatch
from kafkalake.server.handed_batches import HandedBatches, check_request, kept
from kafkalake.server.request import Request
from kafkalake.wire.messages.delayed import BatchResult, DelayRecordsRequest, DelayRecordsResponse


def handle(request: Request[DelayRecordsRequest]) -> DelayRecordsResponse | Coroutine[Any, Any, None]:
    try:
        check_request(request, request.body.batches)
    except KafkaError as error:
        return DelayRecordsResponse(error_code=error.code)
    gate = request.context.broker.delay_gate
    batches = [
        ((each.journal_partition, each.transactional_id), kept(request, each.records)) for each in request.body.batches
    ]

    def accept(place: tuple[int, str | None], batch: ProducerBatch, done: Done) -> None:
        check_hand_in(batch)
        gate.accept(place[0], batch, place[1], done)

    def reply(results: Sequence[BatchResult]) -> None:
        request.reply(DelayRecordsResponse(results=results))

    return HandedBatches(len(batches), request.guarded(reply)).append(request, batches, accept)
