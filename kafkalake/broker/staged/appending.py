"""Appends staged files to the logs: read in threads, appended on the event loop a few MiB at a time, by one producer.

The batches of partitions that other brokers lead are produced to their leaders, as a client would: in order, one of each partition
at a time. Their numbers make it harmless to send one again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.delayed.delaying_append import Gate, Received, begin_append
from kafkalake.broker.partitions.append_queue import AppendQueue, ProduceRequest
from kafkalake.broker.partitions.batch_checks import check_batch, check_timestamps
from kafkalake.broker.partitions.pending_append import ACKS_ALL, TIMEOUT_MS, PendingAppend
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.staged.request import StagedFile
from kafkalake.broker.transactions.transaction_peers import BatchRequest, TransactionPeers
from kafkalake.clock import Clock
from kafkalake.config.topic_rules import TopicRules
from kafkalake.errors import (
    BrokerUnavailableError,
    CorruptSegmentError,
    InvalidRecordError,
    KafkaError,
    NetworkExceptionError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
    with_retriable,
)
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.sequences import advance_sequence
from kafkalake.run_blocking import RunBlocking
from kafkalake.storage.staged_file import StagedBatch, StagedReader
from kafkalake.topic_partition import TopicPartition

_MESSAGE_OVERHEAD = 3
"""The maximum ratio of a staged message's size to its batch on the wire, due to offsets, timestamps and lengths."""
_METADATA_BYTES = 64 * 1024

LEADER_TIMEOUT_MS = 30_000
"""The longest wait for the leader of a partition that is another broker."""
PAUSE_S, PAUSE_S_MAX = 0.05, 1.0


class AppendHost(Protocol):
    """The parts of a broker that appending needs."""

    topics: Topics
    append_queue: AppendQueue
    clock: Clock
    run_blocking: RunBlocking
    transaction_peers: TransactionPeers

    @property
    def delay_gate(self) -> Gate: ...


@dataclass(frozen=True, slots=True)
class Target:
    """A partition to write to, led by this broker or by another one."""

    topic: Topic
    index: int

    @property
    def name(self) -> TopicPartition:
        """Topic and number."""
        return self.topic.name, self.index


class StagedFileAppender:
    """The appends of one transaction. `partitions`: all that may be written to, by (topic number, partition).

    topics_done: numbers of topics whose batches are passed over. `reached` is called after each appended chunk. Memory: two chunks.
    """

    def __init__(
        self,
        host: AppendHost,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: dict[tuple[int, int], Target],
        reached: Callable[[], None],
        topics_done: Collection[int] = (),
    ) -> None:
        self._host = host
        self._run_blocking = host.run_blocking
        self._transactional_id = transactional_id
        self._producer = producer
        self._partitions = partitions
        self._topics_done = topics_done
        self.records = 0
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
                records += sum(each.batch.rows for each in batches)
                await self._append([each for each in batches if each.topic not in self._topics_done])
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

    async def _append(self, batches: Sequence[StagedBatch]) -> None:
        """Append a chunk. Blocks the event loop only while copying the bytes."""
        here: list[PendingAppend] = []
        elsewhere: dict[Target, deque[BatchRequest]] = {}
        for staged in batches:
            target = self._prepare(staged)
            try:
                here.append(self._pending(target, staged.batch))
            except NotLeaderOrFollowerError:
                elsewhere.setdefault(target, deque()).append(BatchRequest(target.name, staged.batch))
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ProduceRequest(here, lambda request: _finish(done, request)).start(self._host.append_queue)
        try:
            while elsewhere:
                self._check_there(elsewhere)
                await self._produce([waiting.popleft() for waiting in elsewhere.values()])
                elsewhere = {target: waiting for target, waiting in elsewhere.items() if waiting}
        finally:
            await done
        self.records += sum(each.batch.rows for each in batches)

    def _pending(self, target: Target, batch: ProducerBatch) -> PendingAppend:
        partition, delays = target.topic.leader(target.index), TopicRules.of(target.topic.config).delays
        received = Received(self._transactional_id, self._host.clock.now_ms(), TIMEOUT_MS)
        pending = begin_append(self._host.delay_gate, partition, delays, received, ACKS_ALL)
        pending.decoded(batch, None)
        return pending

    def _check_there(self, targets: Iterable[Target]) -> None:
        """Raise `UnknownTopicOrPartitionError` if a topic was deleted: a new one of its name must get none of its records."""
        for target in targets:
            if not self._host.topics.is_current(target.topic):
                sentence = f"topic {target.topic.name} was deleted while records were appended to it"
                raise with_retriable(UnknownTopicOrPartitionError(sentence), False)

    async def _produce(self, batches: Sequence[BatchRequest]) -> None:
        """Produce one batch of each of several partitions to their leaders. Raise the error that does not pass in time."""
        ends_ms = self._host.clock.monotonic_ms() + LEADER_TIMEOUT_MS
        pause_s = PAUSE_S
        while True:
            by_leader: dict[int, list[BatchRequest]] = {}
            for each in batches:
                by_leader.setdefault(self._host.topics.leader_id(each.partition), []).append(each)
            answers = await asyncio.gather(*(self._ask(leader, of_it) for leader, of_it in by_leader.items()))
            failed = [(each, error) for answer in answers for each, error in answer if error is not None]
            if not failed:
                return
            lasting = next((error for _, error in failed if not error.retriable), None)
            if lasting is not None or self._host.clock.monotonic_ms() >= ends_ms:
                raise lasting or failed[0][1]
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
            batches = [each for each, _ in failed]

    async def _ask(self, leader: int, batches: Sequence[BatchRequest]) -> list[tuple[BatchRequest, KafkaError | None]]:
        try:
            answers = await self._host.transaction_peers.append(leader, self._transactional_id, batches)
        except BrokerUnavailableError as error:
            unavailable = NetworkExceptionError(f"the leader of a partition, broker {leader}, does not answer: {error}")
            return [(each, unavailable) for each in batches]
        return list(zip(batches, answers, strict=True))

    def _prepare(self, staged: StagedBatch) -> Target:
        """Make a batch the next one of its partition, and return that."""
        key = (staged.topic, staged.partition)
        target = self._partitions.get(key)
        batch = staged.batch
        if target is None:
            raise InvalidRecordError(f"a staged batch is for partition {key}, which its job did not name")
        rules = TopicRules.of(target.topic.config)
        check_batch(rules, batch)
        check_timestamps(rules, batch, self._host.clock.now_ms())
        header = batch.header
        sequence = self._next_sequence[key]
        self._next_sequence[key] = advance_sequence(sequence, batch.rows)
        header[at.PRODUCER_ID], header[at.PRODUCER_EPOCH] = self._producer.producer_id, self._producer.epoch
        header[at.BASE_SEQUENCE] = sequence
        header[at.ATTRIBUTES] = at.ATTRIBUTE_TRANSACTIONAL | (rules.codec or 0)
        return target


def _finish(done: asyncio.Future[None], request: ProduceRequest) -> None:
    if done.done():
        return
    failed = next((each.result for each in request.batches if isinstance(each.result, KafkaError)), None)
    if failed is None:
        done.set_result(None)
    else:
        done.set_exception(failed)
