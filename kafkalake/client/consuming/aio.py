"""The consumer for an event loop: `kafkalake.aio.Consumer`. The same calls as those of `consumer.Consumer`, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from kafkalake.client.cluster import PartitionInfo
from kafkalake.client.consuming.assignors import Assignor
from kafkalake.client.consuming.commits import Committed, GivenOffsets
from kafkalake.client.consuming.face import ConsumerFace, ConsumerParts
from kafkalake.client.consuming.listeners import ConsumerInterceptor
from kafkalake.client.consuming.offset_lookups import Found
from kafkalake.client.consuming.records import DeserializedRecord
from kafkalake.client.consuming.script import Call, Script, Wait
from kafkalake.client.errors import ClientClosedError, IllegalStateError
from kafkalake.client.network.event_loop import EventLoopEdge
from kafkalake.client.serialization import Deserializer
from kafkalake.client.settings import merged
from kafkalake.clock import Clock
from kafkalake.topic_partition import TopicPartition

_CLOSE_MS = 30_000
_ITERATION_WAIT_S = 1.0

T = TypeVar("T")


class Consumer(ConsumerFace):
    """Reads records from topics, on the event loop that it is made on. Use it in an `async with` block, or close it.

    As `kafkalake.Consumer`; methods of a rebalance listener may be coroutines. One task at a time awaits a call.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        key_deserializer: Deserializer | str | None = None,
        value_deserializer: Deserializer | str | None = None,
        assignors: Sequence[Assignor] = (),
        interceptors: Sequence[ConsumerInterceptor] = (),
        clock: Clock | None = None,
        random: Random | None = None,
        **named: object,
    ) -> None:
        """See `kafkalake.Consumer`."""
        parts = ConsumerParts(key_deserializer, value_deserializer, assignors, interceptors, clock, random)
        super().__init__(merged(settings, named), parts)
        self._edge = EventLoopEdge(self._core, self._clock)
        self._user: asyncio.Task[Any] | None = None
        self._is_closed = False

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            self._edge.abandon(self)

    async def __aenter__(self) -> Consumer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def poll(self, timeout_s: float = 0.0, *, max_records: int | None = None) -> list[DeserializedRecord]:
        """Return records, see `kafkalake.Consumer`."""
        return await self._poll(self._calls.poll(self._timeout_ms(timeout_s), self._poll_limit(max_records)))

    async def poll_arrow(self, timeout_s: float = 0.0, *, max_records: int = 100_000) -> list[pa.RecordBatch]:
        """Return records as Arrow batches, see `kafkalake.Consumer`."""
        return await self._poll(self._calls.poll_arrow(self._timeout_ms(timeout_s), self._poll_limit(max_records)))

    async def __aiter__(self) -> AsyncIterator[DeserializedRecord]:
        """Yield records for ever. A record is done with when the next one is asked for."""
        while True:
            for record in await self.poll(_ITERATION_WAIT_S, max_records=1):
                yield record

    def wakeup(self) -> None:
        """Have the call that waits, else the next poll or other call that would wait, raise `WakeupError`."""
        self._is_woken = True
        self._edge.wake_up()

    async def commit(self, offsets: GivenOffsets | None = None, timeout_s: float | None = None) -> None:
        """Commit offsets, or all positions, see `kafkalake.Consumer`."""
        await self._run(self._calls.commit(offsets, self._timeout_ms(timeout_s)))

    async def committed(self, partitions: Collection[TopicPartition], timeout_s: float | None = None) -> Committed:
        """Return what the group has committed, None for partitions without a commit."""
        return await self._run(self._calls.committed(partitions, self._timeout_ms(timeout_s)))

    async def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """Return the offset of the next record."""
        return await self._run(self._calls.position(partition, self._timeout_ms(timeout_s)))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_s: float | None = None
    ) -> Found:
        """Return the first record at or after a timestamp (ms since 1970) of each partition, None where all are older."""
        return await self._run(self._calls.offsets_for_times(timestamps, self._timeout_ms(timeout_s)))

    async def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offsets of partitions."""
        return await self._run(self._calls.edge_offsets(partitions, False, self._timeout_ms(timeout_s)))

    async def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offsets after the last readable records of partitions."""
        return await self._run(self._calls.edge_offsets(partitions, True, self._timeout_ms(timeout_s)))

    async def partitions_for(self, topic: str, timeout_s: float | None = None) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic."""
        return await self._run(self._calls.partitions_for(topic, self._timeout_ms(timeout_s)))

    async def topics(self, timeout_s: float | None = None) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return the partitions of all topics."""
        return await self._run(self._calls.topics(self._timeout_ms(timeout_s)))

    async def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group."""
        await self._run(self._calls.unsubscribe())

    async def close(self, timeout_s: float | None = None) -> None:
        """Commit if that is automatic, leave the group, and close all connections. Waits up to 30 s without a timeout."""
        if self._is_closed:
            return
        if self._edge.is_over:
            self._end()
            return
        self._check_user()
        timeout_ms = self._timeout_ms(timeout_s, _CLOSE_MS)
        if self._is_closing:  # by a call under way, in which the application is called
            return
        self._is_woken, self._is_closing = False, True
        try:
            await self._run(self._calls.close(timeout_ms))
        finally:
            self._end()

    def _end(self) -> None:
        self._is_closed = True
        self._core.close()
        self._edge.close()

    # How calls wait

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        if self._is_closed:
            raise ClientClosedError("the consumer is closed")
        yield

    def _check_user(self) -> None:
        self._edge.check_loop()
        if self._user not in (None, asyncio.current_task()):
            raise IllegalStateError("another task uses the consumer: only wakeup may be called by several")

    async def _poll(self, script: Script[T]) -> T:
        self._check_user()
        if (woken := self._taken_wakeup()) is not None:  # heard of however many records there are to go on with
            raise woken
        return await self._run(script)

    async def _run(self, script: Script[T]) -> T:
        self._check_user()
        is_outermost = self._user is None
        self._user = asyncio.current_task()
        try:
            with self._using():
                resume: Callable[[], Wait | Call] = partial(next, script)
                while True:
                    resume = await self._wait(script, resume())
                    if self._is_closed:  # by the application, in what was called
                        raise ClientClosedError("the consumer is closed")
        except StopIteration as stop:
            found: T = stop.value
            return found
        finally:
            script.close()
            if is_outermost:
                self._user = None

    async def _wait(self, script: Script[T], step: Wait | Call) -> Callable[[], Wait | Call]:
        """Do what a script waits for, and return what continues it."""
        if isinstance(step, Wait):
            left_ms = step.until_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                self._edge.turn()
                await asyncio.sleep(0)  # the event loop receives what came, and other tasks run
            else:
                self._edge.schedule()
                await self._edge.next_turn(left_ms / 1000)
                if (woken := self._taken_wakeup()) is not None:
                    return partial(script.throw, woken)
            return partial(script.send, None)
        try:
            answer = step.call()
            return partial(script.send, await answer if inspect.isawaitable(answer) else answer)
        except BaseException as error:
            return partial(script.throw, error)
