"""Delayed delivery in a running broker: the coordinators of the partitions of `__delayed` that it leads.

The topic is created on first use. A broker loads the partitions that it leads at its start and when it becomes their leader
(`lead`), all in the background, and unloads those that it leads no longer (`resign`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from enum import Enum
from functools import partial
from itertools import count
from typing import Protocol
from uuid import UUID

from kafkalake.broker.callbacks import CallbackLoop, Done, call_isolated
from kafkalake.broker.coordination.journal_creation import CreatingHost, create_journal, size_setting
from kafkalake.broker.coordination.journal_writer import JournalWriter
from kafkalake.broker.delayed.coordinator import DelayedHost, JournalCoordinator, JournalDescription
from kafkalake.broker.delayed.leader_targets import MESSAGE_BYTES_MAX
from kafkalake.broker.delayed.payloads import Room
from kafkalake.broker.delayed.targets import Metrics, Targets
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.transactions.fault_points import kill_as_asked
from kafkalake.delayed_journal import journal_partition
from kafkalake.errors import CoordinatorNotAvailableError, NotCoordinatorError
from kafkalake.internal_topics import DELAYED_JOURNAL
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.temporary_files import TemporaryFiles
from kafkalake.topic_partition import PartitionId
from kafkalake.world import World

READ_AHEAD_BYTES_MAX = 64 << 20
"""The bytes of records that are read before they are due, of all journal partitions."""


class ServiceHost(DelayedHost, CreatingHost, Protocol):
    """The parts of a broker that delayed delivery needs."""

    topics: Topics
    world: World


class DelayedService:
    """Delayed delivery of one broker. Runs on the event loop's thread."""

    def __init__(self, host: ServiceHost, targets: Targets, metrics: Metrics) -> None:
        self._host = host
        self._targets = targets
        self._metrics = metrics
        self._reach: Callable[[Enum], None] = kill_as_asked(os.environ)
        config = host.config
        self._writer = JournalWriter(
            host.topics, DELAYED_JOURNAL, host.append_queue, config.delayed_topic_num_partitions
        )
        self._config: dict[str, str | None] = {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "max.message.bytes": str(MESSAGE_BYTES_MAX),
            "message.timestamp.type": "CreateTime",
            "min.insync.replicas": str(config.delayed_topic_min_isr),
            "retention.bytes": "-1",
            "retention.ms": "-1",
            size_setting(config.delayed_topic_segment_bytes): str(config.delayed_topic_segment_bytes),
        }
        self._room = Room(READ_AHEAD_BYTES_MAX)
        self._coordinators: dict[int, JournalCoordinator] = {}
        self._loads = count()
        self._creating = asyncio.Lock()
        self._is_stopped = False

    @property
    def exists(self) -> bool:
        """Return whether the topic exists."""
        return self._writer.topic is not None

    def journal_partition(self, target: PartitionId[UUID]) -> int:
        """Return the journal partition of a target, whether or not it exists."""
        return journal_partition(target, self._writer.partitions)

    async def make_ready(self) -> None:
        """Create the topic if it does not exist. Raise `CoordinatorNotAvailableError` if that fails."""
        async with self._creating:
            if self._is_stopped:
                raise CoordinatorNotAvailableError
            if self._writer.topic is None:
                factor = "delayed.topic.replication.factor"
                await create_journal(self._host, DELAYED_JOURNAL, self._writer, factor, self._config)
            self.start()

    def start(self) -> None:
        """Coordinate the partitions that this broker leads, as soon as they are loaded."""
        for partition in self._writer.led():
            self.lead(partition.index)

    def stop(self) -> None:
        """Stop serving. Pending requests fail with NOT_COORDINATOR."""
        self._is_stopped = True
        for index in list(self._coordinators):
            call_isolated(CallbackLoop.COORDINATED, self.resign, index)

    def lead(self, index: int) -> None:
        """Coordinate a partition that this broker leads now. Raise `NotLeaderOrFollowerError`."""
        partition = self._writer.partition(index)
        known = self._coordinators.get(index)
        if self._is_stopped or partition.is_offline or (known is not None and known.partition is partition):
            return
        if known is not None:
            known.close()
        new_files = partial(self._new_files, partition.log.directory)
        found = JournalCoordinator(
            partition,
            self._host,
            self._targets,
            new_files,
            self._room,
            self._metrics,
            self._reach,
            self._count_cancels,
        )
        self._coordinators[index] = found
        found.start()

    def _count_cancels(self) -> int:
        return sum(each.cancels for each in self._coordinators.values())

    def _new_files(self, directory: str) -> TemporaryFiles:
        return TemporaryFiles(directory, self._host.world.files, f"{next(self._loads)}-")

    def resign(self, index: int) -> None:
        """Coordinate a partition no longer."""
        known = self._coordinators.pop(index, None)
        if known is not None:
            known.close()

    def hand_in(self, index: int, batch: ProducerBatch, done: Done) -> None:
        """Append a batch that `delayed_journal.encode` has made to a journal partition, unless it has been before.

        `done` is called once: with None when the records are durable, else with a retriable error.
        """
        coordinator = self._coordinators.get(index)
        if coordinator is not None:
            coordinator.hand_in(batch, done)
        elif self._writer.topic is None:
            done(CoordinatorNotAvailableError())
        else:
            done(NotCoordinatorError())

    def describe(self) -> list[JournalDescription]:
        """Return the numbers of the partitions that are coordinated here."""
        return [each.describe() for _, each in sorted(self._coordinators.items())]
