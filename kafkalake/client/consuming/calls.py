"""The calls of a consumer as scripts, see `script`.

A little more than 400 lines: one function for each call, and what several of them do.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa

from kafkalake.client.application_calls import call_application
from kafkalake.client.arguments import (
    check_topic,
    checked_numbers,
    checked_offsets,
    checked_partition,
    checked_partitions,
)
from kafkalake.client.cluster import PartitionInfo
from kafkalake.client.consuming.commits import Committed, GivenOffsets, Offsets
from kafkalake.client.consuming.core import ConsumerCore
from kafkalake.client.consuming.fetched import RawRecord
from kafkalake.client.consuming.listeners import CommitCallback, ConsumerInterceptor, RebalanceListener
from kafkalake.client.consuming.membership import Change
from kafkalake.client.consuming.offset_lookups import Found
from kafkalake.client.consuming.operation import Operation
from kafkalake.client.consuming.records import ConsumerRecord, DeserializedRecord
from kafkalake.client.consuming.script import Call, Script, Wait
from kafkalake.client.consuming.settings import ConsumerSettings
from kafkalake.client.consuming.subscriptions import EARLIEST, LATEST
from kafkalake.client.errors import ClientTimeoutError, IllegalStateError, RecordDeserializationError, WakeupError
from kafkalake.client.serialization import Deserializer
from kafkalake.clock import Clock
from kafkalake.errors import KafkaLakeError, UnknownTopicOrPartitionError, as_value
from kafkalake.topic_partition import TopicPartition, partition_name

logger = logging.getLogger(__name__)

_NEW_TOPIC_MS = 5_000
"""How long a topic that does not exist may still appear."""
_LEAVE_MS = 2_000
"""How long the coordinator's answer to a member that leaves is waited for, at most."""

T = TypeVar("T")


def _raise_first(errors: list[Exception]) -> None:
    """Raise the first of `errors`, if there is one. The list gives it up, as the error's traceback refers to the list."""
    if errors:
        raise errors.pop(0)


class ConsumerCalls:
    """See the module. Timeouts are milliseconds."""

    def __init__(
        self,
        core: ConsumerCore,
        settings: ConsumerSettings,
        clock: Clock,
        deserializers: tuple[Deserializer | None, Deserializer | None],
        interceptors: Sequence[ConsumerInterceptor],
    ) -> None:
        """deserializers: of keys and of values, None for bytes."""
        self.core = core
        self._settings = settings
        self._clock = clock
        self._key_deserializer, self._value_deserializer = deserializers
        self._interceptors = interceptors
        self._listener: RebalanceListener | None = None
        self._error: KafkaLakeError | None = None
        self._is_polling = self._is_unsubscribing = False
        self._ended_commits: deque[Callable[[], object]] = deque()
        self._commits_under_way = 0
        """The number of asynchronous commits that have not ended."""

    # Polling

    def listen(self, listener: RebalanceListener | None) -> None:
        """Have `listener` hear of the following rebalances."""
        self._listener = listener

    def poll(self, timeout_ms: int, limit: int) -> Script[list[DeserializedRecord]]:
        """Return up to `limit` records, [] if none came in time."""
        records = yield from self._poll(timeout_ms, lambda: self._take_records(limit))
        self.core.count_records(len(records))
        if not records or not self._interceptors:
            return records
        intercepted: list[DeserializedRecord] = []
        yield Call(lambda: intercepted.extend(self._intercepted(records)))
        return intercepted

    def poll_arrow(self, timeout_ms: int, limit: int) -> Script[list[pa.RecordBatch]]:
        """Return batches of at least `limit` records in all, if there are so many."""
        batches = yield from self._poll(timeout_ms, lambda: self._take_arrow(limit))
        self.core.count_records(sum(batch.num_rows for batch in batches))
        return batches

    def _poll(self, timeout_ms: int, take: Callable[[], list[T]]) -> Script[list[T]]:
        """Raise `IllegalStateError` in what a poll calls, as it would be called again."""
        if self._is_polling:
            raise IllegalStateError("a rebalance listener or callback that poll calls cannot call poll")
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        has_waited = False  # once at least: between calls nobody does the network's work
        self._is_polling = True
        try:
            while True:
                now_ms = self._clock.monotonic_ms()
                self._raise_kept_error()
                self.core.begin_poll(now_ms)
                yield from self._call_back()
                yield from self._rebalance()
                if self.core.fetcher.has_records:
                    if self.core.is_due(now_ms):
                        yield Wait(0)  # what comes next is asked for before these are decoded
                    if found := take():
                        return found
                if has_waited and now_ms >= deadline_ms:
                    return []
                yield Wait(deadline_ms)
                has_waited = True
        finally:
            self._is_polling = False

    def _take_records(self, limit: int) -> list[DeserializedRecord]:
        found: list[DeserializedRecord] = []
        try:
            while len(found) < limit and (records := self.core.fetcher.take_records(limit - len(found))):
                found += self._deserialized(records)
        except KafkaLakeError as error:
            if not found:
                raise
            self._error = as_value(error)  # raised in the next poll: records came before it
        return found

    def _take_arrow(self, limit: int) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        rows = 0
        try:
            while rows < limit and (batch := self.core.fetcher.take_arrow()) is not None:
                found.append(batch)
                rows += batch.num_rows
        except KafkaLakeError as error:
            if not found:
                raise
            self._error = as_value(error)  # raised in the next poll: records came before it
        return found

    def _deserialized(self, records: list[RawRecord]) -> Iterable[DeserializedRecord]:
        key, value = self._key_deserializer, self._value_deserializer
        if key is None and value is None:
            return records
        found: list[DeserializedRecord] = []
        for record in records:
            topic, headers = record.topic, record.headers
            try:
                made_key = record.key if key is None else key.deserialize(topic, headers, record.key)
                made_value = record.value if value is None else value.deserialize(topic, headers, record.value)
            except Exception as error:
                partition = record.topic, record.partition
                self.core.fetcher.return_to(partition, record.offset)
                self._error = RecordDeserializationError(partition, record.offset, str(error))
                break
            found.append(tuple.__new__(ConsumerRecord, (*record[:5], made_key, made_value, *record[7:])))
        if not found:
            self._raise_kept_error()
        return found

    def _raise_kept_error(self) -> None:
        if self._error is not None:
            kept, self._error = self._error, None
            raise kept

    def _intercepted(self, records: list[DeserializedRecord]) -> list[DeserializedRecord]:
        for interceptor in self._interceptors:
            try:
                records = list(interceptor.on_consume(records))
            except Exception:
                logger.warning("an interceptor failed in on_consume", exc_info=True)
        return records

    # Rebalances

    def _rebalance(self) -> Script[None]:
        change = self.core.change
        if change is None:
            return
        operation = self.core.begin_change(change, self._clock.monotonic_ms())
        if operation is not None:
            try:
                yield from self._result(operation)
            except WakeupError:
                raise
            except KafkaLakeError as error:
                logger.warning("offsets were not committed before partitions were revoked: %s", error)
        yield from self._give_up(change)
        if self.core.change is None:  # the listener has unsubscribed, or the membership was lost meanwhile
            return
        self.core.take_over(change)
        if change.is_complete and self._listener is not None:
            listener = self._listener
            yield Call(lambda: listener.on_partitions_assigned(sorted(change.added)))
        self.core.end_change(self._clock.monotonic_ms())

    def _give_up(self, change: Change) -> Script[None]:
        listener = self._listener
        try:
            if listener is not None and change.revoked:
                yield Call(lambda: listener.on_partitions_revoked(sorted(change.revoked)))
            if listener is not None and change.lost:
                yield Call(lambda: listener.on_partitions_lost(sorted(change.lost)))
        finally:
            self.core.give_up(change)

    # Commits

    def commit(self, offsets: GivenOffsets | None, timeout_ms: int) -> Script[None]:
        """Commit `offsets`, or all positions, and wait for it."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        committed = self.core.positions() if offsets is None else checked_offsets(offsets)
        errors: list[Exception] = []
        yield from self._noting(self._result(self.core.commit(committed, deadline_ms, is_repeated=True)), errors)
        if not errors:
            yield from self._earlier_commits(deadline_ms)
        yield from self._noting(self._call_back(), errors)
        _raise_first(errors)

    def _earlier_commits(self, deadline_ms: int) -> Script[None]:
        """Wait for the end of asynchronous commits."""
        while self._commits_under_way and (now_ms := self._clock.monotonic_ms()) < deadline_ms:
            self.core.raise_unreachable(now_ms)
            yield Wait(deadline_ms)

    def commit_async(self, offsets: GivenOffsets | None, callback: CommitCallback | None) -> None:
        """Commit `offsets`, or all positions. `callback` is called in a later call of this consumer."""
        deadline_ms = self._clock.monotonic_ms() + self._settings.default_api_timeout_ms
        committed = self.core.positions() if offsets is None else checked_offsets(offsets)
        if callback is not None and not callable(callback):
            raise TypeError(f"callback is called with offsets and an error, but {callback!r} is not callable")
        operation = self.core.commit(committed, deadline_ms, is_repeated=False)
        self._commits_under_way += 1

        def ended() -> None:
            self._commits_under_way -= 1
            if callback is not None:
                self._ended_commits.append(lambda: callback(committed, operation.error))

        operation.when_done(ended)

    def _report_commit(self, offsets: Offsets) -> None:
        for interceptor in self._interceptors:
            call_application(partial(interceptor.on_commit, offsets), "on_commit of an interceptor")

    def _call_back(self) -> Script[None]:
        while self._has_news:
            while self.core.ended_commits:
                yield Call(partial(self._report_commit, self.core.ended_commits.popleft()))
            if self._ended_commits:
                yield Call(self._ended_commits.popleft())

    @property
    def _has_news(self) -> bool:
        """Return whether interceptors, or callbacks, have not heard of a commit."""
        return bool(self._ended_commits or self.core.ended_commits)

    # Questions

    def committed(self, partitions: Collection[TopicPartition], timeout_ms: int) -> Script[Committed]:
        """Return what was committed."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        return (yield from self._result(self.core.committed(checked_partitions(partitions), deadline_ms)))

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int], timeout_ms: int) -> Script[Found]:
        """Return the first offsets at or after times."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        wanted = checked_numbers(timestamps, "a timestamp in milliseconds since 1970")
        return (yield from self._result(self.core.offsets_for_times(wanted, deadline_ms)))

    def edge_offsets(
        self, partitions: Collection[TopicPartition], is_end: bool, timeout_ms: int
    ) -> Script[dict[TopicPartition, int]]:
        """Return the first offsets of partitions, or the offsets after their last readable records."""
        timestamps = dict.fromkeys(checked_partitions(partitions), LATEST if is_end else EARLIEST)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        found = yield from self._result(self.core.offsets_for_times(timestamps, deadline_ms))
        return {partition: each.offset for partition, each in found.items() if each is not None}

    def position(self, partition: TopicPartition, timeout_ms: int) -> Script[int]:
        """Return the offset of the next record, once it is known."""
        partition = checked_partition(partition)
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while (position := self.core.subscriptions.state(partition).position) is None:
            now_ms = self._clock.monotonic_ms()
            if now_ms >= deadline_ms:
                raise ClientTimeoutError(
                    f"the position of partition {partition_name(partition)} was not found in time"
                    + self.core.view.reason(partition)
                )
            self.core.raise_errors(now_ms)
            yield Wait(deadline_ms)
        return position

    def partitions_for(self, topic: str, timeout_ms: int) -> Script[tuple[PartitionInfo, ...]]:
        """Return the partitions of a topic. Raise its error if it has one that is not retriable, or still has it at the end."""
        check_topic(topic)
        metadata = self.core.metadata
        begin_ms = self._clock.monotonic_ms()

        def is_known() -> bool:
            error = metadata.cluster.errors.get(topic)
            is_found = topic in metadata.cluster.topics
            if not is_found and metadata.follows_all:  # by now it may be among them
                error = UnknownTopicOrPartitionError(f"topic '{topic}' does not exist")
                metadata.request_update()
            is_new = self._clock.monotonic_ms() < begin_ms + _NEW_TOPIC_MS  # others may not know of it yet
            if error is not None and not (error.retriable and is_new):
                raise as_value(error)
            return is_found

        self.core.ask_about({topic})
        try:
            yield from self._metadata(timeout_ms, is_known)
        finally:
            self.core.ask_about(())
        return metadata.cluster.topics[topic].partitions

    def topics(self, timeout_ms: int) -> Script[dict[str, tuple[PartitionInfo, ...]]]:
        """Return the partitions of all topics."""
        metadata = self.core.metadata
        before = metadata.version
        self.core.list_topics(True)
        metadata.request_update()
        try:
            yield from self._metadata(timeout_ms, lambda: metadata.version > before)
        finally:
            self.core.list_topics(False)
        return {name: info.partitions for name, info in metadata.cluster.topics.items()}

    def _metadata(self, timeout_ms: int, is_known: Callable[[], bool]) -> Script[None]:
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        metadata = self.core.metadata
        while not is_known():
            now_ms = self._clock.monotonic_ms()
            if now_ms >= deadline_ms:
                errors = list(metadata.cluster.errors.values())
                raise metadata.error or (errors[0] if errors else ClientTimeoutError("metadata did not come in time"))
            self.core.raise_errors(now_ms)
            yield Wait(deadline_ms)

    def _result(self, operation: Operation[T]) -> Script[T]:
        try:
            while not operation.is_done:
                self.core.raise_unreachable(self._clock.monotonic_ms())
                yield Wait(operation.deadline_ms)
            return operation.result()
        finally:
            operation.abandon()

    # The end

    def unsubscribe(self) -> Script[None]:
        """Give the partitions up, leave the group, forget everything."""
        if self._is_unsubscribing:  # by a call under way, in which the application is called
            return
        self._is_unsubscribing = True
        errors: list[Exception] = []
        try:
            yield from self._noting(self._leave(_LEAVE_MS), errors)
        finally:
            self._is_unsubscribing = False
        self.core.unsubscribe()
        _raise_first(errors)

    def close(self, timeout_ms: int) -> Script[None]:
        """Commit if that is automatic, give the partitions up, leave the group."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        operation = self.core.begin_close(deadline_ms)
        try:
            if operation is not None:
                yield from self._result(operation)
            yield from self._earlier_commits(deadline_ms)
        except KafkaLakeError as error:
            logger.warning("offsets were not committed when the consumer was closed: %s", error)
        errors: list[Exception] = []
        while self._has_news:
            yield from self._noting(self._call_back(), errors)
        left_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        yield from self._noting(self._leave(min(left_ms, _LEAVE_MS)), errors)
        self.core.end_sessions(self._clock.monotonic_ms())
        yield Wait(0)
        _raise_first(errors)

    def _noting(self, script: Script[None], errors: list[Exception]) -> Script[None]:
        """Run a script, and add what it raises to `errors`: an error of the application does not end the rest."""
        try:
            yield from script
        except Exception as error:
            errors.append(error)

    def _leave(self, timeout_ms: int) -> Script[None]:
        """Give the partitions up and leave the group. Raise what the listener raises, after that."""
        if self.core.subscriptions.is_by_group:
            errors: list[Exception] = []
            yield from self._noting(self._give_up(self.core.last_change), errors)
            now_ms = self._clock.monotonic_ms()
            leaving = self.core.leave(now_ms)
            while leaving is not None and not leaving.is_done and self._clock.monotonic_ms() < now_ms + timeout_ms:
                yield Wait(now_ms + timeout_ms)
            _raise_first(errors)
