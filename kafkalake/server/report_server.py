"""Answers the controller's questions to this broker, as requests: a report is cut into parts, which are asked for one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kafkalake.broker.publishing.broker_reports import BrokerReports
from kafkalake.broker.publishing.reports import Acknowledgement, Kind
from kafkalake.errors import InvalidRequestError
from kafkalake.run_blocking import RunBlocking
from kafkalake.server.report_messages import (
    Step,
    held_response,
    journal_parts,
    partition_parts,
    partitions_of,
)
from kafkalake.wire.messages.reports import ReportChangesRequest, ReportChangesResponse


class ReportServer:
    """The reports of this broker for a controller elsewhere. `run_in_thread` runs computations beside the event loop."""

    def __init__(self, reports: BrokerReports, run_in_thread: RunBlocking) -> None:
        self._reports = reports
        self._run_in_thread = run_in_thread
        self._parts: dict[Kind, Sequence[ReportChangesResponse]] = {}
        """The last report of each kind."""

    async def answer(self, asked: ReportChangesRequest) -> ReportChangesResponse:
        """Return the response. Raise `NotControllerError` if the controller is an earlier one, `InvalidRequestError`."""
        reports, epoch = self._reports, asked.controller_epoch
        match asked.step:
            case Step.POLL:
                published = dict(zip(Kind, asked.published, strict=False))
                hidden = frozenset(zip(asked.hidden_partitions, asked.hidden_positions, strict=False))
                acknowledged = Acknowledgement(
                    published, partitions_of(asked.kept), hidden if asked.knows_hidden else None
                )
                status = await reports.poll(epoch, acknowledged)
                return ReportChangesResponse(changed=sorted(status.changed), is_marked=status.is_marked)
            case Step.QUIETEN:
                return ReportChangesResponse(is_quiet=await reports.quieten(epoch))
            case Step.HOLD:
                return held_response(await reports.hold(epoch))
            case Step.REPORT if asked.kind in list(Kind):
                return await self._part(epoch, Kind(asked.kind), asked.part)
            case Step.RELEASE:
                return ReportChangesResponse(was_held=await reports.release(epoch))
        raise InvalidRequestError(f"unknown step {asked.step} of a report")

    async def _part(self, epoch: int, kind: Kind, number: int) -> ReportChangesResponse:
        """Return a part of a report. The first one makes it."""
        if number == 0:
            if kind is Kind.PARTITIONS:
                encode = partial(partition_parts, await self._reports.partitions(epoch))
            else:
                encode = partial(journal_parts, await self._reports.journal(epoch, kind), kind)
            self._parts[kind] = await self._run_in_thread(encode)
        parts = self._parts.get(kind, ())
        if not 0 <= number < len(parts):
            raise InvalidRequestError(f"the report has {len(parts)} parts")
        part = parts[number]
        if number == len(parts) - 1:
            del self._parts[kind]
        return part
