"""The consumer for threads: `kafkalake.Consumer`.

The application's thread does the network's work in its calls. Between them a thread of the consumer's own does it every 100 ms,
so that heartbeats are sent, and records fetched, while the application works on others.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from types import TracebackType
from typing import TypeVar

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
from kafkalake.client.forks import inherited, watch_forks
from kafkalake.client.network.selector import SelectorEdge
from kafkalake.client.serialization import Deserializer
from kafkalake.client.settings import merged
from kafkalake.clock import Clock
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_TICK_S = 0.1
_CLOSE_MS = 30_000
_ITERATION_WAIT_S = 1.0

T = TypeVar("T")


class Consumer(ConsumerFace):
    """Reads records from topics. Use it in a `with` block, or close it, and from one thread at a time, `wakeup` excepted.

    Settings are Kafka's, by name: `Consumer({"group.id": "g"})` or `Consumer(group_id="g")`. Times are seconds. Without a timeout,
    calls wait up to `default.api.timeout.ms`. They raise `ClientClosedError` after `close`, `WakeupError` after `wakeup`,
    `IllegalStateError` if another thread is in one, `BrokerUnavailableError` if no broker was ever reached, and Kafka's errors.
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
        """Deserializers: an object, or `bytes` (the default), `string` or `json`. assignors: your own, most wanted first.

        Raise `ConfigurationError` for a setting that is unknown or invalid.
        """
        parts = ConsumerParts(key_deserializer, value_deserializer, assignors, interceptors, clock, random)
        super().__init__(merged(settings, named), parts)
        self._edge = SelectorEdge(self._core, self._clock)
        self._lock = threading.RLock()
        self._guard = threading.Lock()
        self._user: int | None = None
        self._depth = 0
        self._is_closed = False
        self._end = threading.Event()
        self._keeper: threading.Thread | None = None
        self._is_inherited = False
        watch_forks(self)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Records

    def poll(self, timeout_s: float = 0.0, *, max_records: int | None = None) -> list[DeserializedRecord]:
        """Return records as soon as there are any, up to `max_records` (`max.poll.records`), [] if none came in time.

        The records returned before are done with: an automatic commit may cover them. Carries out rebalances. Raise
        `IllegalStateError` in a rebalance listener, or callback, that a poll calls.
        """
        return self._poll(self._calls.poll(self._timeout_ms(timeout_s), self._poll_limit(max_records)))

    def poll_arrow(self, timeout_s: float = 0.0, *, max_records: int = 100_000) -> list[pa.RecordBatch]:
        """Return records as Arrow batches, each of one partition, with the columns of `records.ARROW_SCHEMA`.

        No further batch is taken once there are `max_records`. Deserializers and interceptors are not called.
        """
        return self._poll(self._calls.poll_arrow(self._timeout_ms(timeout_s), self._poll_limit(max_records)))

    def __iter__(self) -> Iterator[DeserializedRecord]:
        """Yield records for ever. A record is done with when the next one is asked for."""
        while True:
            yield from self.poll(_ITERATION_WAIT_S, max_records=1)

    def wakeup(self) -> None:
        """Have the call of another thread that waits, else the next poll or other call that would wait, raise `WakeupError`."""
        self._is_woken = True
        self._edge.wake_up()

    # Offsets

    def commit(self, offsets: GivenOffsets | None = None, timeout_s: float | None = None) -> None:
        """Commit offsets, or all positions: of the next records to read. Return when that is done.

        Raise `CommitFailedError` if others may have the partitions, `InvalidGroupIdError` without a group.
        """
        self._run(self._calls.commit(offsets, self._timeout_ms(timeout_s)))

    def committed(self, partitions: Collection[TopicPartition], timeout_s: float | None = None) -> Committed:
        """Return what the group has committed, None for partitions without a commit."""
        return self._run(self._calls.committed(partitions, self._timeout_ms(timeout_s)))

    def position(self, partition: TopicPartition, timeout_s: float | None = None) -> int:
        """Return the offset of the next record."""
        return self._run(self._calls.position(partition, self._timeout_ms(timeout_s)))

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int], timeout_s: float | None = None) -> Found:
        """Return the first record at or after a timestamp (ms since 1970) of each partition, None where all are older."""
        return self._run(self._calls.offsets_for_times(timestamps, self._timeout_ms(timeout_s)))

    def beginning_offsets(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offsets of partitions."""
        return self._run(self._calls.edge_offsets(partitions, False, self._timeout_ms(timeout_s)))

    def end_offsets(
        self, partitions: Collection[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offsets after the last readable records of partitions."""
        return self._run(self._calls.edge_offsets(partitions, True, self._timeout_ms(timeout_s)))

    # Topics

    def partitions_for(self, topic: str, timeout_s: float | None = None) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic."""
        return self._run(self._calls.partitions_for(topic, self._timeout_ms(timeout_s)))

    def topics(self, timeout_s: float | None = None) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return the partitions of all topics."""
        return self._run(self._calls.topics(self._timeout_ms(timeout_s)))

    # The end

    def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group."""
        self._run(self._calls.unsubscribe())

    def close(self, timeout_s: float | None = None) -> None:
        """Commit if that is automatic, leave the group, and close all connections. Waits up to 30 s without a timeout."""
        if self._is_closed:
            return
        timeout_ms = self._timeout_ms(timeout_s, _CLOSE_MS)
        with self._claimed():
            if self._is_closing:  # by a call under way, in which the application is called
                return
            self._is_woken, self._is_closing = False, True
            try:
                self._run(self._calls.close(timeout_ms))
            finally:
                self._is_closed = True
                self._end.set()
                with self._lock:
                    self._core.close()
                    self._edge.close()

    def disown(self) -> None:
        """Refuse all use: see `forks`."""
        self._is_closed = self._is_inherited = True

    # How calls wait

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        with self._claimed(), self._lock:
            yield

    @contextlib.contextmanager
    def _claimed(self) -> Iterator[None]:
        """Keep other threads of the application out."""
        if self._is_closed:
            raise inherited() if self._is_inherited else ClientClosedError("the consumer is closed")
        caller = threading.get_ident()
        with self._guard:
            if self._user not in (None, caller):
                raise IllegalStateError("another thread uses the consumer: only wakeup may be called by several")
            self._user = caller
            self._depth += 1
        try:
            yield
        finally:
            with self._guard:
                self._depth -= 1
                if not self._depth:
                    self._user = None

    def _poll(self, script: Script[T]) -> T:
        with self._claimed():
            if (woken := self._taken_wakeup()) is not None:  # heard of however many records there are to go on with
                raise woken
            return self._run(script)

    def _run(self, script: Script[T]) -> T:
        with self._using():
            self._keep_alive()
            resume: Callable[[], Wait | Call] = partial(next, script)
            try:
                while True:
                    resume = self._wait(script, resume())
                    if self._is_closed:  # by the application, in what was called
                        raise ClientClosedError("the consumer is closed")
            except StopIteration as stop:
                found: T = stop.value
                return found
            finally:
                script.close()

    def _wait(self, script: Script[T], step: Wait | Call) -> Callable[[], Wait | Call]:
        """Do what a script waits for, and return what continues it."""
        if isinstance(step, Wait):
            left_ms = step.until_ms - self._clock.monotonic_ms()
            self._edge.poll(max(left_ms, 0))
            if left_ms > 0 and (woken := self._taken_wakeup()) is not None:
                return partial(script.throw, woken)
            return partial(script.send, None)
        self._lock.release()  # heartbeats go on while the application's code runs
        try:
            answer = step.call()
            if inspect.iscoroutine(answer):
                answer.close()
                raise TypeError(
                    "a listener's methods and callbacks are no coroutines here: kafkalake.aio.Consumer awaits them"
                )
            return partial(script.send, answer)
        except BaseException as error:
            return partial(script.throw, error)
        finally:
            self._lock.acquire()

    def _keep_alive(self) -> None:
        if self._keeper is None and self._core.needs_heartbeats:
            name = f"consumer-{self._settings.client_id}"
            self._keeper = threading.Thread(target=self._beat, name=name, daemon=True)
            self._keeper.start()

    def _beat(self) -> None:
        """Do the network's work as long as the application does not."""
        while not self._end.wait(_TICK_S):
            if self._lock.acquire(blocking=False):
                try:
                    if not self._is_closed:
                        self._edge.poll(0)
                except BaseException:  # of an assignor, too: heartbeats go on
                    logger.exception("the consumer's thread failed")
                finally:
                    self._lock.release()
