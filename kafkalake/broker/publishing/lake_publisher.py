"""Publishes to Delta what the brokers report, on the broker that is the controller: each table at most once an interval.

A round asks every broker that is not fenced whether there is anything, and then, for each table by itself, for its reports. They
are one commit: of `segments` and `partitions` together, of `group_offsets`, and of `transactions`. What is committed is
acknowledged with the next round. Whoever becomes the controller goes on with the table as it is, and the brokers report again what
was not acknowledged. One broker alone takes the same way, without a network.

**Barrier.** If markers of transactions were written since the last publish, new waves of them are held on all brokers while the
positions are taken. The publish then hides the transactions that some partition does not show whole (`transactions.cut`): those of
waves that have not ended, of leaders that do not answer, and behind open ones. Where the barrier does not succeed (a hold ran out,
a coordinator does not answer), it keeps the last stable offset of every partition that has such markers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cache
from typing import Protocol, TypeVar
from uuid import UUID

from kafkalake.broker.partitions.scheduler import Scheduler
from kafkalake.broker.partitions.topics import Topics
from kafkalake.broker.publishing.broker_reports import BrokerReports
from kafkalake.broker.publishing.lake_rows import APPLICATION_ID, LakeRows
from kafkalake.broker.publishing.pace import Pace
from kafkalake.broker.publishing.reports import (
    Acknowledgement,
    HeldWaves,
    JournalReport,
    Kind,
    PartitionReport,
    ReportingBroker,
    Status,
)
from kafkalake.broker.publishing.shown_partitions import has_all_coordinators, leader_of, shown_partitions
from kafkalake.broker.publishing.standstill import Standstill
from kafkalake.broker.transactions.cut import UNKNOWN, Cut, EndedTransaction, Seen, decide_cut
from kafkalake.clock import Clock
from kafkalake.cluster.image import NO_LEADER, ClusterImage
from kafkalake.errors import BrokerRefusedError, KafkaLakeError, NotControllerError, as_value
from kafkalake.internal_topics import GROUP_JOURNAL, TRANSACTION_JOURNAL
from kafkalake.metadata.store import (
    GroupOffsetTable,
    PublishedOffsets,
    PublishedPartitions,
    PublishedTables,
    Transactions,
    TransactionTable,
)
from kafkalake.metadata.tables.schemas import GroupOffsetRow, TransactionRow
from kafkalake.run_blocking import TURN_NS, RunBlocking, in_turns
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

_CHECK_INTERVAL_MS = 50
_ELSEWHERE_INTERVAL_MS = 250
_ROUNDS_AT_STOP = 4
UNANSWERED_PAUSE_MS = 5_000
"""How long a broker that did not answer is not asked."""
REFUSED_PAUSE_MS = 250
"""How long one that refused the connection is not: it has registered, and does not listen yet."""

A = TypeVar("A")
Question = Callable[[ReportingBroker], Awaitable[A]]


class LakeStore(PublishedTables, GroupOffsetTable, TransactionTable, Protocol):
    """The tables that are published."""


class PublishPoint(Enum):
    """Points for crash tests between the steps of a publish. The values name them in `KAFKALAKE_KILL_AT`."""

    HELD = "publish-held"
    COLLECTED = "publish-collected"
    COMMITTED = "publish-committed"
    JOURNAL_COLLECTED = "publish-journal-collected"
    JOURNAL_COMMITTED = "publish-journal-committed"


class _Term:
    """The publishing of one controller epoch."""

    def __init__(self, epoch: int, rows: LakeRows) -> None:
        self.epoch = epoch
        self.rows = rows
        self.acknowledged: dict[int, Acknowledgement] = {}
        self.unanswered_ms: dict[int, int] = {}
        self.seen: Seen = {}
        self.standstill = Standstill()
        self.has_rows_of: frozenset[str] = frozenset()
        """The topics of the last publish."""
        self._topics_of: ClusterImage | None = None
        self._topic_ids: frozenset[str] = frozenset()

    def acknowledge(self, broker_id: int, sequence: int, cut: Cut, transactions: Iterable[EndedTransaction]) -> None:
        """Note that a broker's report of partitions is committed, with the cut through the transactions that it reported."""
        hidden = None if cut.hidden is None else cut.hidden.intersection(each.position for each in transactions)
        published = {**self._known(broker_id).published, Kind.PARTITIONS: sequence}
        self.acknowledged[broker_id] = Acknowledgement(published, frozenset(cut.positions), hidden)

    def acknowledge_journal(self, broker_id: int, kind: Kind, sequence: int) -> None:
        """Note that a coordinator's report is committed."""
        known = self._known(broker_id)
        self.acknowledged[broker_id] = replace(known, published={**known.published, kind: sequence})

    def _known(self, broker_id: int) -> Acknowledgement:
        return self.acknowledged.get(broker_id, Acknowledgement())

    def topic_ids(self, image: ClusterImage) -> frozenset[str]:
        """Return the ids of the topics, as text."""
        before = self._topics_of
        if before is None or (before is not image and before.partitions.keys() != image.partitions.keys()):
            self._topic_ids = frozenset(map(str, image.partitions))
        self._topics_of = image
        return self._topic_ids


class LakePublisher:
    """The publishing by this broker while it is the controller. Runs on the event loop's thread."""

    def __init__(
        self,
        broker_id: int,
        here: BrokerReports,
        remote: Callable[[int], ReportingBroker],
        controlled: Callable[[], ClusterImage | None],
        topics: Topics,
        store: LakeStore,
        clock: Clock,
        run_blocking: RunBlocking,
        interval_ms: int,
        reached: Callable[[Enum], None] = lambda point: None,
    ) -> None:
        """`controlled` returns the image of the cluster if this broker is the controller. `remote`: another broker."""
        self._broker_id = broker_id
        self._here = here
        self._remote = remote
        self._controlled = controlled
        self._topics = topics
        self._store = store
        self._clock = clock
        self._run_blocking = run_blocking
        self._reached = reached
        self._interval_ms = interval_ms
        self._due_ms = self._idle_until_ms = 0
        self._paces = {kind: Pace(kind.name.lower(), interval_ms) for kind in Kind}
        self._term: _Term | None = None
        self._under_way: asyncio.Future[bool] | None = None

    def begin(self, scheduler: Scheduler) -> None:
        """Publish from now on."""
        scheduler.every("publishing", self._check_interval_ms, self._check, first_ms=_CHECK_INTERVAL_MS)

    def _check_interval_ms(self) -> int:
        return _ELSEWHERE_INTERVAL_MS if self._controlled() is None else _CHECK_INTERVAL_MS

    def _check(self) -> Awaitable[object] | None:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._due_ms or self._controlled() is None:
            return None
        if now_ms < self._idle_until_ms and not self._here.status.changed:
            return None
        # A round is completed even if the broker stops meanwhile.
        self._under_way = asyncio.ensure_future(self._round(is_last=False))
        return asyncio.shield(self._under_way)

    async def finish(self) -> bool:
        """Publish all that this broker has to report after a round in progress, and return whether nothing is left.

        If it is not the controller, or a commit fails twice, the next start of this broker reports it again.
        """
        if self._under_way is not None:
            await asyncio.wait([self._under_way])
        if self._controlled() is not None:
            for _ in range(_ROUNDS_AT_STOP):
                if not await self._round(is_last=True):
                    break
        await self._here.stop()
        return not self._here.status.changed

    # A round

    async def _round(self, *, is_last: bool) -> bool:
        """Ask all brokers and publish. `is_last`: of this broker alone, and at once. Return whether there was anything."""
        began_ms = self._clock.monotonic_ms()
        self._idle_until_ms = began_ms + self._interval_ms
        image = self._controlled()
        if image is None:
            return False
        term = await self._in_term(image)
        asked = {self._broker_id} if is_last else self._asked(term, image)

        def poll(broker_id: int, broker: ReportingBroker) -> Awaitable[Status]:
            return broker.poll(term.epoch, term.acknowledged.get(broker_id, Acknowledgement()))

        statuses = await self._ask(term, asked, poll)
        changed = frozenset().union(*(status.changed for status in statuses.values()))
        if term.topic_ids(image) is not term.has_rows_of:
            changed |= {Kind.PARTITIONS}
        works = {
            Kind.PARTITIONS: lambda: self._publish_partitions(term, statuses),
            Kind.GROUP_OFFSETS: lambda: self._publish_journal(
                term, Kind.GROUP_OFFSETS, statuses, self._commit_group_offsets
            ),
            Kind.TRANSACTIONS: lambda: self._publish_journal(
                term, Kind.TRANSACTIONS, statuses, self._commit_transactions
            ),
        }
        due = [kind for kind in works if kind in changed and (is_last or self._paces[kind].is_due(began_ms))]
        if changed:
            self._due_ms = began_ms + self._interval_ms
        await asyncio.gather(*(self._in_pace(kind, works[kind]) for kind in due))
        return bool(changed)

    async def _in_term(self, image: ClusterImage) -> _Term:
        if self._term is None or self._term.epoch != image.controller_epoch:
            epoch = image.controller_epoch
            self._term = _Term(epoch, await self._run_blocking(lambda: LakeRows(epoch, self._load_published())))
        return self._term

    def _asked(self, term: _Term, image: ClusterImage) -> set[int]:
        """Return the brokers to be asked: this one, and those that are not fenced and have not failed to answer lately."""
        now_ms = self._clock.monotonic_ms()
        live = {each.broker_id for each in image.brokers.values() if not each.is_fenced}
        return {self._broker_id, *(each for each in live if now_ms >= term.unanswered_ms.get(each, 0))}

    async def _ask(
        self,
        term: _Term,
        brokers: set[int] | Mapping[int, object],
        question: Callable[[int, ReportingBroker], Awaitable[A]],
    ) -> dict[int, A]:
        """Return the answers of brokers. One without an answer is missing, and is not asked for a while."""
        answers: dict[int, A] = {}

        async def ask(broker_id: int) -> None:
            broker = self._here if broker_id == self._broker_id else self._remote(broker_id)
            try:
                answers[broker_id] = await question(broker_id, broker)
            except KafkaLakeError as error:
                pause_ms = REFUSED_PAUSE_MS if isinstance(error, BrokerRefusedError) else UNANSWERED_PAUSE_MS
                term.unanswered_ms[broker_id] = self._clock.monotonic_ms() + pause_ms
                logger.warning("broker without a report broker=%d error=%s", broker_id, error)

        await asyncio.gather(*map(ask, brokers))
        return answers

    async def _in_pace(self, kind: Kind, work: Callable[[], Awaitable[int]]) -> None:
        """Do the work of a table, which returns the ms that its commit took."""
        pace = self._paces[kind]
        pace.begin(self._clock.monotonic_ms())
        try:
            cost_ms = await work()
        except Exception as error:
            if not isinstance(error, KafkaLakeError):
                logger.exception("publishing of %s failed", kind.name.lower())
            pace.failed(self._clock.monotonic_ms(), as_value(error))
        else:
            pace.succeeded(self._clock.monotonic_ms(), cost_ms)

    async def _commit(self, commit: Callable[[], object]) -> int:
        """Commit in a thread and return the ms that it took."""
        began_ms = self._clock.monotonic_ms()
        await self._run_blocking(commit)
        return self._clock.monotonic_ms() - began_ms

    # Partitions and segments

    def _load_published(self) -> PublishedPartitions:
        return self._store.load_published(APPLICATION_ID)

    async def _publish_partitions(self, term: _Term, statuses: Mapping[int, Status]) -> int:
        if not term.rows.is_known:
            await self._run_blocking(lambda: term.rows.take(self._load_published()))
        held: dict[int, HeldWaves] | None = None
        if any(status.is_marked for status in statuses.values()):
            await self._quieten(term, statuses)
            held = await self._ask(term, statuses, lambda _, broker: broker.hold(term.epoch))
            self._reached(PublishPoint.HELD)
        try:
            reports = await self._ask(term, statuses, lambda _, broker: broker.partitions(term.epoch))
        finally:
            released = {}
            if held is not None:
                released = await self._ask(term, held, lambda _, broker: broker.release(term.epoch))
        if held is not None and not (released.keys() == statuses.keys() and all(released.values())):
            held = None
        image = self._image_of(term)
        cut = await self._cut(term, image, list(reports.values()), held)
        topic_ids = term.topic_ids(image)
        now_ms, now_ns = self._clock.now_ms(), self._clock.monotonic_ns
        preparing = term.rows.prepare(reports.values(), topic_ids, _leaders(image), cut.positions, now_ms)
        state = await in_turns(preparing, now_ns, TURN_NS)
        self._reached(PublishPoint.COLLECTED)
        cost_ms = 0
        if state is not None:
            cost_ms = await self._commit(lambda: self._store.publish(state))
            self._reached(PublishPoint.COMMITTED)
            term.rows.committed(state)
        term.has_rows_of = topic_ids
        for broker_id, report in reports.items():
            term.acknowledge(broker_id, report.sequence, cut, () if held is None else held[broker_id].transactions)
        return cost_ms

    async def _quieten(self, term: _Term, statuses: Mapping[int, Status]) -> None:
        """Wait until no transaction is open, if what hides transactions has not moved for long. They begin again with `release`."""
        if term.standstill.is_due(self._clock.monotonic_ms()):
            answers = await self._ask(term, statuses, lambda _, broker: broker.quieten(term.epoch))
            is_quiet = answers.keys() == statuses.keys() and all(answers.values())
            term.standstill.tried(self._clock.monotonic_ms(), is_quiet=is_quiet)

    def _image_of(self, term: _Term) -> ClusterImage:
        """Return the newest image, which is not older than any report. Raise `NotControllerError` if the term has ended."""
        image = self._controlled()
        if image is None or image.controller_epoch != term.epoch:
            raise NotControllerError()
        return image

    async def _cut(
        self, term: _Term, image: ClusterImage, reports: Sequence[PartitionReport], held: Mapping[int, HeldWaves] | None
    ) -> Cut:
        """Return up to where transactions are shown. `held`: None if waves may have begun meanwhile."""
        marked: frozenset[TopicPartition] = frozenset().union(*(report.marked for report in reports))
        if held is None or not has_all_coordinators(image, self._topics, held):
            return Cut(dict.fromkeys(marked, UNKNOWN), None, term.seen)
        transactions = [each for waves in held.values() for each in waves.transactions]
        partitions = shown_partitions(image, self._topics, term.rows, reports, transactions)
        seen = term.seen
        cut: Cut = await self._run_blocking(lambda: decide_cut(transactions, partitions, seen))
        term.seen = cut.seen
        term.standstill.published(cut.positions, self._clock.monotonic_ms())
        return cut

    # Journals

    async def _publish_journal(
        self,
        term: _Term,
        kind: Kind,
        statuses: Mapping[int, Status],
        commit: Callable[[Sequence[JournalReport]], object],
    ) -> int:
        asked = {broker_id: status for broker_id, status in statuses.items() if kind in status.changed}
        reported = await self._ask(term, asked, lambda _, broker: broker.journal(term.epoch, kind))
        image = self._image_of(term)
        reports = {each: report for each, report in reported.items() if self._is_current(image, kind, each, report)}
        self._reached(PublishPoint.JOURNAL_COLLECTED)
        cost_ms = 0
        if any(report.rows for report in reports.values()):
            cost_ms = await self._commit(lambda: commit(list(reports.values())))
            self._reached(PublishPoint.JOURNAL_COMMITTED)
        for broker_id, report in reports.items():
            term.acknowledge_journal(broker_id, kind, report.sequence)
        return cost_ms

    def _is_current(self, image: ClusterImage, kind: Kind, broker_id: int, report: JournalReport) -> bool:
        """Return whether a broker leads the partitions of the journal that it reports. Else the next leader reports their rows."""
        journal = GROUP_JOURNAL if kind is Kind.GROUP_OFFSETS else TRANSACTION_JOURNAL
        leaders = (leader_of(image, self._topics, (journal, partition)) for partition in report.positions)
        return all(leader in (broker_id, NO_LEADER) for leader in leaders)

    def _commit_group_offsets(self, reports: Sequence[JournalReport]) -> None:
        rows = [row for report in reports for row in report.rows if isinstance(row, GroupOffsetRow)]
        self._store.publish_group_offsets(PublishedOffsets(rows, _positions(reports)))

    def _commit_transactions(self, reports: Sequence[JournalReport]) -> None:
        rows = [row for report in reports for row in report.rows if isinstance(row, TransactionRow)]
        self._store.publish_transactions(Transactions(rows, _positions(reports)))


def _leaders(image: ClusterImage) -> Callable[[str, int], int]:
    """Return the function that returns the leader of a partition of a topic id, `NO_LEADER` for one that is gone."""
    registrations = cache(lambda topic_id: image.partitions.get(UUID(topic_id), ()))

    def leader(topic_id: str, index: int) -> int:
        of_topic = registrations(topic_id)
        return of_topic[index].leader if index < len(of_topic) else NO_LEADER

    return leader


def _positions(reports: Sequence[JournalReport]) -> dict[int, int]:
    return {partition: position for report in reports for partition, position in report.positions.items()}
