"""Messages between replicas beside Kafka's Fetch: a sealed segment as a file, piece by piece."""

from __future__ import annotations

from uuid import UUID

from kafkalake.buffers import Buffer
from kafkalake.wire.messages.message import Message, Response


class FetchSegmentRequest(Message):
    replica_id: int = -1
    replica_epoch: int = -1
    topic_id: UUID | None = None
    partition: int = 0
    current_leader_epoch: int = -1
    base_offset: int = 0
    generation: int = 0
    position: int = 0
    length: int = 0


class FetchSegmentResponse(Response):
    error_code: int = 0
    next_offset: int = -1
    size_bytes: int = 0
    txn_index_bytes: int = 0
    data: Buffer = b""
