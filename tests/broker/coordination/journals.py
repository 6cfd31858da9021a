"""A group coordinator on a journal of which a broker leads some partitions, with real logs and the event loop's turns by hand."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from faulty_files import FaultyFiles
from leaderships import alone, sole_replica
from manual_clock import ManualClock

from kafkalake.broker.coordination.journal import journal_partition
from kafkalake.broker.coordination.journal_lifecycle import JournalLifecycle
from kafkalake.broker.coordination.journal_loading import Published
from kafkalake.broker.coordination.journal_writer import JournalWriter
from kafkalake.broker.groups.config import GroupConfig
from kafkalake.broker.groups.consumer_topics import TopicOfGroup
from kafkalake.broker.groups.coordinator import GroupCoordinator
from kafkalake.broker.groups.offset_requests import CommitRequest, OffsetRequests, OffsetToCommit, PartitionErrors
from kafkalake.broker.groups.table import ChangedOffset
from kafkalake.broker.partitions.append_queue import AppendQueue
from kafkalake.broker.partitions.new_topic import NewTopic
from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.purgatory import Purgatory, Timers
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.cluster.image import ClusterImage
from kafkalake.cluster.replication import Leadership, ReplicaFetch, note_fetch
from kafkalake.config.layers import Settings
from kafkalake.errors import KafkaError
from kafkalake.internal_topics import GROUP_JOURNAL
from kafkalake.ownership import Ownership
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.storage.open_files import OpenFiles

HERE, ELSEWHERE = 0, 1
PARTITIONS = 3
KEY = ("clicks", 0)
CLICKS = uuid.uuid5(uuid.NAMESPACE_DNS, "clicks")


def group_of(partition: int) -> str:
    """Return the name of a group of a journal partition."""
    return next(name for n in range(100) if journal_partition(name := f"group-{n}", PARTITIONS) == partition)


class Journals:
    """One broker. Partitions of `__consumer_offsets` come and go. `published` and `positions` are Delta's."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.turns: list[Callable[[], object]] = []
        self.delta_fails: list[KafkaError] = []
        self.published: dict[tuple[str, object], ChangedOffset] = {}
        self.positions: dict[int, int] = {}
        self.created: list[NewTopic] = []
        self.created_by_image = False
        self.topic_admin: Any = self
        self.config = Settings({}, {}, {}).broker
        ownership = Ownership(self.clock)
        ownership.renewed(self.clock.elapsed_ms(), 3_600_000)
        self.append_queue = AppendQueue(
            Purgatory(self.timers),
            self.turns.append,
            self.run_blocking,
            lambda partition: None,
            ownership,
            self.clock,
        )
        self.topics = Topics(ClusterImage(""))
        self.files = files = FaultyFiles()
        open_files = OpenFiles(files, 16)
        self.logs = [
            Log.open(directory / f"{index}", LogConfig(), self.clock, files, open_files) for index in range(PARTITIONS)
        ]
        writer = JournalWriter(self.topics, GROUP_JOURNAL, self.append_queue, PARTITIONS)
        config = GroupConfig(group_coordinator_append_linger_ms=5)
        self.groups = GroupCoordinator(config, self.clock, self.timers, writer, lambda: "")
        topics = {"clicks": TopicOfGroup(CLICKS, 4)}
        self.offsets = OffsetRequests(self.groups, topics.get)
        self.kept: list[int] = []
        self.to_keep = 0
        """Offsets that a trim commits again."""
        self.journal = JournalLifecycle(
            GROUP_JOURNAL,
            1 << 20,
            "offsets.topic.replication.factor",
            self,
            writer,
            self.groups.journaled,
            self._published,
            self._keep,
        )

    # The parts of a broker

    async def run_blocking(self, work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return work()

    def moved(self, partition: Partition) -> None:
        """A trim has moved the start."""

    @property
    def plans(self) -> Any:
        """This is the broker's `topic_admin` too."""
        return self

    def journal_factor(self, setting: str) -> int:
        return 1

    def flush(self) -> bool:
        return self.append_queue.flush()

    async def create(self, new: NewTopic, timeout_ms: int) -> Topic:
        self.created.append(new)
        topic = self.add_topic(range(PARTITIONS))
        for index in range(PARTITIONS) if self.created_by_image else ():
            self.journal.lead(index)
        return topic

    def _published(self) -> Published[ChangedOffset]:
        if self.delta_fails:
            raise self.delta_fails.pop(0)
        return Published(self.published.values(), self.positions)

    async def _keep(self, index: int, position: int) -> int:
        self.kept.append(index)
        await asyncio.sleep(0)
        for offset in range(self.to_keep):
            self.commit(index, offset)
            self.turn()
        return self.to_keep

    # What happens to it

    def add_topic(self, led: Iterable[int], leader_epoch: int = 1) -> Topic:
        """The topic is there, and the broker leads these partitions of it."""
        topic = Topic(GROUP_JOURNAL, uuid.uuid4(), {}, Settings({}, {}, {}).topic({}), 0)
        self.topics.add(topic)
        self.topics.apply(
            self.topics.image.with_topics(
                {topic.topic_id: tuple(sole_replica(HERE if n in led else ELSEWHERE, 1) for n in range(PARTITIONS))}
            )
        )
        for index in led:
            self.open(index, leader_epoch)
        return topic

    def open(self, index: int, leader_epoch: int = 1) -> None:
        """The broker leads a partition, by the log that is there."""
        self.open_as(index, alone(leader_epoch))

    def open_as(self, index: int, leadership: Leadership) -> None:
        """The broker leads a partition, which may have other replicas."""
        topic = self.topics.topic(GROUP_JOURNAL)
        topic.replicas[index] = Partition(topic, index, self.logs[index], WireCache(1 << 20).tail(), leadership)

    def fetch_as_follower(self, index: int) -> None:
        """A follower, broker 1, has all of a partition."""
        partition = self.topics.topic(GROUP_JOURNAL).replicas[index]
        end = partition.log.log_end_offset
        partition.lead(note_fetch(partition.leadership, ReplicaFetch(1, -1, end), end, -1, 0))
        self.append_queue.advance(partition)

    def publish(self) -> None:
        """Commit to Delta what it lacks."""
        changes = self.journal.take_changes()
        self.published.update(zip(chain.from_iterable(changes.keys.values()), changes.rows, strict=True))
        self.positions.update({row.journal_partition: changes.resume_at[row.journal_partition] for row in changes.rows})

    def turn(self) -> None:
        """The event loop's turn ends: what was queued is appended."""
        while self.turns:
            self.turns.pop(0)()

    def commit(self, partition: int, offset: int) -> list[PartitionErrors]:
        answers: list[PartitionErrors] = []
        request = CommitRequest(group_of(partition), [OffsetToCommit(*KEY, offset)])
        self.offsets.commit(request, answers.append)
        return answers

    def committed(self, partition: int) -> object:
        """Return the committed offset of the partition's group, or the error class."""
        try:
            found = self.offsets.fetch(group_of(partition), [KEY], require_stable=False)[KEY]
        except KafkaError as error:
            return type(error)
        return found if found is None or isinstance(found, type) else found.offset


def run(scenario: Awaitable[None]) -> None:
    """Run a scenario to its end, with a time limit."""

    async def limited() -> None:
        async with asyncio.timeout(30):
            await scenario

    asyncio.run(limited())
