"""DeliverRecords (10009, kafkalake's own), version 0: batches of records that are due, for partitions led here, by topic id.

Sent by the coordinators of delayed records, with the producer ids of their journals' partitions, so that a batch that is sent again
is a duplicate. Answered when all replicas in sync have them. Headers that delay records have no effect.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any

from kafkalake.errors import KafkaError
from kafkalake.server.handed_batches import HandedBatches, check_request, kept
from kafkalake.server.request import Request
from kafkalake.uuid_text import ZERO_UUID
from kafkalake.wire.messages.delayed import BatchResult, DeliverRecordsRequest, DeliverRecordsResponse


def handle(request: Request[DeliverRecordsRequest]) -> DeliverRecordsResponse | Coroutine[Any, Any, None]:
    try:
        check_request(request, request.body.batches)
    except KafkaError as error:
        return DeliverRecordsResponse(error_code=error.code)
    batches = [
        ((each.topic_id or ZERO_UUID, each.partition_index), kept(request, each.records))
        for each in request.body.batches
    ]

    def reply(results: Sequence[BatchResult]) -> None:
        request.reply(DeliverRecordsResponse(results=results))

    targets = request.context.broker.delayed_targets
    return HandedBatches(len(batches), request.guarded(reply)).append(request, batches, targets.append_here)
