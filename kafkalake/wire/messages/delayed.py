"""Messages of DelayRecords and DeliverRecords, kafkalake's own: records that wait on their way in, and on their way out."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from kafkalake.buffers import Buffer
from kafkalake.wire.messages.message import Message, Response


class DelayedBatch(Message):
    journal_partition: int = 0
    transactional_id: str | None = None
    records: Buffer = b""


class DelayRecordsRequest(Message):
    """See `broker.delayed.delayed_peers.HandInRequest`."""

    batches: Sequence[DelayedBatch] = ()


class BatchResult(Message):
    """The outcome for one batch of a request, in their order."""

    error_code: int = 0
    error_message: str | None = None


class DelayRecordsResponse(Response):
    error_code: int = 0
    results: Sequence[BatchResult] = ()


class DeliveredBatch(Message):
    topic_id: UUID | None = None
    partition_index: int = 0
    records: Buffer = b""


class DeliverRecordsRequest(Message):
    """See `broker.delayed.delayed_peers.DeliveryRequest`."""

    batches: Sequence[DeliveredBatch] = ()


class DeliverRecordsResponse(Response):
    error_code: int = 0
    results: Sequence[BatchResult] = ()
