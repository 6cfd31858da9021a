"""The tables that have topics: the controller brings them together, and one that has been deposed changes neither."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from unittest.mock import AsyncMock
from uuid import UUID

import pytest
from broker.controller_term import Term
from memory_store import MemoryMetadataStore

from kafkalake.broker.admin.topic_admin import TopicAdmin
from kafkalake.broker.admin.topic_creation import Creation
from kafkalake.broker.admin.topic_tables import TopicTables, without_topics
from kafkalake.broker.controller.steps import ControllerStep
from kafkalake.broker.partitions.new_topic import MorePartitions, NewTopic
from kafkalake.broker.partitions.topic_rows import topic_of
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.cluster.controller_election import claim
from kafkalake.cluster.image import BrokerRegistration, PartitionRegistration
from kafkalake.cluster.topic_changes import create_topics
from kafkalake.config.layers import Settings
from kafkalake.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    KafkaStorageError,
    NotControllerError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.world import World

LIVE, ROW_ONLY, VERSION_ONLY = UUID(int=1), UUID(int=2), UUID(int=3)
SETTINGS = Settings({}, {}, {})


class Store(MemoryMetadataStore):
    """`reading` is called whenever the rows are read, `changed` after each change of them by a controller."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: Callable[[], None] = lambda: None
        self.changed: Callable[[], None] = lambda: None

    @contextlib.contextmanager
    def _changing_topics(self, controller_epoch: int | None) -> Iterator[None]:
        with super()._changing_topics(controller_epoch):
            yield
        if controller_epoch is not None:
            self.changed()

    def load_topics(self) -> list[TopicRow]:
        self.reading()
        return super().load_topics()


class Lake:
    """Both tables, and broker 0 as the controller."""

    def __init__(self, timeout_ms: int = 5_000) -> None:
        self.term = Term(timeout_ms)
        self.store = Store()
        self.served = Topics(self.term.newest)
        self.tables = TopicTables(
            self.store,
            self.term.controller,
            self.served,
            lambda: SETTINGS,
            lambda work: asyncio.to_thread(work),
            World(self.term.clock),
            lambda step: None,
        )

    def add_row(self, topic_id: UUID) -> None:
        self.store.create_topics([TopicRow(f"topic-{topic_id.int}", str(topic_id), 1, {}, 0)])

    def add_version(self, topic_id: UUID, *replicas: int) -> None:
        partitions = {topic_id: (PartitionRegistration(0, 0, replicas or (0,), replicas or (0,)),)}
        self.term.store.commit(create_topics(self.term.newest, partitions, 0))

    def create(self, topic_id: UUID, *replicas: int) -> None:
        self.add_row(topic_id)
        self.add_version(topic_id, *replicas)

    def serve(self, **config: str) -> Topic:
        """Serve the only topic."""
        (row,) = self.store.load_topics()
        topic = topic_of(replace(row, config=config), SETTINGS)
        self.served.apply(self.term.newest, [topic])
        return topic

    def serve_all(self) -> None:
        self.served.apply(self.term.newest, [topic_of(row, SETTINGS) for row in self.store.load_topics()])

    async def register(self, *broker_ids: int) -> None:
        brokers = {each: BrokerRegistration(each, 1, UUID(int=9 + each), (), is_fenced=False) for each in broker_ids}
        await self.term.controller.change(lambda now: replace(now, version=now.version + 1, brokers=brokers))
        self.served.apply(self.term.newest)

    def elect(self, broker_id: int) -> None:
        self.term.store.commit(claim(self.term.newest, broker_id))

    def create_by_another(self) -> None:
        """Create a topic as a successor, of which broker 0 does not know yet."""
        self.elect(1)
        self.add_row(LIVE)
        self.add_version(LIVE)

    def admin(
        self,
        reach: Callable[[ControllerStep], None] = lambda step: None,
        later: Callable[[int, Callable[[], None]], object] = lambda delay_ms, action: None,
    ) -> TopicAdmin:
        return TopicAdmin(
            topics=self.served,
            controller=self.term.controller,
            create_elsewhere=AsyncMock(),
            store=self.store,
            world=World(self.term.clock),
            settings=lambda: SETTINGS,
            run_blocking=lambda work: asyncio.to_thread(work),
            later=later,
            reach=reach,
        )

    def topics(self) -> tuple[set[UUID], set[UUID]]:
        """Return the topics of the rows, and those of the newest version."""
        rows = MemoryMetadataStore.load_topics(self.store)
        return {UUID(row.topic_id) for row in rows}, set(self.term.newest.partitions)


def test_topics_of_one_table_alone_are_removed() -> None:
    async def run() -> None:
        lake = Lake()
        lake.add_row(ROW_ONLY)
        lake.add_version(VERSION_ONLY)
        lake.add_row(LIVE)
        lake.add_version(LIVE)
        for _ in range(2):
            await lake.tables.bring_together()
            assert lake.topics() == ({LIVE}, {LIVE})
        assert lake.tables.are_together

    asyncio.run(run())


def test_partitions_of_a_row_alone_are_added_with_the_replicas_of_the_others() -> None:
    async def run() -> None:
        lake = Lake()
        await lake.register(0, 1)
        lake.create(LIVE, 0, 1)
        (row,) = lake.store.load_topics()
        lake.store.alter_topics([replace(row, partitions=3)])
        for _ in range(2):
            await lake.tables.bring_together()
            found = lake.term.newest.partitions[LIVE]
            assert [sorted(each.replicas) for each in found] == [[0, 1]] * 3
            assert lake.tables.are_together
        version = lake.term.newest.version
        await lake.tables.bring_together()
        assert lake.term.newest.version == version

    asyncio.run(run())


def test_topics_that_are_changed_together_are_in_one_version() -> None:
    async def run() -> None:
        lake = Lake()
        await lake.register(0)
        for topic_id in (LIVE, ROW_ONLY, VERSION_ONLY):
            lake.create(topic_id)
        lake.serve_all()
        topics, admin, before = list(lake.served), lake.admin(), lake.term.newest.version
        assert await admin.add_partitions([MorePartitions(each, 3) for each in topics], timeout_ms=5_000) == [None] * 3
        assert {len(each) for each in lake.term.newest.partitions.values()} == {3}
        assert lake.term.newest.version == before + 1
        lake.served.apply(lake.term.newest)
        longer = dict.fromkeys(topics, lambda now: {"retention.ms": "1"})
        assert await admin.alter_configs(longer, changed_by="test", validate_only=False) == {}
        assert [row.config for row in lake.store.load_topics()] == [{"retention.ms": "1"}] * 3
        assert lake.term.newest.version == before + 2
        assert await admin.delete_all(topics, timeout_ms=5_000) == [None] * 3
        assert lake.topics() == (set(), set())
        assert lake.term.newest.version == before + 3

    asyncio.run(run())


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_that_has_gone_takes_no_other_of_its_request_with_it(validate_only: bool) -> None:
    """It was deleted, and created again, since the request looked it up."""

    async def run() -> None:
        lake = Lake()
        await lake.register(0)
        for topic_id in (LIVE, ROW_ONLY):
            lake.create(topic_id)
        lake.serve_all()
        admin, (first, second) = lake.admin(), list(lake.served)
        again = replace(first, topic_id=UUID(int=77))
        lake.store.delete_topics([str(first.topic_id)])
        lake.store.create_topics([TopicRow(first.name, str(again.topic_id), 1, {}, 0)])
        await lake.term.controller.change(partial(without_topics, [first.topic_id]))
        lake.served.apply(lake.term.newest, gone=[first])
        lake.add_version(again.topic_id)
        lake.served.apply(lake.term.newest, [again])
        wanted = [MorePartitions(first, 2), MorePartitions(second, 2)]
        gone, added = await admin.add_partitions(wanted, timeout_ms=5_000, validate_only=validate_only)
        assert isinstance(gone, UnknownTopicOrPartitionError)
        assert added is None
        if not validate_only:
            lake.served.apply(lake.term.newest)
        altered = dict.fromkeys((first, second), lambda now: {"retention.ms": "1"})
        refused = await admin.alter_configs(altered, changed_by="test", validate_only=validate_only)
        assert [type(each) for each in refused.values()] == [UnknownTopicOrPartitionError]
        rows = {row.topic: row for row in lake.store.load_topics()}
        assert rows[first.name] == TopicRow(first.name, str(again.topic_id), 1, {}, 0)
        assert (rows[second.name].partitions, rows[second.name].config) == (
            (1, {}) if validate_only else (2, {"retention.ms": "1"})
        )
        if not validate_only:
            assert await admin.delete_all([first, second], timeout_ms=5_000) == [None, None]
            assert [row.topic_id for row in lake.store.load_topics()] == [str(again.topic_id)]

    asyncio.run(run())


def test_topics_that_are_left_by_one_change_are_removed_by_one() -> None:
    async def run() -> None:
        lake = Lake()
        ids = [UUID(int=number) for number in range(20, 25)]
        for topic_id in ids:
            lake.add_version(topic_id)
        version = lake.term.newest.version
        await lake.tables.bring_together()
        assert lake.topics() == (set(), set())
        assert lake.term.newest.version == version + 1

    asyncio.run(run())


@pytest.mark.parametrize("assignments", [None, [[0, 1]]])
def test_a_topic_whose_partitions_cannot_be_placed_takes_no_other_with_it(
    assignments: list[list[int]] | None,
) -> None:
    """Its broker goes between the two commits. It gets them later, as its row has them."""

    async def run() -> None:
        lake, later = Lake(), []
        await lake.register(0, 1)
        lake.create(LIVE, 0)
        lake.create(ROW_ONLY, 0, 1)
        lake.serve_all()
        gone = {**lake.term.newest.brokers}
        del gone[1]

        def lose_a_broker(step: ControllerStep) -> None:
            if step is ControllerStep.ROWS_GROWN:
                lake.term.store.commit(replace(lake.term.newest, version=lake.term.newest.version + 1, brokers=gone))

        admin = lake.admin(lose_a_broker, lambda delay_ms, action: later.append(action))
        alone, both = (lake.served.find_id(each) for each in (LIVE, ROW_ONLY))
        wanted = [MorePartitions(both, 2, assignments), MorePartitions(alone, 2)]
        refused, added = await admin.add_partitions(wanted, timeout_ms=5_000)
        assert added is None
        if assignments is None:
            assert isinstance(refused, InvalidReplicationFactorError)
        else:
            assert refused is None  # the one of its brokers that is left leads it
            return
        assert {len(each) for each in lake.term.newest.partitions.values()} == {1, 2}
        await lake.register(0, 1)
        later[-1]()
        await admin.wait()
        assert {len(each) for each in lake.term.newest.partitions.values()} == {2}

    asyncio.run(run())


def test_partitions_that_cannot_be_placed_hold_up_nothing_else() -> None:
    async def run() -> None:
        lake = Lake()
        await lake.register(0)
        lake.create(LIVE, 0, 1)
        (row,) = lake.store.load_topics()
        lake.store.alter_topics([replace(row, partitions=2)])
        await lake.tables.bring_together()
        assert lake.tables.are_together
        assert len(lake.term.newest.partitions[LIVE]) == 1
        await lake.register(0, 1)
        await lake.tables.bring_together()
        assert len(lake.term.newest.partitions[LIVE]) == 2

    asyncio.run(run())


@pytest.mark.parametrize("count", [1, 4])
def test_how_many_partitions_a_topic_may_have_is_no_answer_of_a_deposed_controller(count: int) -> None:
    """Neither that it has as many, nor that it may have them."""

    async def run() -> None:
        lake = Lake()
        await lake.register(0)
        lake.create(LIVE)
        topic, admin = lake.serve(), lake.admin()
        growing = partial(admin.add_partitions, [MorePartitions(topic, count)], timeout_ms=1_000, validate_only=True)
        (refused,) = await growing()
        assert isinstance(refused, InvalidPartitionsError) == (count == 1)
        lake.elect(1)
        with pytest.raises(NotControllerError):
            await growing()

    asyncio.run(run())


def test_partitions_that_cannot_be_placed_are_tried_again() -> None:
    """As those of the first broker that starts after all have ended: it is fenced until it listens."""

    async def run() -> None:
        lake = Lake()
        lake.create(LIVE, 0, 1)
        lake.store.alter_topics([replace(lake.store.load_topics()[0], partitions=2)])
        later: list[Callable[[], None]] = []
        admin = lake.admin(later=lambda delay_ms, action: later.append(action))
        for tries in range(1, 4):
            await (admin.settler.settle() if tries == 1 else admin.wait())
            assert len(later) == tries
            assert len(lake.term.newest.partitions[LIVE]) == 1
            if tries == 3:
                await lake.register(0, 1)
            later[-1]()
        await admin.wait()
        assert len(later) == 3
        assert len(lake.term.newest.partitions[LIVE]) == 2

    asyncio.run(run())


def test_topics_that_cannot_be_brought_together_are_tried_once_at_a_time() -> None:
    """A topic of a delay that cannot be created would be tried by the clean-up after it, and that of this, and so on."""

    async def run() -> None:
        lake = Lake()
        await lake.register(0)
        lake.create(LIVE)
        lake.serve(**{"delay.levels": "5s"})
        tries, later = [], []

        def fail(step: ControllerStep) -> None:
            if step is ControllerStep.ROWS_ADDED:
                tries.append(step)
                raise KafkaStorageError("fails on purpose")

        admin = lake.admin(fail, lambda delay_ms, action: later.append(action))
        for number in (1, 2):
            await admin.settler.settle()
            assert len(tries) == number
            assert later
        assert len(later) == 1

    asyncio.run(run())


Work = Callable[[], Awaitable[object]]


def changes_of(lake: Lake, admin: TopicAdmin, topic: Topic, *, validate_only: bool = False) -> dict[str, Work]:
    """Each change of a topic."""
    create, settings = NewTopic("new", replication_factor=1), {"retention.ms": "1"}
    return {
        "create": lambda: admin.create_all([create], timeout_ms=5_000, validate_only=validate_only),
        "add partitions": lambda: admin.add_partitions(
            [MorePartitions(topic, 2)], timeout_ms=5_000, validate_only=validate_only
        ),
        "alter": lambda: admin.alter_configs(
            {topic: lambda now: settings}, changed_by="test", validate_only=validate_only
        ),
        "delete": lambda: admin.delete_all([topic], timeout_ms=5_000),
    }


@pytest.mark.exhaustive
@pytest.mark.parametrize("change", ["create", "add partitions", "alter", "delete"])
def test_a_change_whose_version_was_not_committed_in_time_is_finished_or_undone_later(change: str) -> None:
    """Another change holds the store up once the row is written, and this one is given up before its version is begun."""

    async def run() -> None:
        lake = Lake(timeout_ms=200)
        await lake.register(0)
        lake.create(LIVE)
        topic, later, loop = lake.serve(), [], asyncio.get_running_loop()
        admin = lake.admin(later=lambda delay_ms, action: later.append(action))
        other: list[Future[object]] = []

        def hold_up() -> None:
            lake.store.changed = lambda: None
            lake.term.slow.acquire()
            other.append(
                asyncio.run_coroutine_threadsafe(lake.term.controller.change(lake.term.set("other"), []), loop)
            )
            assert lake.term.is_held_up.wait(5)

        lake.store.changed = hold_up
        with pytest.raises(RequestTimedOutError):
            await changes_of(lake, admin, topic)[change]()
        rows, versions = lake.topics()
        assert (rows != versions) == (change in ("create", "delete"))
        lake.term.slow.release()
        lake.term.timeout_ms = 5_000
        with contextlib.suppress(RequestTimedOutError):
            await asyncio.wrap_future(other[0])
        assert len(later) == 1
        later[0]()
        await admin.wait()
        expected = set() if change == "delete" else {LIVE}
        assert lake.topics() == (expected, expected)
        for row in lake.store.load_topics():
            assert row.partitions == len(lake.term.newest.partitions[LIVE]) == (2 if change == "add partitions" else 1)
        assert [row.config for row in lake.term.rows] == {"alter": [{"retention.ms": "1"}], "add partitions": [{}]}.get(
            change, []
        )

    asyncio.run(run())


@pytest.mark.parametrize("change", ["create", "add partitions", "alter"])
def test_what_may_be_changed_is_no_answer_of_a_deposed_controller(change: str) -> None:
    async def run() -> None:
        lake = Lake()
        await lake.register(0)
        lake.create(LIVE)
        topic, admin = lake.serve(), lake.admin()
        validate = changes_of(lake, admin, topic, validate_only=True)[change]
        await validate()
        lake.elect(1)
        for _ in range(2):
            with pytest.raises(NotControllerError):
                await validate()

    asyncio.run(run())


@pytest.mark.parametrize("new", [NewTopic("topic-1"), NewTopic("new", replication_factor=2)], ids=["exists", "too few"])
def test_why_a_topic_is_not_created_is_no_answer_of_a_deposed_controller(new: NewTopic) -> None:
    async def run() -> None:
        lake = Lake()
        await lake.register(0)
        lake.create(LIVE)
        lake.serve()
        admin = lake.admin()
        (refused,) = await admin.create_all([new], timeout_ms=5_000)
        assert isinstance(refused, TopicAlreadyExistsError | InvalidReplicationFactorError)
        lake.elect(1)
        for _ in range(2):
            with pytest.raises(NotControllerError):
                await admin.create_all([new], timeout_ms=5_000)

    asyncio.run(run())


def test_a_deposed_controller_removes_no_topic_of_its_successor() -> None:
    async def run() -> None:
        lake = Lake()
        lake.create_by_another()
        for _ in range(2):
            with pytest.raises(NotControllerError):
                await lake.tables.bring_together()
            assert lake.topics() == ({LIVE}, {LIVE})

    asyncio.run(run())


@pytest.mark.parametrize("is_elected_again", [True, False])
def test_a_controller_that_is_deposed_while_it_reads_the_rows_removes_none(*, is_elected_again: bool) -> None:
    async def run() -> None:
        lake = Lake()

        def depose() -> None:
            lake.store.reading = lambda: None
            lake.create_by_another()
            if is_elected_again:
                lake.elect(0)
                lake.term.controller.resign()
                lake.term.controller.activate(lake.term.newest)

        lake.store.reading = depose
        with pytest.raises(NotControllerError):
            await lake.tables.bring_together()
        assert not lake.tables.are_together
        assert lake.topics() == ({LIVE}, {LIVE})
        if is_elected_again:
            await lake.tables.bring_together()
            assert lake.topics() == ({LIVE}, {LIVE})

    asyncio.run(run())


def test_a_deposed_controller_changes_no_row() -> None:
    async def run() -> None:
        lake = Lake()
        assert await lake.tables.change_rows(lambda store, epoch: lake.add_row(ROW_ONLY)) == 1
        lake.create_by_another()
        for _ in range(2):
            with pytest.raises(NotControllerError):
                await lake.tables.change_rows(lambda store, epoch: store.delete_topics([str(LIVE)], epoch))
        assert lake.topics() == ({LIVE, ROW_ONLY}, {LIVE})

    asyncio.run(run())


def test_a_creation_does_not_go_on_in_a_later_term() -> None:
    """The controller in between has removed the row, as that of an unfinished creation: the topic would vanish after the answer."""

    async def run() -> None:
        lake = Lake()

        def lose_a_term(step: ControllerStep) -> None:
            if step is ControllerStep.ROWS_ADDED:
                lake.elect(1)
                (row,) = lake.store.load_topics()
                lake.store.delete_topics([row.topic_id])
                lake.elect(0)
                lake.term.controller.resign()
                lake.term.controller.activate(lake.term.newest)

        await lake.register(0)
        admin = lake.admin(lose_a_term)
        with pytest.raises(NotControllerError):
            await admin.create(NewTopic("new"), timeout_ms=5_000)
        assert lake.topics() == (set(), set())

    asyncio.run(run())


def test_a_topic_that_exists_is_one_of_the_newest_version() -> None:
    async def run() -> None:
        lake = Lake()
        lake.add_row(ROW_ONLY)
        for _ in range(2):
            await lake.tables.require_together()
        lake.tables.are_together = False
        lake.store.fail_next = [KafkaStorageError("fails on purpose")]
        with pytest.raises(KafkaStorageError, match="an earlier change may have yet to be finished: fails on purpose"):
            await lake.tables.require_together()
        await lake.tables.require_together()
        assert lake.topics() == (set(), set())
        lake.create_by_another()
        with pytest.raises(NotControllerError):
            await lake.tables.require_together()

    asyncio.run(run())


def test_settings_that_do_not_change_are_those_of_the_newest_version() -> None:
    async def run() -> None:
        lake = Lake()
        admin, topic = lake.admin(), topic_of(TopicRow("topic", str(LIVE), 1, {}, 0), SETTINGS)

        async def alter() -> None:
            await admin.alter_configs({topic: lambda now: now}, changed_by="test", validate_only=False)

        await alter()
        lake.elect(1)
        for _ in range(2):
            with pytest.raises(NotControllerError):
                await alter()
        lake.term.elect()
        await alter()
        assert lake.topics() == (set(), set()), "nothing is written"

    asyncio.run(run())


@pytest.mark.parametrize("change", ["create", "add partitions", "alter", "delete"])
def test_each_change_of_a_row_has_the_epoch_of_the_controller(change: str) -> None:
    async def run() -> None:
        lake = Lake()
        await lake.register(0)
        lake.create(LIVE)
        (row,) = lake.store.load_topics()
        topic, admin = lake.serve(), lake.admin()
        lake.store.claim_topics(2)  # a successor, of which the control store does not tell yet
        with pytest.raises(NotControllerError):
            await changes_of(lake, admin, topic)[change]()
        assert lake.store.load_topics() == [row]

    asyncio.run(run())


@pytest.mark.exhaustive
def test_a_creation_waits_for_its_logs_as_long_as_its_request_asked_to() -> None:
    """With thousands of partitions that takes longer than `request.timeout.ms`."""

    async def run() -> None:
        lake = Lake(timeout_ms=100)
        await lake.register(0)
        lake.term.may_follow.clear()
        creating = asyncio.ensure_future(lake.admin().create_all([NewTopic("large")], timeout_ms=60_000))
        while not lake.term.newest.partitions:
            await asyncio.sleep(0)
        with pytest.raises(RequestTimedOutError):
            await lake.term.controller.confirm()
        assert not creating.done()
        lake.serve_all()
        lake.term.may_follow.set()
        (created,) = await creating
        assert isinstance(created, Creation) and created.topic.name == "large"

    asyncio.run(run())
