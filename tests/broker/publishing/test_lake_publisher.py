"""A round of the controller's publishing with scripted brokers: what it publishes of transactions, and what it acknowledges."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from leaderships import sole_replica
from manual_clock import ManualClock
from memory_store import MemoryMetadataStore
from metadata.metadata_rows import partition_row

from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.publishing.broker_reports import BrokerReports
from kafkalake.broker.publishing.lake_publisher import LakePublisher
from kafkalake.broker.publishing.lake_rows import LakeRows
from kafkalake.broker.publishing.reports import Acknowledgement, HeldWaves, Kind, PartitionReport, Status
from kafkalake.broker.publishing.shown_partitions import has_all_coordinators, shown_partitions
from kafkalake.broker.publishing.standstill import PAUSE_MS_MAX, STANDSTILL_MS
from kafkalake.broker.publishing.unpublished import UnpublishedChanges
from kafkalake.broker.transactions.cut import EndedTransaction, Shown, decide_cut
from kafkalake.broker.transactions.waves import Waves
from kafkalake.clock import SystemClock
from kafkalake.cluster.image import NO_LEADER, BrokerRegistration, ClusterImage
from kafkalake.config.layers import Settings
from kafkalake.errors import BrokerUnavailableError
from kafkalake.internal_topics import TRANSACTION_JOURNAL
from kafkalake.metadata.store import NONE_PUBLISHED, PublishedPartitions
from kafkalake.metadata.tables.schemas import PartitionRow
from kafkalake.offset_range import OffsetRange
from kafkalake.run_blocking import take_all

CLICKS, JOURNAL = UUID(int=1), UUID(int=2)
P0, P1 = ("clicks", 0), ("clicks", 1)
T2 = EndedTransaction((1, 40), {P0: OffsetRange(1, 1), P1: OffsetRange(0, 0)})


def image(leaders: tuple[int, int] = (0, 1)) -> ClusterImage:
    """Return two brokers that lead a partition of `clicks` and of the transactions' journal each."""
    brokers = {each: BrokerRegistration(each, each, UUID(int=9), ()) for each in (0, 1)}
    brokers = {each: replace(found, is_fenced=False) for each, found in brokers.items()}
    partitions = tuple(
        sole_replica(leader, 0) if leader >= 0 else sole_replica(0, 0, is_offline=True) for leader in leaders
    )
    of_topics = {CLICKS: partitions, JOURNAL: (sole_replica(0, 0), sole_replica(1, 0))}
    return ClusterImage("", version=5, controller_epoch=1, brokers=brokers, partitions=of_topics)


def topics(*names: str) -> Topics:
    known = Topics(ClusterImage(""))
    for name in names:
        topic_id = CLICKS if name == "clicks" else JOURNAL
        known.add(Topic(name, topic_id, {}, Settings({}, {}, {}).topic({}), 0))
    return known


def row(index: int, stable: int, end: int) -> PartitionRow:
    found = partition_row(*("clicks", index), leader=index, end=end)
    return replace(found, topic_id=str(CLICKS), last_stable_offset=stable)


class ScriptedBroker:
    """A `ReportingBroker`. `fails`: the question that it does not answer."""

    def __init__(self, broker_id: int, row: PartitionRow, transactions: list[EndedTransaction]) -> None:
        self.broker_id = broker_id
        self.row = row
        self.rows: Sequence[PartitionRow] = ()
        """Those that it reports, without markers, in place of the one."""
        self.transactions = transactions
        self.is_marked = True
        self.fails = ""
        self.is_quiet = False
        self.quietened = 0
        self.acknowledged = Acknowledgement()
        self.status = Status(frozenset({Kind.PARTITIONS}), True)

    async def poll(self, controller_epoch: int, acknowledged: Acknowledgement) -> Status:
        self.acknowledged = acknowledged
        return Status(frozenset({Kind.PARTITIONS}), self.is_marked)

    async def quieten(self, controller_epoch: int) -> bool:
        self.quietened += 1
        return self.is_quiet

    async def hold(self, controller_epoch: int) -> HeldWaves:
        self._answer("hold")
        return HeldWaves(frozenset({self.broker_id}), self.transactions)

    async def partitions(self, controller_epoch: int) -> PartitionReport:
        self._answer("partitions")
        if self.rows:
            return PartitionReport(self.broker_id, 7, self.rows, image_version=5)
        marked = frozenset({(self.row.topic, self.row.partition)}) if self.is_marked else frozenset()
        return PartitionReport(self.broker_id, 7, [self.row], marked=marked, image_version=5)

    async def release(self, controller_epoch: int) -> bool:
        return True

    def _answer(self, question: str) -> None:
        if question == self.fails:
            raise BrokerUnavailableError(question)


class Rounds:
    """Broker 0 is the controller. A transaction is open in the first partition, before T2."""

    def __init__(
        self, of: Callable[[], ClusterImage] = image, store: MemoryMetadataStore | None = None, is_real: bool = False
    ) -> None:
        """is_real: time passes, and what blocks is done in a thread."""
        self.brokers = [ScriptedBroker(0, row(0, 0, 3), []), ScriptedBroker(1, row(1, 2, 2), [T2])]
        self.store = store or MemoryMetadataStore()
        self.clock = ManualClock()
        self.publisher = LakePublisher(
            0,
            self.brokers[0],  # type: ignore[arg-type]
            lambda broker_id: self.brokers[broker_id],  # type: ignore[return-value]
            of,
            topics("clicks", TRANSACTION_JOURNAL),
            self.store,
            SystemClock() if is_real else self.clock,
            asyncio.to_thread if is_real else _run_here,
            100,
        )
        self._check: Callable[[], Awaitable[object] | None] = lambda: None
        self.publisher.begin(self)  # type: ignore[arg-type]

    def every(
        self, name: str, pause_ms: object, check: Callable[[], Awaitable[object] | None], *, first_ms: int
    ) -> None:
        self._check = check

    async def publish(self, after_ms: int = 10_000) -> list[int]:
        """Take a round and return the published last stable offsets."""
        self.clock.advance(after_ms)
        under_way = self._check()
        assert under_way is not None
        await under_way
        return [each.last_stable_offset for each in self.store.load_partitions()]


async def _run_here(work: Callable[[], object]) -> object:
    return work()


def test_what_an_open_transaction_hides_in_one_partition_is_hidden_in_the_other_until_it_ends() -> None:
    async def scenario() -> None:
        rounds = Rounds()
        first, second = rounds.brokers
        assert await rounds.publish() == [0, 0]
        assert await rounds.publish() == [0, 0]
        assert second.acknowledged == Acknowledgement({Kind.PARTITIONS: 7}, frozenset({P0, P1}), frozenset({(1, 40)}))
        assert first.acknowledged == Acknowledgement({Kind.PARTITIONS: 7}, frozenset({P0, P1}), frozenset())
        first.row = row(0, 4, 4)
        assert await rounds.publish() == [4, 2]
        await rounds.publish()
        assert second.acknowledged == Acknowledgement({Kind.PARTITIONS: 7}, frozenset(), frozenset())

    asyncio.run(scenario())


def test_positions_that_stand_still_have_all_brokers_begin_no_transaction_for_a_moment() -> None:
    async def scenario() -> None:
        rounds = Rounds()
        await rounds.publish()
        counts = []
        for _ in range(8):
            await rounds.publish(STANDSTILL_MS // 2)
            counts.append(rounds.brokers[1].quietened)
        assert counts == [0, 1, 1, 1, 1, 2, 2, 2], "at longer and longer intervals"
        for each in rounds.brokers:
            each.is_quiet = True
        await rounds.publish(PAUSE_MS_MAX)
        await rounds.publish(STANDSTILL_MS)
        assert [each.quietened for each in rounds.brokers] == [4, 4]
        rounds.brokers[0].row = row(0, 4, 4)
        await rounds.publish(STANDSTILL_MS)
        await rounds.publish(STANDSTILL_MS)
        assert rounds.brokers[1].quietened == 5, "nothing is hidden any more"

    asyncio.run(scenario())


@pytest.mark.parametrize("fails", ["hold", "partitions"])
def test_a_leader_that_does_not_answer_keeps_what_is_linked_to_it(fails: str) -> None:
    async def scenario() -> None:
        rounds = Rounds()
        first = rounds.brokers[0]
        first.row = row(0, 3, 3)
        first.fails = fails
        assert await rounds.publish() in ([0, 0], [0])
        first.fails = ""
        await rounds.publish()
        assert await rounds.publish() == [3, 2]

    asyncio.run(scenario())


def test_a_publish_without_a_barrier_forgets_no_transaction() -> None:
    async def scenario() -> None:
        rounds = Rounds()
        first, second = rounds.brokers
        first.is_marked = second.is_marked = False
        await rounds.publish()
        await rounds.publish()
        assert second.acknowledged == Acknowledgement({Kind.PARTITIONS: 7}, frozenset(), None)

    asyncio.run(scenario())


@pytest.mark.parametrize(("hidden", "kept"), [(None, [T2]), (frozenset({T2.position}), [T2]), (frozenset(), [])])
def test_a_broker_forgets_the_transactions_that_are_shown(
    hidden: frozenset[tuple[int, int]] | None, kept: list[EndedTransaction]
) -> None:
    class Partitions:
        changes = UnpublishedChanges(1, lambda partition: None)

    async def scenario() -> None:
        waves = Waves(None)  # type: ignore[arg-type]
        partition, position = T2.position
        waves.committed(partition, position, 7, list(T2.ranges), loading=False)
        for each, records in T2.ranges.items():
            waves.begin(each, 7, lambda: None)
            waves.written(each, 7, records)
        waves.completed(partition, 7)
        waves.report()
        reports = BrokerReports(
            Partitions(),  # type: ignore[arg-type]
            _NoJournal(),  # type: ignore[arg-type]
            _NoJournal(),  # type: ignore[arg-type]
            waves,
            frozenset,
            image,
            ManualClock(),
        )
        reports._epoch = 1
        sequence = take_all(Partitions.changes.report()).sequence
        status = await reports.poll(1, Acknowledgement({Kind.PARTITIONS: sequence}, frozenset(), hidden))
        assert waves.report() == kept
        assert status.is_marked == bool(kept)

    asyncio.run(scenario())


class _NoJournal:
    has_changes = False

    def acknowledge(self, sequence: int) -> None:
        pass


ALL = {0: HeldWaves(frozenset({0}), ()), 1: HeldWaves(frozenset({1}), ())}


def test_all_coordinators_hold_their_waves_or_there_is_no_barrier() -> None:
    both, unknown = topics("clicks", TRANSACTION_JOURNAL), topics("clicks")
    assert has_all_coordinators(image(), both, ALL)
    assert not has_all_coordinators(image(), both, {0: ALL[0]})
    assert not has_all_coordinators(image(), both, {0: ALL[0], 1: HeldWaves(frozenset(), ())})
    assert not has_all_coordinators(image(), unknown, ALL), "a topic whose name is not known here may be the journal"
    without = replace(image(), partitions={CLICKS: image().partitions[CLICKS]})
    assert has_all_coordinators(without, unknown, {}), "there are no transactions"


def test_partitions_are_known_as_far_as_their_leaders_have_answered() -> None:
    rows = LakeRows(1, PublishedPartitions([replace(row(0, 3, 9), log_start_offset=1), row(1, 4, 9)], NONE_PUBLISHED))
    report = PartitionReport(0, 1, [replace(row(0, 8, 9), log_start_offset=5)], image_version=5)
    internal = EndedTransaction((0, 0), {(TRANSACTION_JOURNAL, 0): OffsetRange(0, 0), ("gone", 0): OffsetRange(0, 0)})
    of_both = [T2, internal]
    known = topics("clicks", TRANSACTION_JOURNAL)
    assert shown_partitions(image(), known, rows, [report], of_both) == {P0: Shown(5, 8, 9), P1: Shown(4, 4, None)}
    idle = PartitionReport(1, 1, (), image_version=5)
    assert shown_partitions(image(), known, rows, [report, idle], of_both)[P1] == Shown(4, 4, 9)
    late = replace(report, image_version=4)
    assert shown_partitions(image(), known, rows, [late], of_both)[P0] == Shown(3, 3, None)
    orphaned = shown_partitions(image(leaders=(NO_LEADER, 1)), known, rows, [report], of_both)
    assert orphaned[P0] == Shown(3, 3, None), "the last row of a leader that is fenced"


def test_a_partition_is_not_known_by_what_was_published_before_its_leader_was_elected() -> None:
    """A leader that answers may not lead it yet, or no longer as its disk has failed. The log may have grown since the last row."""
    known, idle = topics("clicks"), PartitionReport(1, 1, (), image_version=5)
    earlier_leader = replace(row(1, 0, 0), leader=0)
    earlier_epoch = replace(row(1, 0, 0), leader_epoch=-1)
    for published in (earlier_leader, earlier_epoch):
        shown = shown_partitions(
            image(), known, LakeRows(1, PublishedPartitions([published], NONE_PUBLISHED)), [idle], [T2]
        )
        assert shown[P1] == Shown(0, 0, None)
        ended = EndedTransaction(T2.position, {P1: OffsetRange(0, 0), P0: OffsetRange(0, 0)})
        cut = decide_cut([ended], shown | {P0: Shown(0, 1, 1)}, {})
        assert cut.positions == {P0: 0, P1: 0}, "it is not shown in one partition alone"


def test_a_publish_of_very_many_partitions_holds_nobody_up() -> None:
    """Neither what is taken from the table, nor what the reports make of it."""
    many = 10_000
    narrow = image()
    wide = replace(narrow, partitions={**narrow.partitions, CLICKS: (sole_replica(0, 0),) * many})
    template = row(0, 5, 5)
    before, after = (
        [replace(template, partition=index, log_end_offset=end) for index in range(many)] for end in (5, 9)
    )

    async def round_of(store: MemoryMetadataStore, epoch: int, reported: Sequence[PartitionRow]) -> float:
        rounds = Rounds(lambda: replace(wide, controller_epoch=epoch), store, is_real=True)
        for each in rounds.brokers:
            each.is_marked, each.rows = False, reported if each.broker_id == 0 else reported[:1]
        under_way = rounds._check()
        assert under_way is not None
        ended = asyncio.ensure_future(under_way)
        longest_s, last_s = 0.0, time.thread_time()
        while not ended.done():
            await asyncio.sleep(0)
            now_s = time.thread_time()
            longest_s, last_s = max(longest_s, now_s - last_s), now_s
        assert [each.log_end_offset for each in store.load_partitions()] == [reported[0].log_end_offset] * many
        return longest_s * 1000

    async def longest_turn_ms() -> float:
        store = MemoryMetadataStore()
        return max(await round_of(store, 1, before), await round_of(store, 2, after))

    assert min(asyncio.run(longest_turn_ms()) for _ in range(4)) < 20
