"""Messages of kafkalake's own for records that wait: on their way in, on their way out, and what there is of them."""

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


class DescribeDelayedRequest(Message):
    pass


class DescribedJournal(Message):
    """next_due: ms since 1970, -1 if nothing waits."""

    partition_index: int = 0
    is_loaded: bool = False
    waiting: int = 0
    overdue: int = 0
    next_due: int = -1


class DescribeDelayedResponse(Response):
    """handed_over, dead_letters: records since the broker's start. recent, lateness_*: see `broker.delayed.metrics.Lateness`."""

    error_code: int = 0
    handed_over: int = 0
    dead_letters: int = 0
    recent: int = 0
    lateness_p50: int = 0
    lateness_p99: int = 0
    lateness_max: int = 0
    partitions: Sequence[DescribedJournal] = ()
