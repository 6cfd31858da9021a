"""The reports of this broker: the `ReportingBroker` that the controller asks, here or through the network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any

from kafkalake.broker.coordination.waiting import wait_for_call
from kafkalake.broker.publishing.journal_reports import JournalReporter
from kafkalake.broker.publishing.partitions import PartitionReporter
from kafkalake.broker.publishing.reports import (
    Acknowledgement,
    HeldWaves,
    JournalReport,
    Kind,
    PartitionReport,
    Status,
)
from kafkalake.broker.transactions.waves import Waves
from kafkalake.clock import Clock
from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import NotControllerError
from kafkalake.run_blocking import TURN_NS, in_turns


class ReportPoint(Enum):
    """Points for crash tests between the steps of a report. The values name them in `KAFKALAKE_KILL_AT`."""

    ACKNOWLEDGED = "report-acknowledged"
    HELD = "report-held"
    COLLECTED = "report-collected"
    JOURNAL_COLLECTED = "report-journal-collected"
    RELEASED = "report-released"


class BrokerReports:
    """The reports of this broker. Runs on the event loop's thread.

    `image` returns the image that is followed here, `coordinated` the partitions of the transactions' journal that are
    coordinated here. `reached` is called at each point.
    """

    def __init__(
        self,
        partitions: PartitionReporter,
        groups: JournalReporter[Any],
        transactions: JournalReporter[Any],
        waves: Waves,
        coordinated: Callable[[], frozenset[int]],
        image: Callable[[], ClusterImage],
        clock: Clock,
        reached: Callable[[Enum], None] = lambda point: None,
    ) -> None:
        self._partitions = partitions
        self._journals = {Kind.GROUP_OFFSETS: groups, Kind.TRANSACTIONS: transactions}
        self._waves = waves
        self._coordinated = coordinated
        self._image = image
        self._clock = clock
        self._collecting = asyncio.Lock()
        self._reached = reached
        self._epoch = -1

    @property
    def status(self) -> Status:
        """The kinds of changes that there are, and whether markers are among them."""
        changed = {kind for kind, journal in self._journals.items() if journal.has_changes}
        has_unpublished = self._waves.has_unpublished
        if self._partitions.changes or has_unpublished:
            changed.add(Kind.PARTITIONS)
        return Status(frozenset(changed), self._partitions.changes.is_marked or has_unpublished)

    async def poll(self, controller_epoch: int, acknowledged: Acknowledgement) -> Status:
        self._follow(controller_epoch)
        published = acknowledged.published
        for kind, journal in self._journals.items():
            journal.acknowledge(published.get(kind, -1))
        sequence = published.get(Kind.PARTITIONS, -1)
        is_last = self._partitions.changes.acknowledge(sequence, acknowledged.kept)
        if is_last and acknowledged.hidden is not None:
            self._waves.published(acknowledged.hidden)
        self._reached(ReportPoint.ACKNOWLEDGED)
        return self.status

    async def quieten(self, controller_epoch: int) -> bool:
        self._follow(controller_epoch)
        return await wait_for_call(self._waves.beginnings.hold)

    async def hold(self, controller_epoch: int) -> HeldWaves:
        self._follow(controller_epoch)
        await wait_for_call(self._waves.hold)
        held = HeldWaves(self._coordinated(), self._waves.report())
        self._reached(ReportPoint.HELD)
        return held

    async def partitions(self, controller_epoch: int) -> PartitionReport:
        self._follow(controller_epoch)
        image_version = self._image().version  # or a later one, by the time that the last row is described
        async with self._collecting:
            collected = await in_turns(self._partitions.changes.report(), self._clock.monotonic_ns, TURN_NS)
        report = replace(collected, image_version=image_version)
        self._reached(ReportPoint.COLLECTED)
        return report

    async def journal(self, controller_epoch: int, kind: Kind) -> JournalReport:
        self._follow(controller_epoch)
        report = await self._journals[kind].report()
        self._reached(ReportPoint.JOURNAL_COLLECTED)
        return report

    async def release(self, controller_epoch: int) -> bool:
        self._follow(controller_epoch)
        was_held = self._waves.release()
        self._reached(ReportPoint.RELEASED)
        return was_held

    async def stop(self) -> None:
        """Wait for the trims that are under way."""
        for journal in self._journals.values():
            await journal.stop()

    def _follow(self, controller_epoch: int) -> None:
        """Report everything again to a new controller. Raise `NotControllerError` if it is an earlier one."""
        if controller_epoch < max(self._epoch, self._image().controller_epoch):
            raise NotControllerError()
        if controller_epoch > self._epoch:
            self._epoch = controller_epoch
            self._partitions.report_all()
