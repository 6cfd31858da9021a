"""Asks leaders for offsets: by timestamp (ListOffsets), and where an epoch ends (OffsetForLeaderEpoch). Pure.

Both for the positions of assigned partitions, and by timestamp for the application. A partition without a known leader waits for
newer metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalake.client.consuming.cluster_view import ClusterView
from kafkalake.client.consuming.fetcher import STALE
from kafkalake.client.consuming.operation import Operation
from kafkalake.client.consuming.settings import ConsumerSettings
from kafkalake.client.consuming.subscriptions import PartitionState, Step, Subscriptions
from kafkalake.client.errors import LogTruncationError
from kafkalake.client.network.client import NetworkClient
from kafkalake.client.network.pending_request import PendingRequest
from kafkalake.client.records import NO_EPOCH
from kafkalake.client.requests import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH, A, error_name
from kafkalake.errors import KafkaError, KafkaLakeError, LeaderNotAvailableError, RequestTimedOutError, error_for_code
from kafkalake.topic_partition import TopicPartition, partition_name
from kafkalake.wire.messages.records import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

logger = logging.getLogger(__name__)

_CONSUMER = -1
"""The replica id of a client."""


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset, timestamp (ms) and leader epoch (-1 if unknown)."""

    offset: int
    timestamp: int
    leader_epoch: int


Found = dict[TopicPartition, OffsetAndTimestamp | None]


@dataclass(slots=True)
class _Question:
    """Offsets that the application asked for: what is still open, what was found."""

    operation: Operation[Found]
    timestamps: dict[TopicPartition, int]
    found: Found = field(default_factory=dict)
    asking: set[TopicPartition] = field(default_factory=set)
    retry_at_ms: int = 0
    error: KafkaLakeError | None = None


class OffsetLookups:
    """See the module."""

    def __init__(
        self,
        settings: ConsumerSettings,
        network: NetworkClient,
        subscriptions: Subscriptions,
        leaders: ClusterView,
        report: Callable[[KafkaLakeError], None],
    ) -> None:
        """report: called with errors that the application has to hear of in `poll`."""
        self._settings = settings
        self._network = network
        self._subscriptions = subscriptions
        self._leaders = leaders
        self._report = report
        self._asking: dict[TopicPartition, int] = {}
        self._questions: list[_Question] = []
        self._now_ms = 0

    @property
    def topics_needed(self) -> frozenset[str]:
        """Topics of partitions that the application asks about."""
        return frozenset(topic for question in self._questions for topic, _ in question.timestamps)

    @property
    def is_idle(self) -> bool:
        """Return whether no partition waits for its position, and the application for no answer."""
        return not self._questions and not self._asking

    def ask(self, timestamps: Mapping[TopicPartition, int], deadline_ms: int) -> Operation[Found]:
        """Find the offsets of timestamps (ms, or `EARLIEST`, `LATEST`), None where all records are older."""
        operation: Operation[Found] = Operation(deadline_ms)
        if timestamps:
            self._questions.append(_Question(operation, dict(timestamps)))
        else:
            operation.complete({})
        return operation

    def turn(self, now_ms: int) -> None:
        """Send what is to be asked now."""
        self._now_ms = now_ms
        self._reset_positions(now_ms)
        self._validate_positions(now_ms)
        for question in list(self._questions):
            if now_ms >= question.operation.deadline_ms:
                self._questions.remove(question)
                question.operation.fail(question.error or RequestTimedOutError("offsets were not found in time"))
            elif question.retry_at_ms <= now_ms:
                self._send_question(question, now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when `turn` is due."""
        found = [question.operation.deadline_ms for question in self._questions]
        found += [each.retry_at_ms for each in self._questions if len(each.timestamps) > len(each.asking)]
        for partition, state in self._subscriptions.partitions.items():
            is_asked_for = state.step in (Step.RESET, Step.VALIDATION) and not state.revoking
            if is_asked_for and partition not in self._asking:
                found.append(state.retry_at_ms)
        return min(found, default=None)

    # Positions

    def _reset_positions(self, now_ms: int) -> None:
        waiting = self._to_ask(Step.RESET, now_ms)
        for node_id, partitions in self._by_leader(waiting, now_ms).items():
            versions = {each: waiting[each].version for each in partitions}

            def done(
                request: PendingRequest[ListOffsetsResponse], versions: dict[TopicPartition, int] = versions
            ) -> None:
                self._positions_found(versions, request)

            self._ask_leader(node_id, {each: waiting[each].reset_timestamp for each in partitions}, now_ms, done)
            self._asking |= versions

    def _positions_found(
        self, versions: dict[TopicPartition, int], request: PendingRequest[ListOffsetsResponse]
    ) -> None:
        response = self._response(versions, request)
        if response is None:
            return
        self._repeat_lacking(
            versions, {(topic.name, each.partition_index) for topic in response.topics for each in topic.partitions}
        )
        for topic in response.topics:
            for each in topic.partitions:
                partition = topic.name, each.partition_index
                if partition not in versions:
                    continue
                if each.error_code:
                    self._refused(partition, each.error_code)
                else:
                    self._subscriptions.begin_at(partition, versions[partition], max(each.offset, 0))

    def _validate_positions(self, now_ms: int) -> None:
        waiting = self._to_ask(Step.VALIDATION, now_ms)
        for node_id, partitions in self._by_leader(self._of_known_epochs(waiting), now_ms).items():
            versions = {each: waiting[each].version for each in partitions}
            topics: dict[str, list[OffsetForLeaderPartition]] = {}
            for topic, number in partitions:
                leader = self._leaders.leader_of((topic, number))
                topics.setdefault(topic, []).append(
                    OffsetForLeaderPartition(
                        partition=number,
                        current_leader_epoch=-1 if leader is None else leader[1],
                        leader_epoch=waiting[topic, number].epoch,
                    )
                )

            def done(
                request: PendingRequest[OffsetForLeaderEpochResponse],
                versions: dict[TopicPartition, int] = versions,
            ) -> None:
                self._ends_found(versions, request)

            message = OffsetForLeaderEpochRequest(
                replica_id=_CONSUMER,
                topics=[OffsetForLeaderTopic(topic=topic, partitions=each) for topic, each in topics.items()],
            )
            self._network.send(node_id, OFFSET_FOR_LEADER_EPOCH, message, now_ms, done=done)
            self._asking |= versions

    def _of_known_epochs(
        self, waiting: Mapping[TopicPartition, PartitionState]
    ) -> dict[TopicPartition, PartitionState]:
        """Return the partitions whose leader is no older than their position: another one has not read as far as the position."""
        found = {}
        for partition, state in waiting.items():
            leader = self._leaders.leader_of(partition)
            if leader is not None and NO_EPOCH < leader[1] < state.epoch:
                self._repeat({partition: None})
            else:
                found[partition] = state
        return found

    def _ends_found(
        self, versions: dict[TopicPartition, int], request: PendingRequest[OffsetForLeaderEpochResponse]
    ) -> None:
        response = self._response(versions, request)
        if response is None:
            return
        self._repeat_lacking(
            versions, {(topic.topic, each.partition) for topic in response.topics for each in topic.partitions}
        )
        for topic in response.topics:
            for each in topic.partitions:
                partition = topic.topic, each.partition
                if partition not in versions:
                    continue
                if each.error_code:
                    self._refused(partition, each.error_code)
                else:
                    end = each.leader_epoch, each.end_offset
                    truncation = self._subscriptions.validated(partition, versions[partition], end)
                    if truncation is not None:
                        self._truncated(truncation)

    def _truncated(self, truncation: LogTruncationError) -> None:
        if self._subscriptions.reset is not None:
            logger.warning("%s: going on without what was truncated", truncation)
            return
        self._report(truncation)
        self._subscriptions.delay([truncation.partition], self._now_ms + self._settings.retry_backoff_max_ms)

    def _to_ask(self, step: Step, now_ms: int) -> dict[TopicPartition, PartitionState]:
        waiting = self._subscriptions.waiting(step, now_ms)
        return {each: state for each, state in waiting.items() if self._asking.get(each) != state.version}

    def _response(self, versions: Mapping[TopicPartition, int], request: PendingRequest[A]) -> A | None:
        """Return the response about positions of these versions, None if there is none: then they are asked for again, later."""
        for partition, version in versions.items():
            if self._asking.get(partition) == version:
                del self._asking[partition]
        if request.error is not None or request.response is None:
            self._repeat(versions)
            return None
        return request.response

    def _repeat_lacking(self, versions: Mapping[TopicPartition, int], answered: Container[TopicPartition]) -> None:
        """Ask again, later, for the partitions that a response lacks."""
        lacking = {partition: version for partition, version in versions.items() if partition not in answered}
        if lacking:
            self._repeat(lacking)

    def _repeat(self, partitions: Mapping[TopicPartition, object]) -> None:
        self._network.metadata.request_update()
        self._subscriptions.delay(partitions, self._now_ms + self._settings.retry_backoff_ms)

    def _refused(self, partition: TopicPartition, code: int) -> None:
        error = _error_of(partition, code)
        self._repeat({partition: None})
        if code not in STALE and not error.retriable:
            self._report(error)

    # Questions of the application

    def _send_question(self, question: _Question, now_ms: int) -> None:
        waiting = [each for each in question.timestamps if each not in question.asking]
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in waiting:
            leader = self._leaders.leader_of(partition)
            if leader is None:
                text = f"partition {partition_name(partition)} has no known leader{self._leaders.reason(partition)}"
                question.error = LeaderNotAvailableError(text)
                question.retry_at_ms = now_ms + self._settings.retry_backoff_ms
                self._network.metadata.request_update()
            else:
                by_leader.setdefault(leader[0], []).append(partition)
        for node_id, partitions in by_leader.items():

            def done(
                request: PendingRequest[ListOffsetsResponse], partitions: list[TopicPartition] = partitions
            ) -> None:
                self._question_answered(question, partitions, request)

            question.asking.update(partitions)
            self._ask_leader(node_id, {each: question.timestamps[each] for each in partitions}, now_ms, done)

    def _question_answered(
        self, question: _Question, partitions: list[TopicPartition], request: PendingRequest[ListOffsetsResponse]
    ) -> None:
        question.asking.difference_update(partitions)
        question.retry_at_ms = self._now_ms + self._settings.retry_backoff_ms
        if request.error is not None or request.response is None:
            question.error = request.error
            self._network.metadata.request_update()
            return
        for topic in request.response.topics:
            for each in topic.partitions:
                partition = topic.name, each.partition_index
                if each.error_code:
                    self._network.metadata.request_update()
                    question.error = error = _error_of(partition, each.error_code)
                    if not error.retriable and question in self._questions:
                        self._questions.remove(question)
                        question.operation.fail(error)
                elif question.timestamps.pop(partition, None) is not None:
                    found = OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
                    question.found[partition] = found if each.offset >= 0 else None
        if not question.timestamps and question in self._questions:
            self._questions.remove(question)
            question.operation.complete(question.found)

    # Requests

    def _by_leader(self, waiting: Mapping[TopicPartition, object], now_ms: int) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        for partition in waiting:
            leader = self._leaders.leader_of(partition)
            if leader is None:
                self._repeat({partition: None})
            else:
                found.setdefault(leader[0], []).append(partition)
        return found

    def _ask_leader(
        self,
        node_id: int,
        timestamps: Mapping[TopicPartition, int],
        now_ms: int,
        done: Callable[[PendingRequest[ListOffsetsResponse]], None],
    ) -> None:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for (topic, number), timestamp in timestamps.items():
            leader = self._leaders.leader_of((topic, number))
            topics.setdefault(topic, []).append(
                ListOffsetsPartition(
                    partition_index=number,
                    timestamp=timestamp,
                    current_leader_epoch=-1 if leader is None else leader[1],
                )
            )
        message = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=int(self._settings.is_read_committed),
            topics=[ListOffsetsTopic(name=topic, partitions=each) for topic, each in topics.items()],
        )
        self._network.send(node_id, LIST_OFFSETS, message, now_ms, done=done)


def _error_of(partition: TopicPartition, code: int) -> KafkaError:
    return error_for_code(code, f"partition {partition_name(partition)}: {error_name(code)}")
