"""Reads and encodes what consumers that read older records in order will ask for next, while they work on what they have.

Such a consumer asks again once it has used up the last response. Without reads ahead it then waits while the next one is read from
files and encoded. A read is made ahead only for a consumer that went on where its last read had ended, with the same limit, so one
that stops costs one read. The result is kept among the encoded reads of `broker.partitions.wire_cache`, within their budget.
Batches that must be compressed again are not: they take a thread, not the event loop.

Measured with one `ConsumerPerformance` of 100-byte records, alternating with Apache Kafka, in rounds before and after: 0.80 ->
0.89 of its rate, after a restart 0.92 -> 0.98.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.partitions.fetch import read_stored
from kafkalake.broker.partitions.fetched import Fetched, StoredRead, readable_end
from kafkalake.errors import KafkaLakeError
from kafkalake.wire.record_batch import encode_fetched

_EXPECTED_MAX = 64
"""The most reads that wait to be made. More are left to the consumers' requests."""


class ReadAhead:
    """The reads that consumers are expected to ask for. One is made in each turn of the event loop."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._expected: deque[StoredRead] = deque()

    def begin(self, fetched: Fetched) -> None:
        """Read ahead for the partitions of a response, which was sent, soon."""
        for partition in fetched.partitions:
            expected = partition.expect_read()
            if expected is not None and len(self._expected) < _EXPECTED_MAX:
                self._expected.append(expected)
                if len(self._expected) == 1:
                    self._call_soon(self._read_next)

    def _read_next(self) -> None:
        read = self._expected.popleft()
        if self._expected:
            self._call_soon(self._read_next)
        call_isolated(CallbackLoop.READ_AHEAD, _read, read)


def _read(read: StoredRead) -> None:
    partition = read.partition
    end_offset = readable_end(partition, read.isolation)
    if partition.removed or read.offset >= end_offset:
        return
    if partition.read_tail(read.offset, end_offset, 0, first_whole=False) is not None:
        return  # the consumer has caught up with the producers
    with contextlib.suppress(KafkaLakeError):  # the consumer's request will find it, and be told
        stored = read_stored(read, end_offset, first_whole=True)
        if stored is not None and not stored.is_compressed:
            encoded = encode_fetched(stored.messages, read.offset, end_offset, read.max_bytes)
            stored.keep(*encoded, ahead=True)
