"""The group coordinator on `__consumer_offsets` in a running broker, from the broker's start to its stop.

The topic is created when the first client looks for a group's coordinator, as in Kafka. This broker leads all its partitions.
At start each journal partition is loaded: the rows of Delta's `group_offsets`, then the journal. Offset records below Delta's
position are skipped. Group records are not, because only the journal has them.

The journal is trimmed up to Delta's position. Groups whose newest record would be lost are written again first.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import JournalRecord, Producer, journal_partition
from kafkalake.broker.coordination.journal_topic import JournalTopic
from kafkalake.broker.coordination.unpublished import Unpublished
from kafkalake.broker.groups.config import GroupConfig
from kafkalake.broker.groups.consumer_coordinator import ConsumerGroups
from kafkalake.broker.groups.consumer_topics import TopicOfGroup, Topics
from kafkalake.broker.groups.coordinator import GroupCoordinator
from kafkalake.broker.groups.group_settings import GroupSettings
from kafkalake.broker.groups.journal_format import encode, is_offset
from kafkalake.broker.groups.offset_requests import RECORDS_PER_BATCH, OffsetRequests
from kafkalake.broker.groups.records import NO_TIMESTAMP, CommittedOffset, GroupTombstone
from kafkalake.broker.groups.table import ChangedOffset, Changes
from kafkalake.config.broker import BrokerConfig
from kafkalake.errors import CoordinatorNotAvailableError
from kafkalake.internal_topics import GROUP_JOURNAL
from kafkalake.metadata.paths import GROUP_SETTINGS_FILE
from kafkalake.metadata.tables.schemas import GroupOffsetRow
from kafkalake.record.build import ReadBatch
from kafkalake.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kafkalake.broker.broker import Broker

QUIET_WITHIN_MS = 5_000
QUIET_POLL_S = 0.01
"""Before a trim no group records may be on their way to the journal: longest wait for that (ms), polling interval (s)."""


class GroupService:
    """The group coordinator of one broker. Runs on the event loop's thread. Loading at start blocks it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        config = broker.config
        self.topic = JournalTopic(
            broker, GROUP_JOURNAL, config.offsets_topic_num_partitions, config.offsets_topic_segment_bytes
        )
        self.journal = self.topic.journal
        self.damaged: set[int] = set()
        """Journal partitions that lacked records when they were loaded."""
        self.settings = GroupSettings(
            broker.settings.path_beside(GROUP_SETTINGS_FILE),
            broker.world.files,
            lambda: broker.settings.current.broker,
        )
        self.coordinator = GroupCoordinator(
            group_config(config),
            broker.clock,
            broker.timers,
            self.journal,
            lambda: str(broker.world.ids()),
            self._topics_now,
            self.settings,
        )
        self.consumers = ConsumerGroups(self.coordinator)
        self.offsets = OffsetRequests(self.coordinator, lambda name: self._topics_now().get(name))
        self._topics: Topics | None = None
        self._unpublished = Unpublished(self.coordinator.table, Changes([], {}))

    @property
    def is_ready(self) -> bool:
        """Whether the journal's topic exists."""
        return self.topic.is_ready

    def journal_key(self, group_id: str) -> TopicPartition:
        """Return the partition of `__consumer_offsets` for the group's offsets, whether or not the group exists."""
        return GROUP_JOURNAL, journal_partition(group_id, self.journal.partitions)

    async def make_ready(self) -> None:
        """Create the journal's topic if it does not exist. Raise `CoordinatorNotAvailableError` if that fails."""
        await self.topic.make_ready(lambda: self._serve((), {}))

    def start(self, published: Iterable[GroupOffsetRow], positions: Mapping[int, int]) -> None:
        """Load the journal at the broker's start. `published` and `positions` come from Delta.

        Damage in the journal is logged, and the groups are served with what could be read. Raise `KafkaStorageError` on I/O errors.
        """
        if self.topic.attach():
            self._serve(published, positions)
            self.offsets.delete_stale()
        self.offsets.start_expiry()

    def stop(self) -> None:
        """Stop serving. Pending requests fail with NOT_COORDINATOR. Unpublished changes are kept for the last `take_changes`."""
        if self._unpublished.is_stopped:
            return
        self.coordinator.flush()
        self._broker.append_queue.flush()
        self.topic.closed = True
        self._unpublished.stop()
        for partition in self.coordinator.table.partitions:
            self.coordinator.unload(partition)

    def topic_changed(self, name: str) -> None:
        """Handle a topic that was created, deleted or extended by partitions."""
        self._topics = None
        self.offsets.delete_stale([name])
        self.consumers.topics_changed([name])

    def _topics_now(self) -> Topics:
        """Return the topics as consumer groups see them, cached until they change."""
        if self._topics is None:
            self._topics = {
                topic.name: TopicOfGroup(topic.topic_id, len(topic.partitions), topic.created_at_ms)
                for topic in self._broker.topics
            }
        return self._topics

    # For Delta

    def take_changes(self) -> Changes:
        """Return the changes that `group_offsets` lacks. After `stop`, return the last of them once."""
        return self._unpublished.take()

    def put_back(self, changes: Changes) -> None:
        """Restore `changes` after a failed publish."""
        self._unpublished.put_back(changes)

    async def trim(self, resume_at: Mapping[int, int]) -> None:
        """Trim the journal up to `resume_at`, where Delta has the offsets and it is worth it. Failures are retried."""
        await self.topic.trim(resume_at, self._write_again)

    async def _write_again(self, index: int, position: int) -> None:
        """Write group records before `position` again. Raise `CoordinatorNotAvailableError`, ...

        None is written while a newer one may be on its way to the journal: the older one must not land behind it.
        """
        table = self.coordinator.table
        while True:
            await self._nothing_on_its_way(index)
            records = table.records_before(index, position)[:RECORDS_PER_BATCH]
            if not records:
                return
            written: asyncio.Future[ErrorClass | None] = asyncio.get_running_loop().create_future()
            self.coordinator.write(index, records, written.set_result)
            self._broker.append_queue.flush()
            error = await written
            if error is not None:
                raise error()

    async def _nothing_on_its_way(self, index: int) -> None:
        deadline_ms = self._broker.clock.monotonic_ms() + QUIET_WITHIN_MS
        while True:
            while self._broker.append_queue.flush():
                pass  # responses may cause new batches
            if not self.coordinator.unsettled[index]:
                return
            if self._broker.clock.monotonic_ms() >= deadline_ms:
                raise CoordinatorNotAvailableError("groups change all the time")
            await asyncio.sleep(QUIET_POLL_S)

    # Loading

    def _serve(self, published: Iterable[GroupOffsetRow], positions: Mapping[int, int]) -> None:
        rows: dict[int, list[ChangedOffset]] = defaultdict(list)
        for row in published:
            rows[row.journal_partition].append(_changed(row))
        for index in range(self.journal.partitions):
            if self.journal.is_offline(index):
                continue  # its groups are not served: Delta may lack their newest offsets
            self._load(index, positions.get(index, 0), rows[index])

    def _load(self, index: int, position: int, published: list[ChangedOffset]) -> None:
        coordinator = self.coordinator
        log = self.journal.partition(index).log
        self.topic.fill(index, position, encode(GroupTombstone("")))
        begin = max(position, log.log_start_offset)
        coordinator.begin_load(index, begin, published)
        # Lost records cost group state (members rejoin) and offsets that Delta does not have.
        if self.topic.replay(index, partial(self._follow, index, begin)):
            self.damaged.add(index)
        coordinator.finish_load(index, log.high_watermark)

    def _follow(self, index: int, begin: int, batch: ReadBatch) -> None:
        """Apply one journal batch. Before `begin`, apply only records that Delta does not have."""
        coordinator = self.coordinator
        if batch.committed is not None:
            coordinator.end_transaction(index, batch.producer_id, committed=batch.committed, position=batch.base_offset)
        elif batch.base_offset >= begin:
            producer = None if batch.producer_id < 0 else Producer(batch.producer_id, batch.producer_epoch)
            coordinator.load(index, batch.base_offset, _records(batch), producer)
        else:
            self._load_published(index, begin, batch)

    def _load_published(self, index: int, begin: int, batch: ReadBatch) -> None:
        """Load a batch that begins before Delta's position. Offsets below it are skipped."""
        producer = None if batch.producer_id < 0 else Producer(batch.producer_id, batch.producer_epoch)
        for number, record in enumerate(_records(batch)):
            position = batch.base_offset + number
            if position >= begin or not is_offset(record.key):
                self.coordinator.load(index, position, [record], producer)


def group_config(config: BrokerConfig) -> GroupConfig:
    """Return the coordinator's settings from the broker's."""
    return GroupConfig(
        group_min_session_timeout_ms=config.group_min_session_timeout_ms,
        group_max_session_timeout_ms=config.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        group_max_size=config.group_max_size,
        group_consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        group_consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        group_consumer_migration_policy=config.group_consumer_migration_policy.lower(),
        group_consumer_max_size=config.group_consumer_max_size,
        group_consumer_assignors=tuple(
            dict.fromkeys(name.strip() for name in config.group_consumer_assignors.split(","))
        ),
        group_member_metadata_max_bytes=config.group_member_metadata_max_bytes,
        group_metadata_max_bytes=config.group_metadata_max_bytes,
        group_coordinator_append_linger_ms=config.group_coordinator_append_linger_ms,
        group_coordinator_metadata_max_bytes=config.group_coordinator_metadata_max_bytes,
        group_coordinator_groups_max=config.group_coordinator_groups_max,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
    )


def _records(batch: ReadBatch) -> list[JournalRecord]:
    return [JournalRecord(key or b"", value) for key, value in batch.pairs]


def _changed(row: GroupOffsetRow) -> ChangedOffset:
    assert row.offset is not None
    committed = CommittedOffset(
        row.offset,
        row.leader_epoch,
        row.metadata,
        row.committed_at_ms,
        NO_TIMESTAMP if row.expires_at_ms is None else row.expires_at_ms,
        None if row.topic_id is None else uuid.UUID(row.topic_id),
    )
    return ChangedOffset(row.group, row.topic, row.partition, committed, row.journal_partition, row.journal_offset)


def published_row(changed: ChangedOffset, now_ms: int) -> GroupOffsetRow:
    """Return a change as a row of `group_offsets`. A deleted offset is dated `now_ms`."""
    committed = changed.committed
    return GroupOffsetRow(
        group=changed.group_id,
        topic=changed.topic,
        topic_id=None if committed is None or committed.topic_id is None else str(committed.topic_id),
        partition=changed.partition,
        offset=None if committed is None else committed.offset,
        leader_epoch=-1 if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        committed_at_ms=now_ms if committed is None else committed.committed_at_ms,
        expires_at_ms=None if committed is None or committed.expires_at_ms < 0 else committed.expires_at_ms,
        journal_partition=changed.journal_partition,
        journal_offset=changed.journal_offset,
    )
