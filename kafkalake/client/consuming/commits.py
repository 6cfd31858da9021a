"""Committed offsets of the consumer's group: commits, automatic ones, and what was committed. Pure.

A committed offset is that of the next record to read. A synchronous commit is repeated after retriable errors until its time is
over, an asynchronous one is not: a later one may have overtaken it. Nor is one whose caller has left (a `wakeup`, a task that was
cancelled), which is not sent any more, either. One of very many partitions goes in several requests, all of them before those of a
later one; it ends with the last of them, or with the first error: others may be committed then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass, field

from kafkalake.client.consuming.coordinator import Coordinator
from kafkalake.client.consuming.membership import COORDINATOR_MOVED, Identity
from kafkalake.client.consuming.operation import Operation
from kafkalake.client.consuming.settings import ConsumerSettings
from kafkalake.client.errors import CommitFailedError
from kafkalake.client.network.client import NetworkClient
from kafkalake.client.network.pending_request import PendingRequest
from kafkalake.client.records import OffsetAndMetadata
from kafkalake.client.request_parts import COMMITTED_AT_ONCE, cut
from kafkalake.client.requests import OFFSET_COMMIT, OFFSET_FETCH, error_name
from kafkalake.errors import (
    FencedMemberEpochError,
    IllegalGenerationError,
    KafkaLakeError,
    NetworkExceptionError,
    RebalanceInProgressError,
    RequestTimedOutError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnstableOffsetCommitError,
    as_value,
    error_for_code,
)
from kafkalake.topic_partition import TopicPartition, by_topic, partition_name
from kafkalake.wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TopicIndexes,
)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
GivenOffsets = Mapping[TopicPartition, OffsetAndMetadata | int]
"""Offsets as an application gives them, with or without metadata."""
Committed = dict[TopicPartition, OffsetAndMetadata | None]

_NO_OFFSET, _NO_EPOCH = -1, -1
_WAITING_MAX = 1_000
"""The most commits that wait for a coordinator."""
_MEMBERSHIP_ENDED = frozenset(
    error.code for error in (UnknownMemberIdError, IllegalGenerationError, FencedMemberEpochError)
)
_REPEATED = frozenset({StaleMemberEpochError.code, UnstableOffsetCommitError.code})


@dataclass(slots=True)
class _Asked:
    """A request of an operation that waits for the coordinator or its response: a commit (`offsets`) or a question (`partitions`).

    found: of a question, shared by all requests of its operation. error: the last one.
    """

    operation: Operation[None] | Operation[Committed]
    offsets: Offsets = field(default_factory=dict)
    partitions: Collection[TopicPartition] = ()
    found: Committed | None = None
    retry_at_ms: int = 0
    is_asking: bool = False
    error: KafkaLakeError | None = None


class Commits:
    """See the module."""

    def __init__(
        self,
        settings: ConsumerSettings,
        network: NetworkClient,
        coordinator: Coordinator,
        identity: Callable[[], Identity],
        refused: Callable[[int], None],
    ) -> None:
        """identity: returns the member that commits. refused: called with the error code of a commit."""
        self._settings = settings
        self._network = network
        self._coordinator = coordinator
        self._identity = identity
        self._report_refused = refused
        self._waiting: list[_Asked] = []
        self._now_ms = 0

    @property
    def is_idle(self) -> bool:
        """Return whether nothing waits for the coordinator."""
        return not self._waiting

    def commit(self, offsets: Offsets, deadline_ms: int, *, is_repeated: bool) -> Operation[None]:
        """Commit offsets. deadline_ms, is_repeated: see `Operation`."""
        operation: Operation[None] = Operation(deadline_ms, is_repeated=is_repeated)
        if len(self._waiting) >= _WAITING_MAX:
            operation.fail(RequestTimedOutError(f"{_WAITING_MAX} commits wait for the group's coordinator"))
        elif offsets:
            for part in cut(sorted(offsets.items()), COMMITTED_AT_ONCE):
                self._waiting.append(_Asked(operation, offsets=dict(part)))
        else:
            operation.complete(None)
        return operation

    def fetch(self, partitions: Collection[TopicPartition], deadline_ms: int) -> Operation[Committed]:
        """Find out what was committed, None for partitions without a commit."""
        operation: Operation[Committed] = Operation(deadline_ms)
        if partitions:
            found: Committed = dict.fromkeys(partitions)
            self._waiting += [_Asked(operation, partitions=part, found=found) for part in cut(sorted(found))]
        else:
            operation.complete({})
        return operation

    def turn(self, now_ms: int) -> None:
        """Send what waits, to a known coordinator."""
        self._now_ms = now_ms
        for asked in list(self._waiting):
            operation = asked.operation
            if operation.is_done:
                continue  # another of its requests has failed
            if now_ms >= operation.deadline_ms:  # an answer that comes later counts for nothing
                self._end(asked, asked.error or RequestTimedOutError("the group's coordinator did not answer in time"))
            elif asked.is_asking:
                continue
            elif operation.is_abandoned:
                self._end(
                    asked, asked.error or RequestTimedOutError("nobody waits for the group's coordinator any more")
                )
            elif (error := self._coordinator.error) is not None:
                self._end(asked, error)
            elif self._coordinator.node_id is not None and asked.retry_at_ms <= now_ms:
                self._send(asked, self._coordinator.node_id, now_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when `turn` is due."""
        found = [asked.operation.deadline_ms for asked in self._waiting]
        if self._coordinator.node_id is not None:
            found += [asked.retry_at_ms for asked in self._waiting if not asked.is_asking]
        return min(found, default=None)

    def close(self) -> None:
        """Fail what waits."""
        while self._waiting:
            self._end(self._waiting[0], RequestTimedOutError("the consumer is closed"))

    # Requests

    def _send(self, asked: _Asked, node_id: int, now_ms: int) -> None:
        asked.is_asking = True
        if asked.offsets:

            def committed(request: PendingRequest[OffsetCommitResponse]) -> None:
                self._committed(asked, request)

            self._network.send(node_id, OFFSET_COMMIT, self._commit_message(asked.offsets), now_ms, done=committed)
        else:

            def fetched(request: PendingRequest[OffsetFetchResponse]) -> None:
                self._fetched(asked, request)

            message = OffsetFetchRequest(
                group_id=self._settings.group_id or "",
                topics=[
                    TopicIndexes(name=topic, partition_indexes=numbers)
                    for topic, numbers in by_topic(asked.partitions).items()
                ],
                require_stable=self._settings.is_read_committed,
            )
            self._network.send(node_id, OFFSET_FETCH, message, now_ms, done=fetched)

    def _commit_message(self, offsets: Offsets) -> OffsetCommitRequest:
        identity = self._identity()
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, number), committed in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=committed.offset,
                    committed_leader_epoch=_NO_EPOCH if committed.leader_epoch is None else committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        return OffsetCommitRequest(
            group_id=self._settings.group_id or "",
            generation_id_or_member_epoch=identity.generation,
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=each) for topic, each in topics.items()],
        )

    # Responses

    def _committed(self, asked: _Asked, request: PendingRequest[OffsetCommitResponse]) -> None:
        if asked.operation.is_done:
            return
        if request.error is not None or request.response is None:
            self._lost(asked, request.error)
            return
        codes = {
            (topic.name, each.partition_index): each.error_code
            for topic in request.response.topics
            for each in topic.partitions
        }
        refused = [(partition, code) for partition, code in codes.items() if code]
        if not refused:
            self._end_answered(asked, asked.offsets, codes)
            return
        (topic, number), code = refused[0]
        self._report_refused(code)
        if code in _MEMBERSHIP_ENDED:
            text = f"the group '{self._settings.group_id}' has rebalanced, and others may have the partitions"
            self._end(asked, CommitFailedError(text))
        else:
            self._refused(asked, code, f"the offset of partition {topic}-{number}")

    def _fetched(self, asked: _Asked, request: PendingRequest[OffsetFetchResponse]) -> None:
        if asked.operation.is_done:
            return
        response = request.response
        if request.error is not None or response is None:
            self._lost(asked, request.error)
            return
        places = [((topic.name, each.partition_index), each) for topic in response.topics for each in topic.partitions]
        code = response.error_code or next((each.error_code for _, each in places if each.error_code), 0)
        if code:
            self._refused(asked, code, f"the offsets of group '{self._settings.group_id}'")
            return
        found = asked.found
        assert found is not None
        for place, each in places:
            if place in found and each.committed_offset > _NO_OFFSET:
                epoch = None if each.committed_leader_epoch <= _NO_EPOCH else each.committed_leader_epoch
                found[place] = OffsetAndMetadata(each.committed_offset, epoch, each.metadata or "")
        self._end_answered(asked, asked.partitions, dict(places))

    def _end_answered(
        self,
        asked: _Asked,
        wanted: Collection[TopicPartition],
        answered: Container[TopicPartition],
    ) -> None:
        """End what a response without an error has answered. If it lacks a partition, nothing is known of that."""
        lacking = [each for each in wanted if each not in answered]
        if lacking:
            text = f"the response has no result for partition {partition_name(lacking[0])}"
            self._repeat(asked, NetworkExceptionError(text))
        else:
            self._end(asked, None)

    def _lost(self, asked: _Asked, error: KafkaLakeError | None) -> None:
        self._coordinator.lose(self._now_ms)
        self._repeat(asked, error or RequestTimedOutError())

    def _refused(self, asked: _Asked, code: int, subject: str) -> None:
        error = error_for_code(code, f"{subject}: {error_name(code)}")
        if code in COORDINATOR_MOVED or code == RequestTimedOutError.code:
            self._coordinator.lose(self._now_ms)
        if (error.retriable or code in _REPEATED) and code != RebalanceInProgressError.code:
            self._repeat(asked, error)
        else:
            self._end(asked, error)

    def _repeat(self, asked: _Asked, error: KafkaLakeError) -> None:
        if asked.operation.may_repeat(self._now_ms):
            asked.is_asking, asked.error = False, as_value(error)
            asked.retry_at_ms = self._now_ms + self._settings.retry_backoff_ms
        else:
            self._end(asked, error)

    def _end(self, asked: _Asked, error: KafkaLakeError | None) -> None:
        """End a request, and its operation with the last one or with an error."""
        operation = asked.operation
        if error is not None:
            self._waiting = [each for each in self._waiting if each.operation is not operation]
            operation.fail(error)
        else:
            self._waiting.remove(asked)
            if all(each.operation is not operation for each in self._waiting):
                operation.complete(asked.found)  # type: ignore[arg-type]  # a commit has none
