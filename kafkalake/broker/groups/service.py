"""The group coordinator on `__consumer_offsets` in a running broker.

Offset records below Delta's position are skipped at a start. Group records are not, because only the journal has them: those that a
trim would lose are written again first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Protocol

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal_lifecycle import JournalHost, JournalLifecycle
from kafkalake.broker.coordination.journal_loading import Published
from kafkalake.broker.coordination.journal_writer import JournalWriter
from kafkalake.broker.coordination.waiting import wait_for_call
from kafkalake.broker.groups.config import GroupConfig
from kafkalake.broker.groups.consumer_coordinator import ConsumerGroups
from kafkalake.broker.groups.consumer_topics import TopicOfGroup, Topics
from kafkalake.broker.groups.coordinator import GroupCoordinator
from kafkalake.broker.groups.group_settings import GroupSettings
from kafkalake.broker.groups.lowest_offsets import CommittedOffsets, GroupPeers
from kafkalake.broker.groups.offset_removal import OffsetRemoval
from kafkalake.broker.groups.offset_requests import RECORDS_PER_BATCH, OffsetRequests
from kafkalake.broker.groups.published import changed_offset
from kafkalake.broker.groups.table import ChangedOffset
from kafkalake.broker.partitions.purgatory import Timers
from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.errors import CoordinatorNotAvailableError
from kafkalake.internal_topics import GROUP_JOURNAL
from kafkalake.metadata.store import GroupOffsetTable
from kafkalake.world import World

QUIET_WITHIN_S = 5
"""Before a trim no group records may be on their way to the journal: the longest wait for that."""


class GroupHost(JournalHost, Protocol):
    """The parts of a broker that its group coordinator needs."""

    timers: Timers
    scheduler: Scheduler
    world: World
    broker_id: int
    group_peers: GroupPeers

    @property
    def store(self) -> GroupOffsetTable: ...


class GroupService:
    """The group coordinator of one broker. Runs on the event loop's thread. Loading at start blocks it."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        config = host.config
        self.settings = GroupSettings(lambda: host.topics.image.config, lambda: host.config)
        writer = JournalWriter(host.topics, GROUP_JOURNAL, host.append_queue, config.offsets_topic_num_partitions)
        self.coordinator = GroupCoordinator(
            GroupConfig.of(config),
            host.clock,
            host.timers,
            writer,
            lambda: str(host.world.ids()),
            self._topics_now,
            self.settings,
        )
        self.consumers = ConsumerGroups(self.coordinator)
        self.committed = CommittedOffsets(host.broker_id, host.topics, self.coordinator.table, host.group_peers)
        self.offsets = OffsetRequests(self.coordinator, lambda name: self._topics_now().get(name))
        self._removal = OffsetRemoval(self.coordinator, self.offsets)
        self.journal = JournalLifecycle(
            GROUP_JOURNAL,
            config.offsets_topic_segment_bytes,
            "offsets.topic.replication.factor",
            host,
            writer,
            self.coordinator.journaled,
            self._published,
            self._write_again,
            self._removal.delete_stale,
        )
        self._topics: Topics | None = None

    async def start(self) -> None:
        """Load the journal at the broker's start, see `JournalLifecycle.start`.

        Lost records cost group state (members rejoin) and offsets that Delta does not have.
        """
        await self.journal.start()
        self._removal.delete_stale()
        self._removal.start_expiry(self._host.scheduler)

    def stop(self) -> None:
        """Stop serving, see `JournalLifecycle.stop`."""
        self.coordinator.flush()
        self.journal.stop()

    def _published(self) -> Published[ChangedOffset]:
        committed = self._host.store.load_group_offsets()
        return Published(map(changed_offset, committed.rows), committed.positions)

    def topics_changed(self, names: Sequence[str]) -> None:
        """Handle topics that were created, deleted or extended by partitions."""
        self._topics = None
        self._removal.delete_stale(frozenset(names))
        self.consumers.topics_changed(names)

    def _topics_now(self) -> Topics:
        """Return the topics as consumer groups see them, cached until they change."""
        if self._topics is None:
            self._topics = {
                topic.name: TopicOfGroup(topic.topic_id, len(topic.registrations), topic.created_at_ms)
                for topic in self._host.topics
            }
        return self._topics

    async def _write_again(self, index: int, position: int) -> int:
        """Write group records before `position` again and return their number. Raise `CoordinatorNotAvailableError`, ...

        None is written while a newer one may be on its way to the journal: the older one must not land behind it.
        """
        old, count = self.coordinator.table.records_before(index, position), 0
        while True:
            await self._nothing_on_its_way(index)
            records = list(islice(old, RECORDS_PER_BATCH))
            count += len(records)
            if not records:
                return count
            error: ErrorClass | None = await wait_for_call(partial(self.coordinator.write, index, records))
            if error is not None:
                raise error()

    async def _nothing_on_its_way(self, index: int) -> None:
        try:
            async with asyncio.timeout(QUIET_WITHIN_S):
                while True:
                    self.journal.flush()
                    if not self.coordinator.unsettled[index]:
                        return
                    await wait_for_call(partial(self.coordinator.when_settled, index))
        except TimeoutError:
            raise CoordinatorNotAvailableError("groups change all the time") from None
