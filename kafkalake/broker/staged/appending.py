"""Appends staged files to the logs: read in threads, appended on the event loop a few MiB at a time, by one producer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.partitions.append_queue import AppendQueue, ProduceRequest
from kafkalake.broker.partitions.partition import Partition, PendingAppend
from kafkalake.broker.staged.request import StagedFile
from kafkalake.config.topic_rules import TopicRules
from kafkalake.errors import CorruptSegmentError, InvalidRecordError, KafkaError, MessageTooLargeError
from kafkalake.record import layout as at
from kafkalake.storage.staged_file import StagedBatch, StagedReader, data_bytes

_BATCH_OVERHEAD_BYTES = 61
_RECORD_BYTES_MIN = 7
_SEQUENCE_MASK = 0x7FFFFFFF
_MESSAGE_OVERHEAD = 3
"""The maximum ratio of a staged message's size to its batch on the wire, due to offsets, timestamps and lengths."""
_METADATA_BYTES = 64 * 1024

Blocking = Callable[[Callable[[], Any]], Awaitable[Any]]


class StagedFileAppender:
    """The appends of one transaction. `partitions`: all that may be written to, by (topic number, partition).

    `reached` is called after each appended chunk. Memory: two chunks.
    """

    def __init__(
        self,
        queue: AppendQueue,
        run_blocking: Blocking,
        producer: ProducerIdAndEpoch,
        partitions: dict[tuple[int, int], Partition],
        reached: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._run_blocking = run_blocking
        self._producer = producer
        self._partitions = partitions
        self._reached = reached
        self._next_sequence = dict.fromkeys(partitions, 0)
        largest = max((TopicRules.of(each.topic.config).message_bytes_max for each in partitions.values()), default=0)
        self._message_bytes_max = _MESSAGE_OVERHEAD * largest + _METADATA_BYTES

    async def append_file(self, directory: Path, file: StagedFile) -> None:
        """Append one file. Raise `CorruptSegmentError` if it is damaged or its counts differ, `KafkaError` if an append fails."""
        path = str(directory / file.name)
        reader = StagedReader(path, file.bytes, self._message_bytes_max)
        coming = asyncio.ensure_future(self._run_blocking(reader.read))
        found = records = 0
        try:
            while batches := await coming:
                coming = asyncio.ensure_future(self._run_blocking(reader.read))
                found += len(batches)
                records += await self._append(batches)
                self._reached()
        except OSError as error:
            raise CorruptSegmentError(path, 0, f"cannot be read: {error.strerror or error}") from error
        finally:
            await asyncio.wait([coming])
            del coming  # breaks the reference cycle of a read error and this frame
            reader.close()
        if (found, records) != (file.batches, file.records):
            raise CorruptSegmentError(
                path,
                file.bytes,
                f"{records} records in {found} batches; its job wrote {file.records} in {file.batches}",
            )

    async def _append(self, batches: Sequence[StagedBatch]) -> int:
        """Append a chunk and return its number of records. Blocks the event loop only while copying the bytes."""
        pending = [self._prepare(each) for each in batches]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ProduceRequest(pending, lambda request: _finish(done, request)).start(self._queue)
        await done
        return sum(each.batch.rows for each in batches)

    def _prepare(self, staged: StagedBatch) -> PendingAppend:
        key = (staged.topic, staged.partition)
        partition = self._partitions.get(key)
        batch = staged.batch
        if partition is None:
            raise InvalidRecordError(f"a staged batch is for partition {key}, which its job did not name")
        rules = TopicRules.of(partition.topic.config)
        check_batch(rules, batch.rows, data_bytes(batch), int(batch.layout[at.KEY_NULLS]))
        header = batch.header
        sequence = self._next_sequence[key]
        self._next_sequence[key] = (sequence + batch.rows) & _SEQUENCE_MASK
        header[at.PRODUCER_ID], header[at.PRODUCER_EPOCH] = self._producer.producer_id, self._producer.epoch
        header[at.BASE_SEQUENCE] = sequence
        header[at.ATTRIBUTES] = at.ATTRIBUTE_TRANSACTIONAL | (rules.codec or 0)
        return PendingAppend(partition, batch, None)


def check_batch(rules: TopicRules, rows: int, bytes_: int, key_nulls: int) -> None:
    """Apply the checks of produced batches.

    Raise `MessageTooLargeError` above max.message.bytes, `InvalidRecordError` if a compacted topic gets a null key.
    """
    size = bytes_ + _RECORD_BYTES_MIN * rows + _BATCH_OVERHEAD_BYTES
    if size > rules.message_bytes_max:
        raise MessageTooLargeError(f"a batch of {size} bytes, max.message.bytes is {rules.message_bytes_max}")
    if key_nulls and rules.key_required:
        raise InvalidRecordError("a compacted topic takes no record without a key")


def _finish(done: asyncio.Future[None], request: ProduceRequest) -> None:
    if done.done():
        return
    failed = next((each.result for each in request.batches if isinstance(each.result, KafkaError)), None)
    if failed is None:
        done.set_result(None)
    else:
        done.set_exception(failed)
