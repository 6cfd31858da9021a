"""From staged files into the logs: read in threads, appended on the event loop a few MiB at a time, by one producer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from kafkalake.broker.coordination.journal import Producer
from kafkalake.broker.partitions.append_queue import AppendQueue, ProduceRequest
from kafkalake.broker.partitions.partition import Partition, PendingAppend
from kafkalake.broker.staged.request import StagedFile
from kafkalake.config.broker import TopicConfig
from kafkalake.errors import CorruptSegmentError, InvalidRecordError, KafkaError, MessageTooLargeError
from kafkalake.record import layout as at
from kafkalake.storage.staged_file import StagedBatch, StagedReader, data_bytes

_BATCH_OVERHEAD_BYTES = 61
_RECORD_BYTES_MIN = 7
_SEQUENCE_MASK = 0x7FFFFFFF
_MESSAGE_OVERHEAD = 3
"""A staged message is bigger than its batch on the wire: offsets, timestamps and lengths take at most so many times as much."""
_METADATA_BYTES = 64 * 1024

Blocking = Callable[[Callable[[], Any]], Awaitable[Any]]


class Appending:
    """One transaction's records on their way. `partitions`: by (number of the topic, partition), all that may be written to.

    codecs: by the number of the topic, the codec in which its batches are to be sent (0: none). Memory: two chunks.
    """

    def __init__(
        self,
        queue: AppendQueue,
        run_blocking: Blocking,
        producer: Producer,
        partitions: dict[tuple[int, int], Partition],
        reached: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._run_blocking = run_blocking
        self._producer = producer
        self._partitions = partitions
        self._reached = reached
        self._next_sequence = dict.fromkeys(partitions, 0)
        largest = max((each.topic.config.max_message_bytes for each in partitions.values()), default=0)
        self._message_bytes_max = _MESSAGE_OVERHEAD * largest + _METADATA_BYTES

    async def append_file(self, directory: Path, file: StagedFile) -> None:
        """Append all of one file, as many batches and records as its job says. Raises `CorruptSegmentError`, `KafkaError`."""
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
            del coming  # an error of reading is in there, and this frame in its traceback
            reader.close()
        if (found, records) != (file.batches, file.records):
            raise CorruptSegmentError(
                path,
                file.bytes,
                f"{records} records in {found} batches; its job wrote {file.records} in {file.batches}",
            )

    async def _append(self, batches: Sequence[StagedBatch]) -> int:
        """Append a chunk; records in it. The event loop is held for as long as their bytes take to be copied."""
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
        check_batch(partition.topic.config, batch.rows, data_bytes(batch), int(batch.layout[at.KEY_NULLS]))
        header = batch.header
        sequence = self._next_sequence[key]
        self._next_sequence[key] = (sequence + batch.rows) & _SEQUENCE_MASK
        header[at.PRODUCER_ID], header[at.PRODUCER_EPOCH] = self._producer.producer_id, self._producer.epoch
        header[at.BASE_SEQUENCE] = sequence
        header[at.ATTRIBUTES] = at.ATTRIBUTE_TRANSACTIONAL | codec_of(partition.topic.config)
        return PendingAppend(partition, batch, None)


def check_batch(config: TopicConfig, rows: int, bytes_: int, key_nulls: int) -> None:
    """What a produced batch is refused for too. Raises `MessageTooLargeError`, `InvalidRecordError`."""
    size = bytes_ + _RECORD_BYTES_MIN * rows + _BATCH_OVERHEAD_BYTES
    if size > config.max_message_bytes:
        raise MessageTooLargeError(f"a batch of {size} bytes, max.message.bytes is {config.max_message_bytes}")
    if key_nulls and "compact" in config.cleanup_policy:
        raise InvalidRecordError("a compacted topic takes no record without a key")


def codec_of(config: TopicConfig) -> int:
    """The codec that consumers are to get the batches in: the topic's; none where that is the producer's choice."""
    return _CODECS.get(config.compression_type, 0)


_CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""As record batch v2 numbers them."""


def _finish(done: asyncio.Future[None], request: ProduceRequest) -> None:
    if done.done():
        return
    failed = next((each.result for each in request.batches if isinstance(each.result, KafkaError)), None)
    if failed is None:
        done.set_result(None)
    else:
        done.set_exception(failed)
