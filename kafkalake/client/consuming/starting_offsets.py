"""Where assigned partitions begin: at the group's committed offset, else where `auto.offset.reset` says. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from kafkalake.client.consuming.commits import Commits, Committed
from kafkalake.client.consuming.operation import Operation
from kafkalake.client.consuming.settings import ConsumerSettings
from kafkalake.client.consuming.subscriptions import Step, Subscriptions
from kafkalake.client.errors import NoOffsetForPartitionError
from kafkalake.client.records import NO_EPOCH, OffsetAndMetadata
from kafkalake.errors import KafkaLakeError
from kafkalake.topic_partition import TopicPartition


class StartingOffsets:
    """See the module."""

    def __init__(
        self,
        settings: ConsumerSettings,
        subscriptions: Subscriptions,
        commits: Commits | None,
        report: Callable[[KafkaLakeError], None],
    ) -> None:
        """commits: None without a group. report: called with errors that the application has to hear of in `poll`."""
        self._settings = settings
        self._subscriptions = subscriptions
        self._commits = commits
        self._report = report
        self._is_asking = False
        self._now_ms = 0

    def turn(self, now_ms: int) -> None:
        """Ask for the committed offsets of partitions without a position."""
        self._now_ms = now_ms
        waiting = self._subscriptions.waiting(Step.COMMITTED, now_ms)
        if not waiting or self._is_asking:
            return
        if self._commits is None:
            for partition in waiting:
                self._begin(partition, None)
            return
        self._is_asking = True
        versions = {partition: state.version for partition, state in waiting.items()}
        operation = self._commits.fetch(list(waiting), now_ms + self._settings.default_api_timeout_ms)
        operation.when_done(lambda: self._found(versions, operation))

    def follow_leader(self, partition: TopicPartition, topic_id: UUID | None, leader_epoch: int) -> None:
        """Take over the leader of a partition, see `Subscriptions.follow_leader`."""
        try:
            self._subscriptions.follow_leader(partition, topic_id, leader_epoch)
        except NoOffsetForPartitionError as error:
            self._none_at(partition, str(error))

    def _found(self, versions: Mapping[TopicPartition, int], operation: Operation[Committed]) -> None:
        self._is_asking = False
        if operation.error is not None:
            self._report(operation.error)
            self._subscriptions.delay(versions, self._now_ms + self._settings.retry_backoff_ms)
            return
        for partition, committed in operation.result().items():
            state = self._subscriptions.partitions.get(partition)
            if state is not None and state.version == versions[partition]:
                self._begin(partition, committed)

    def _begin(self, partition: TopicPartition, committed: OffsetAndMetadata | None) -> None:
        try:
            if committed is None:
                self._subscriptions.begin_without_offset(partition)
            else:
                epoch = NO_EPOCH if committed.leader_epoch is None else committed.leader_epoch
                self._subscriptions.seek(partition, committed.offset, epoch)
        except NoOffsetForPartitionError as error:
            self._none_at(partition, str(error))

    def _none_at(self, partition: TopicPartition, reason: str) -> None:
        self._report(NoOffsetForPartitionError(reason))
        self._subscriptions.delay([partition], self._now_ms + self._settings.retry_backoff_ms)
