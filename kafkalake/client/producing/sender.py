"""Sends batches to the leaders of their partitions and decides on the answers, as Kafka's `Sender`. No socket, no clock.

A batch is sent again after an error that may pass, until `delivery.timeout.ms`. Of an idempotent producer the batches of a
partition keep their order by sequence numbers (`idempotence`); of others only if one request at a time is in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from random import Random

from kafkalake.client.errors import ClientTimeoutError
from kafkalake.client.metrics import Metrics
from kafkalake.client.network.backoff import ExponentialBackoff
from kafkalake.client.network.client import NetworkClient, second_connection
from kafkalake.client.network.machine import Action
from kafkalake.client.network.pending_request import PendingRequest
from kafkalake.client.producing.accumulator import Accumulator
from kafkalake.client.producing.batch import Batch
from kafkalake.client.producing.connections import assign, excess, shift
from kafkalake.client.producing.idempotence import Sequences
from kafkalake.client.producing.identities import Identities
from kafkalake.client.producing.queues import PartitionQueue
from kafkalake.client.producing.settings import ProducerSettings
from kafkalake.client.requests import error_name
from kafkalake.errors import (
    BrokerUnavailableError,
    DuplicateSequenceError,
    FencedLeaderEpochError,
    KafkaError,
    KafkaLakeError,
    KafkaStorageError,
    LeaderNotAvailableError,
    MessageTooLargeError,
    NetworkExceptionError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
    ResponseTimedOutError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.cluster import NodeEndpoint
from kafkalake.wire.messages.records import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_STALE_METADATA = (
    FencedLeaderEpochError,
    KafkaStorageError,
    LeaderNotAvailableError,
    NetworkExceptionError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)
"""Errors after which the leader may be another broker."""


class Sender:
    """A `Machine`: see the module."""

    def __init__(
        self,
        settings: ProducerSettings,
        client: NetworkClient,
        accumulator: Accumulator,
        identities: Identities,
        sequences: Sequences | None,
        metrics: Metrics,
        random: Random,
    ) -> None:
        """sequences: None for a producer that is not idempotent."""
        self._settings = settings
        self._client = client
        self._accumulator = accumulator
        self._identities = identities
        self._sequences = sequences
        self._backoff = ExponentialBackoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, random)
        self._in_flight: dict[Batch, None] = {}
        self._metrics = metrics
        self._metadata_version = 0
        self._next_check_ms: int | None = None
        self._blocked_since_ms: dict[int, int] = {}
        self._now_ms = 0
        self._commands: deque[Callable[[], None]] = deque()

    # The machine

    def call(self, command: Callable[[], None]) -> None:
        """Let the thread that polls run a command before anything else. From any thread."""
        self._commands.append(command)

    def poll(self, now_ms: int) -> list[Action]:
        """Send what may be sent, and return what is to be done: see `Machine`."""
        self._now_ms = now_ms
        while self._commands:
            self._commands.popleft()()
        self._identities.poll(now_ms)
        self._take_metadata()
        self._expire(now_ms)
        self._send_ready(now_ms)
        return self._client.poll(now_ms)

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """Return when `poll` is due although nothing happened: see `Machine`."""
        deadlines = [self._client.next_deadline_ms(now_ms), self._next_check_ms, self._identities.next_deadline_ms()]
        deadlines += [each.created_ms + self._settings.delivery_timeout_ms for each in self._in_flight]
        return min((each for each in deadlines if each is not None), default=None)

    def connected(self, node_id: int, now_ms: int) -> None:
        """Take the news that a connection is open."""
        self._now_ms = now_ms
        self._client.connected(node_id, now_ms)

    def buffer(self, node_id: int) -> memoryview:
        """Return where the next bytes of a connection belong: see `Machine`."""
        return self._client.buffer(node_id)

    def received(self, node_id: int, count: int, now_ms: int) -> bool:
        """Take over bytes of a connection: see `Machine`."""
        self._now_ms = now_ms
        is_whole = self._client.received(node_id, count, now_ms)
        self._take_metadata()
        return is_whole

    def disconnected(self, node_id: int, error: BrokerUnavailableError, now_ms: int) -> None:
        """Take the news that a connection could not be opened, or has ended."""
        self._now_ms = now_ms
        self._client.disconnected(node_id, error, now_ms)

    @property
    def batches_in_flight(self) -> int:
        """The number of batches that are sent and not answered."""
        return len(self._in_flight)

    def abort(self, error: KafkaLakeError) -> list[Action]:
        """Fail everything that is not delivered, refuse more, and return what closes the connections."""
        for batch in self._accumulator.close(error):
            self._end(batch, error)
        return self._client.close()

    def abort_unsent(self, error: KafkaLakeError) -> None:
        """Fail the batches that were never sent, as those of a transaction that is aborted."""
        for batch in self._accumulator.remove_all(lambda batch: not batch.has_sequence):
            self._end(batch, error)

    # Sending

    def _take_metadata(self) -> None:
        metadata = self._client.metadata
        if metadata.version != self._metadata_version:
            self._metadata_version = metadata.version
            self._accumulator.update(metadata.cluster)

    def _send_ready(self, now_ms: int) -> None:
        if self._identities.error is not None:
            for batch in self._accumulator.remove_all():
                self._end(batch, self._identities.error)
        metadata = self._client.metadata
        ready = self._accumulator.ready(metadata.cluster, now_ms, lambda node_id: self._is_available(node_id, now_ms))
        self._next_check_ms = ready.next_check_ms
        if ready.topics_without_leader:
            metadata.add(ready.topics_without_leader)
            metadata.request_update()
        for leader, queues in ready.by_leader.items():
            self._note_block(leader, self._send_to(leader, queues, now_ms), now_ms)
        for leader in self._blocked_since_ms.keys() - ready.by_leader.keys():
            del self._blocked_since_ms[leader]  # what it did not take was given up

    def _send_to(self, leader: int, queues: list[PartitionQueue], now_ms: int) -> bool:
        """Send what is ready for a leader, as far as it may be sent now. Return whether anything is left."""
        client = self._client
        first, second = leader, second_connection(leader)
        shares = assign(queues, first, second, is_second_idle=not client.in_flight(second))
        for connection, other in ((first, second), (second, first)):
            self._send_on(connection, shares[connection], now_ms)
            count = excess(shares, connection, other) if client.is_full(connection) else 0
            if count > 0 and client.prepare(other, now_ms):
                shift(shares, connection, other, count)
        return any(shares.values())

    def _send_on(self, connection: int, queues: list[PartitionQueue], now_ms: int) -> None:
        while queues and self._client.prepare(connection, now_ms):
            batches = self._accumulator.take(queues, self._identities.may_send, now_ms)
            if not batches:
                return
            self._send(connection, batches, now_ms)

    def _send(self, connection: int, batches: Sequence[Batch], now_ms: int) -> None:
        by_topic: dict[str, list[PartitionProduceData]] = {}
        takes_columns = self._client.node_takes_columns(connection)
        for batch in batches:
            self._identities.sent(batch)
            self._in_flight[batch] = None
            data = PartitionProduceData(index=batch.partition, records=batch.encoded(takes_columns=takes_columns))
            by_topic.setdefault(batch.topic, []).append(data)
        self._client.metadata.add(by_topic)  # not idle
        message = ProduceRequest(
            transactional_id=self._identities.transactional_id,
            acks=self._settings.required_acks,
            timeout=self._settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in by_topic.items()],
        )
        self._client.send(
            connection,
            self._identities.produce_api,
            message,
            now_ms,
            is_answered=self._settings.required_acks != 0,
            done=lambda pending: self._answered(batches, pending, now_ms),
        )
        self._metrics.observe("records-per-request", sum(batch.records for batch in batches), now_ms)
        for batch in batches:
            self._metrics.observe("record-queue-time", now_ms - batch.created_ms, now_ms)
            self._metrics.observe("batch-size", batch.size, now_ms)

    def _note_block(self, leader: int, is_blocked: bool, now_ms: int) -> None:
        """Remember since when a broker takes no request although there are batches for it."""
        if is_blocked:
            self._blocked_since_ms.setdefault(leader, now_ms)
        else:
            self._blocked_since_ms.pop(leader, None)

    def _is_available(self, node_id: int, now_ms: int) -> bool:
        longest_ms = self._settings.partitioner_availability_timeout_ms
        return not longest_ms or now_ms - self._blocked_since_ms.get(node_id, now_ms) < longest_ms

    # Answers

    def _answered(self, batches: Sequence[Batch], pending: PendingRequest[ProduceResponse], sent_ms: int) -> None:
        self._metrics.observe("request-latency", self._now_ms - sent_ms, self._now_ms)
        if pending.error is not None:
            error = _error_of_request(pending.error)
            for batch in batches:
                self._fail_or_retry(batch, error, -1)
        elif pending.response is None:
            for batch in batches:
                self._complete(batch, -1, -1)
        else:
            self._take_response(batches, pending.response)

    def _take_response(self, batches: Sequence[Batch], response: ProduceResponse) -> None:
        results = {(topic.name, each.index): each for topic in response.responses for each in topic.partition_responses}
        changed = self._take_leaders(results, response.node_endpoints)
        for batch in batches:
            result = results.get((batch.topic, batch.partition))
            if result is None:
                error: KafkaError = NetworkExceptionError("the response has no result for the partition")
                self._fail_or_retry(batch, error, -1)
            elif result.error_code in (0, DuplicateSequenceError.code):
                self._complete(
                    batch, result.base_offset, -1 if result.log_append_time is None else result.log_append_time
                )
            else:
                is_moved = (batch.topic, batch.partition) in changed
                self._fail_or_retry(batch, _error_of_result(batch, result), result.log_start_offset, is_moved=is_moved)

    def _take_leaders(
        self, results: dict[TopicPartition, PartitionProduceResponse], endpoints: Iterable[NodeEndpoint]
    ) -> set[TopicPartition]:
        """Take over the leaders that errors name (KIP-951). Return the partitions that have moved."""
        leaders = {
            partition: (result.current_leader.leader_id, result.current_leader.leader_epoch)
            for partition, result in results.items()
            if result.error_code and result.current_leader is not None and result.current_leader.leader_id >= 0
        }
        changed = self._client.metadata.take_leaders(leaders, endpoints) if leaders else set()
        self._take_metadata()
        return changed

    def _complete(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        if self._sequences is not None and not batch.is_done:
            self._sequences.acknowledged(batch, base_offset)
        self._leave(batch)
        if not batch.is_done:
            self._accumulator.release(batch)
            self._metrics.count("record-send", batch.records, self._now_ms)
            self._metrics.count("outgoing-byte", batch.size, self._now_ms)
            batch.complete(base_offset, log_append_time_ms)

    def _fail_or_retry(self, batch: Batch, error: KafkaError, log_start_offset: int, *, is_moved: bool = False) -> None:
        self._leave(batch)
        if batch.is_done:
            return
        if isinstance(error, _STALE_METADATA) and not is_moved:
            self._client.metadata.request_update()
        if isinstance(error, MessageTooLargeError) and batch.records > 1:
            self._split(batch)
        elif self._can_retry(batch, error, log_start_offset):
            pause_ms = 0 if is_moved else self._backoff.delay_ms(batch.attempts)
            batch.count_attempt(error, self._now_ms + pause_ms)
            self._metrics.count("record-retry", batch.records, self._now_ms)
            self._accumulator.put_back(batch)
        else:
            if self._sequences is not None:
                self._sequences.failed(batch, can_renumber=batch.attempts < self._settings.retries)
            self._end(batch, error)

    def _can_retry(self, batch: Batch, error: KafkaError, log_start_offset: int) -> bool:
        if self._accumulator.is_expired(batch, self._now_ms) or batch.attempts >= self._settings.retries:
            return False
        if self._sequences is not None:
            return self._sequences.can_retry(batch, error, log_start_offset)
        return error.retriable

    def _split(self, batch: Batch) -> None:
        parts = self._accumulator.split(batch)
        if self._sequences is not None:
            self._sequences.replaced(batch, parts)
        batch.replace_by(parts)
        for part in reversed(parts):
            self._accumulator.put_back(part)
        self._accumulator.release(batch)

    def _expire(self, now_ms: int) -> None:
        queued = self._accumulator.expired(now_ms)
        in_flight = [batch for batch in self._in_flight if self._accumulator.is_expired(batch, now_ms)]
        for batch in [*queued, *in_flight]:
            if self._sequences is not None and batch.has_sequence:
                self._sequences.expired(batch)
            self._leave(batch)
            why = f"; the last failure: {batch.last_error}" if batch.last_error is not None else ""
            error = ClientTimeoutError(
                f"{batch.records} records of {batch.topic}-{batch.partition} were not delivered in "
                f"{self._settings.delivery_timeout_ms} ms{why}"
            )
            self._end(batch, error)

    def _leave(self, batch: Batch) -> None:
        """Take a batch out of what is in flight."""
        if batch in self._in_flight:
            del self._in_flight[batch]
            self._accumulator.end_flight(batch)

    def _end(self, batch: Batch, error: KafkaLakeError) -> None:
        self._in_flight.pop(batch, None)
        self._identities.failed(batch, error)
        if not batch.is_done:
            self._accumulator.release(batch)
            self._metrics.count("record-error", batch.records, self._now_ms)
            batch.fail(error)


def _error_of_request(error: KafkaLakeError) -> KafkaError:
    """Return the error of a batch whose request failed: one that may pass, unless the broker lacks the API."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, ResponseTimedOutError):
        return RequestTimedOutError(str(error))
    return NetworkExceptionError(str(error))


def _error_of_result(batch: Batch, result: PartitionProduceResponse) -> KafkaError:
    text = result.error_message or error_name(result.error_code).lower()
    error = error_for_code(result.error_code, f"partition {batch.topic}-{batch.partition}: {text}")
    errors = tuple((each.batch_index, each.batch_index_error_message) for each in result.record_errors)
    return type(error)(str(error), errors) if errors else error
