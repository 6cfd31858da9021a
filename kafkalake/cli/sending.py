"""The records of `kafkalake produce` on their way to a topic, in a transaction if asked for, and how many have arrived."""

from __future__ import annotations

import contextlib
from collections import deque
from dataclasses import dataclass
from types import TracebackType

import pyarrow as pa

from kafkalake.cli.options import CLIENT_ID
from kafkalake.cli.produce_options import ProduceOptions
from kafkalake.client.errors import ClientTimeoutError
from kafkalake.client.producing.batch import ArrowFuture
from kafkalake.client.producing.producer import Producer
from kafkalake.errors import KafkaLakeError

_REQUEST_TIMEOUT_MS = 30_000
_TRANSACTION_TIMEOUT_MS = 900_000
"""Kafka's default largest transaction timeout (`transaction.max.timeout.ms`)."""
_LARGEST_REQUEST_BYTES = 32 * 1024 * 1024
_BUFFER_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Sent:
    """Counts of what was acknowledged (with `--acks 0`: sent). next_offsets: by partition, the offset after the last record."""

    records: int
    batches: int
    bytes: int
    next_offsets: dict[int, int]


class Sending:
    """See the module. Use it in a `with` block: leaving it delivers everything, and commits; an error aborts."""

    def __init__(self, options: ProduceOptions, transactional_id: str | None) -> None:
        """transactional_id: None for no transaction. The topic must exist."""
        self.topic = options.topic
        self.is_committing = False
        """Whether the commit of the transaction was requested and not acknowledged, so that its outcome is unknown."""
        self._partition = options.partition
        self._given = 0
        self._pending_records = 0
        self._batches = 0
        self._next_offsets: dict[int, int] = {}
        self._futures: deque[ArrowFuture] = deque()
        self._is_transactional = transactional_id is not None
        self._producer = Producer(_settings(options, transactional_id))
        if self._is_transactional:
            try:
                self._producer.init_transactions()
                self._producer.begin_transaction()
            except BaseException:
                self._producer.close(0)
                raise

    def __enter__(self) -> Sending:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        is_complete = False
        try:
            if error is None:
                self.flush()
                self._commit()
                is_complete = True
        finally:
            if not is_complete and self._is_transactional and not self.is_committing:
                with contextlib.suppress(KafkaLakeError):
                    self._producer.abort_transaction()
            self._pending_records = self._count_pending(error)
            self._producer.close(None if is_complete else 0)

    @property
    def is_transactional(self) -> bool:
        """Return whether everything sent is one transaction."""
        return self._is_transactional

    @property
    def sent(self) -> Sent:
        """Counts of what was acknowledged so far."""
        totals = self._producer.metrics()
        records, size = (int(totals.get(name, 0)) for name in ("record-send-total", "outgoing-byte-total"))
        return Sent(records, self._batches, size, self._next_offsets)

    @property
    def pending_records(self) -> int:
        """The number of records that may or may not have arrived when an error left the block."""
        return self._pending_records

    def _count_pending(self, error: BaseException | None) -> int:
        """Return the number of records without an acknowledgement, without those that were refused."""
        totals = self._producer.metrics()
        refused = 0 if isinstance(error, ClientTimeoutError) else totals.get("record-error-total", 0)
        return self._given - int(totals.get("record-send-total", 0) + refused)

    def send(self, records: pa.RecordBatch) -> None:
        """Send records: columns `value` and, if there are, `key`, `headers` and `timestamp`. Raise the error of earlier ones."""
        while self._futures and self._futures[0].is_done:
            self._take_first()
        self._futures.append(self._producer.send_arrow(self.topic, records, partition=self._partition))
        self._given += records.num_rows

    def flush(self) -> None:
        """Return when all records sent have been acknowledged. Raise the error of those that were not."""
        self._producer.flush()
        while self._futures:
            self._take_first()

    def _take_first(self) -> None:
        for place in self._futures.popleft().get():
            self._batches += 1
            if place.base_offset >= 0:
                end = place.base_offset + place.records
                self._next_offsets[place.partition] = max(end, self._next_offsets.get(place.partition, 0))

    def _commit(self) -> None:
        if not self._is_transactional:
            return
        self.is_committing = True
        try:
            self._producer.commit_transaction()
        except ClientTimeoutError:
            raise
        except KafkaLakeError:
            self.is_committing = False
            raise
        self.is_committing = False


def _settings(options: ProduceOptions, transactional_id: str | None) -> dict[str, object]:
    timeout_ms = int(options.timeout * 1000)
    settings: dict[str, object] = {
        "bootstrap.servers": options.bootstrap_server,
        "client.id": CLIENT_ID,
        "acks": options.acks.value,
        "compression.type": options.compression.value,
        "batch.size": options.batch_bytes,
        "linger.ms": 0,
        "delivery.timeout.ms": timeout_ms,
        "request.timeout.ms": min(timeout_ms, _REQUEST_TIMEOUT_MS),
        "max.block.ms": timeout_ms + _REQUEST_TIMEOUT_MS,
        "max.request.size": _LARGEST_REQUEST_BYTES,
        "buffer.memory": _BUFFER_BYTES,
        "allow.auto.create.topics": False,
    }
    if transactional_id is not None:
        settings |= {"transactional.id": transactional_id, "transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS}
    return settings
