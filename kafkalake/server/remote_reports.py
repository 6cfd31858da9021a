"""Another broker as the controller asks it for reports: each question is a request to it."""

from __future__ import annotations

from functools import partial
from typing import Any

from kafkalake.broker.publishing.reports import (
    Acknowledgement,
    HeldWaves,
    JournalReport,
    Kind,
    PartitionReport,
    Status,
)
from kafkalake.client.peers import Channel, Peers
from kafkalake.client.requests import REPORT_CHANGES
from kafkalake.errors import BrokerUnavailableError, error_for_code
from kafkalake.run_blocking import RunBlocking
from kafkalake.server.report_messages import Step, ended_transactions, journal_report, partition_report, topics_of
from kafkalake.wire.messages.reports import ReportChangesRequest, ReportChangesResponse

TIMEOUT_MS = 2_000
PARTS_MAX = 1_000
"""Parts of a report that are taken at most: five million rows."""


class RemoteReports:
    """A `ReportingBroker` elsewhere, by the connections of `peers`."""

    def __init__(self, broker_id: int, peers: Peers, run_in_thread: RunBlocking) -> None:
        self._broker_id = broker_id
        self._peers = peers
        self._run_in_thread = run_in_thread

    async def poll(self, controller_epoch: int, acknowledged: Acknowledgement) -> Status:
        published = [acknowledged.published.get(kind, -1) for kind in Kind]
        hidden = sorted(acknowledged.hidden or ())
        answer = await self._ask(
            controller_epoch,
            Step.POLL,
            published=published,
            kept=topics_of(acknowledged.kept),
            knows_hidden=acknowledged.hidden is not None,
            hidden_partitions=[partition for partition, _ in hidden],
            hidden_positions=[position for _, position in hidden],
        )
        return Status(frozenset(kind for kind in Kind if kind in answer.changed), answer.is_marked)

    async def quieten(self, controller_epoch: int) -> bool:
        return (await self._ask(controller_epoch, Step.QUIETEN)).is_quiet

    async def hold(self, controller_epoch: int) -> HeldWaves:
        answer = await self._ask(controller_epoch, Step.HOLD)
        return HeldWaves(frozenset(answer.coordinated), ended_transactions(answer))

    async def partitions(self, controller_epoch: int) -> PartitionReport:
        parts = await self._report(controller_epoch, Kind.PARTITIONS)
        report: PartitionReport = await self._run_in_thread(partial(partition_report, self._broker_id, parts))
        return report

    async def journal(self, controller_epoch: int, kind: Kind) -> JournalReport:
        parts = await self._report(controller_epoch, kind)
        report: JournalReport = await self._run_in_thread(partial(journal_report, kind, parts))
        return report

    async def release(self, controller_epoch: int) -> bool:
        return (await self._ask(controller_epoch, Step.RELEASE)).was_held

    async def _report(self, controller_epoch: int, kind: Kind) -> list[ReportChangesResponse]:
        parts = [await self._ask(controller_epoch, Step.REPORT, kind=kind)]
        if parts[0].parts > PARTS_MAX:
            raise BrokerUnavailableError(f"broker {self._broker_id} has a report of {parts[0].parts} parts")
        for number in range(1, parts[0].parts):
            parts.append(await self._ask(controller_epoch, Step.REPORT, kind=kind, part=number))
            if parts[-1].sequence != parts[0].sequence:
                raise BrokerUnavailableError(f"broker {self._broker_id} has begun another report")
        return parts

    async def _ask(self, controller_epoch: int, step: Step, **fields: Any) -> ReportChangesResponse:
        message = ReportChangesRequest(controller_epoch=controller_epoch, step=step, **fields)
        answer = await self._peers.ask(
            self._broker_id, REPORT_CHANGES, message, timeout_ms=TIMEOUT_MS, channel=Channel.REPORTS
        )
        if answer.error_code:
            raise error_for_code(answer.error_code)
        return answer
