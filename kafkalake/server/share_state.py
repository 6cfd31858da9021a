"""The state of share groups, which their coordinators keep (KIP-932). Here there are none, so each request for it is refused.

The answer is that of a Kafka whose topic of such states was never created: no broker coordinates it. Only brokers ask.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Protocol
from uuid import UUID

from kafkalake.errors import ClusterAuthorizationError, KafkaError, NotCoordinatorError
from kafkalake.wire.messages.share_groups import PartitionResult, TopicResult


class _Partition(Protocol):
    partition: int


class _Topic(Protocol):
    topic_id: UUID | None

    @property
    def partitions(self) -> Sequence[_Partition]: ...


class StateRequest(Protocol):
    """A request for the state of a group in partitions."""

    group_id: str

    @property
    def topics(self) -> Sequence[_Topic]: ...


class Refusal:
    """The refusal of a request. `verb`: the action that was requested."""

    def __init__(self, body: StateRequest, verb: str, *, is_authorized: bool) -> None:
        unable = f"Unable to {verb}: {NotCoordinatorError()}"
        self.error: KafkaError = NotCoordinatorError(unable) if is_authorized else ClusterAuthorizationError()
        self._body = body

    def list_topics(self) -> Iterator[tuple[UUID | None, Iterator[int]]]:
        """Yield each topic and its partitions; none for a request without the name of a group."""
        for topic in self._body.topics if self._body.group_id else ():
            yield topic.topic_id, (each.partition for each in topic.partitions)

    def collect_results(self) -> Generator[None, None, list[TopicResult]]:
        """Return the results that have errors only."""
        code, message = self.error.code, str(self.error)
        found: list[TopicResult] = []
        for topic_id, partitions in self.list_topics():
            found.append(TopicResult(topic_id=topic_id, partitions=(results := [])))
            for each in partitions:
                results.append(PartitionResult(partition=each, error_code=code, error_message=message))
                yield
            yield
        return found
