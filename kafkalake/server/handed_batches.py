"""What DelayRecords and DeliverRecords share: batches of another broker are decoded, appended, and answered together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from kafkalake.broker.callbacks import Done
from kafkalake.broker.delayed.sent_batches import REQUEST_BATCHES
from kafkalake.buffers import Buffer
from kafkalake.errors import ClusterAuthorizationError, InvalidRecordError, InvalidRequestError, KafkaError, as_value
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.delayed import BatchResult
from kafkalake.wire.record_batch import decode_fetched

T = TypeVar("T")

IN_THREAD_BYTES = 1 << 20
"""Bytes of a batch from which on it is decoded in a thread."""
_UNCOMPRESSED = 0
"""The limit on decompressed bytes: brokers hand batches over as they are in memory."""


def check_request(request: Request[object], batches: Sequence[object]) -> None:
    """Raise `ClusterAuthorizationError` if the request is no broker's, `InvalidRequestError` if it has too many batches."""
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        raise ClusterAuthorizationError()
    if len(batches) > REQUEST_BATCHES:
        raise InvalidRequestError(f"more than {REQUEST_BATCHES} batches in one request")


class HandedBatches:
    """The results of the batches of one request. `reply` is called once, when all are there."""

    def __init__(self, count: int, reply: Callable[[Sequence[BatchResult]], None]) -> None:
        self._results: dict[int, BatchResult] = {}
        self._count = count
        self._reply = reply
        if not count:
            reply(())

    async def append(
        self,
        request: Request[Any],
        batches: Sequence[tuple[T, Buffer]],
        append: Callable[[T, ProducerBatch, Done], None],
    ) -> None:
        """Decode batches and append them in order with `append`, in turns. Large ones are decoded in a thread."""
        for number, (place, records) in enumerate(batches):
            done = partial(self._settle, number)
            try:
                if len(records) < IN_THREAD_BYTES:
                    batch = _decoded(records)
                else:
                    batch = await request.context.run_in_thread(partial(_decoded, records))
                append(place, batch, done)
            except KafkaError as error:
                done(as_value(error))
            await request.turn()

    def _settle(self, number: int, error: KafkaError | None) -> None:
        if number in self._results:
            return
        self._results[number] = (
            BatchResult() if error is None else BatchResult(error_code=error.code, error_message=str(error))
        )
        if len(self._results) == self._count:
            self._reply([self._results[each] for each in range(self._count)])


def kept(request: Request[object], records: Buffer) -> Buffer:
    """Return bytes of a request that stay as they are after its handler has returned."""
    return records if request.body_is_kept else bytes(records)


def _decoded(records: Buffer) -> ProducerBatch:
    """Return the one batch in `records`, with records at offsets from 0 on. Raise `KafkaError` if it is none."""
    batches = decode_fetched(records, _UNCOMPRESSED)
    batch = next(batches, None)
    if batch is None or not batch.rows or next(batches, None) is not None:
        raise InvalidRecordError("one batch with records was to be sent")
    begin = batch.layout.item(at.FIRST_BUFFER + 2 * at.OFFSET_DATA)
    offsets = batch.body[begin : begin + 8 * batch.rows].view(np.int64)
    header: list[int] = batch.header.tolist()
    if (
        header[at.RECORDS] != batch.rows
        or header[at.LAST_OFFSET_DELTA] != batch.rows - 1
        or header[at.BASE_OFFSET]
        or header[at.ATTRIBUTES] & ~at.ATTRIBUTE_TRANSACTIONAL
        or not np.array_equal(offsets, np.arange(batch.rows))
    ):
        raise InvalidRecordError("the header of a batch and its records do not agree")
    return batch
