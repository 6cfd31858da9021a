"""A controller that is stopped between its look at the control store and its commit to `topics` changes nothing of its successor's.

The tables are Delta's, each controller has its own handle of them, as its own process would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest
from broker.controller_term import Term

from kafkalake.broker.admin.topic_tables import TopicTables
from kafkalake.broker.partitions.topic_rows import topic_of
from kafkalake.broker.partitions.topics import Topics
from kafkalake.cluster.image import BrokerRegistration, PartitionRegistration
from kafkalake.cluster.topic_changes import create_topics
from kafkalake.config.layers import Settings
from kafkalake.errors import NotControllerError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.store import TopicTable
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.world import World

THERE, NEW, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
SETTINGS = Settings({}, {}, {})
Change = Callable[[TopicTable, int], None]

T = TypeVar("T")


def row_of(topic_id: UUID, **config: str) -> TopicRow:
    return TopicRow(f"topic-{topic_id.int}", str(topic_id), 1, config, 0)


def create(topic_id: UUID) -> Change:
    return lambda store, epoch: store.create_topics([row_of(topic_id)], epoch)


def delete(topic_id: UUID) -> Change:
    return lambda store, epoch: store.delete_topics([str(topic_id)], epoch)


def alter(topic_id: UUID, **config: str) -> Change:
    return lambda store, epoch: store.alter_topics([row_of(topic_id, **config)], epoch)


CHANGES = {
    "creation": create(NEW),
    "deletion": delete(THERE),
    "settings": alter(THERE, **{"min.insync.replicas": "2"}),
    "partitions": lambda store, epoch: store.alter_topics([replace(row_of(THERE), partitions=2)], epoch),
}


class Broker:
    """A controller of the lake. `topics` are those that it serves, of which no log is open."""

    def __init__(self, lake: Path, first: Term | None = None) -> None:
        self.term = Term() if first is None else Term(broker_id=1, store=first.store)
        self.store = DeltaMetadataStore(lake)
        self.topics = Topics(self.term.newest)
        self.tables = TopicTables(
            self.store,
            self.term.controller,
            self.topics,
            lambda: SETTINGS,
            self._run_blocking,
            World(self.term.clock),
            lambda step: None,
        )
        self.go_on = asyncio.Event()
        self._is_stopped = asyncio.Event()
        self._calls_left: int | None = None

    async def _run_blocking(self, work: Callable[[], T]) -> T:
        if self._calls_left is not None:
            if self._calls_left == 0:
                self._is_stopped.set()
                await self.go_on.wait()
            self._calls_left -= 1
        return await asyncio.to_thread(work)

    async def stop_in(self, work: Awaitable[T], calls: int = 0) -> asyncio.Future[T]:
        """Begin work, and stop once it has made some calls to `topics` and is about to make the next, until `go_on` is set."""
        self._calls_left = calls
        begun = asyncio.ensure_future(work)
        await asyncio.wait_for(self._is_stopped.wait(), 10)
        return begun

    async def create(self, topic_id: UUID) -> None:
        await self.tables.change_rows(create(topic_id))
        partitions = {topic_id: (PartitionRegistration(0, 0, (0,), (0,)),)}
        await self.term.controller.change(lambda image: create_topics(image, partitions, image.topics_version + 1), [])

    @property
    def lake(self) -> tuple[dict[UUID, TopicRow], set[UUID]]:
        """The rows, and the topics of the newest version."""
        return {UUID(row.topic_id): row for row in self.store.load_topics()}, set(self.term.newest.partitions)


@pytest.mark.exhaustive
@pytest.mark.parametrize("claim", ["load", "write"])
@pytest.mark.parametrize("late", CHANGES.values(), ids=list(CHANGES))
def test_a_late_change_of_a_deposed_controller_is_refused(tmp_path: Path, late: Change, claim: str) -> None:
    async def run() -> None:
        first = Broker(tmp_path)
        await first.create(THERE)
        begun = await first.stop_in(first.tables.change_rows(late))
        second = Broker(tmp_path, first.term)
        await (second.tables.bring_together() if claim == "load" else second.create(OTHER))
        before = second.lake
        first.go_on.set()
        for refused in (begun, first.tables.change_rows(late), first.tables.bring_together()):
            with pytest.raises(NotControllerError):
                await refused
        assert not first.term.controller.is_active
        assert second.lake == before

        await second.tables.change_rows(late)  # the client asks the successor
        assert second.lake != before
        first.term.elect()
        with pytest.raises(NotControllerError):
            await second.tables.change_rows(delete(THERE))
        await first.tables.bring_together()
        if THERE in first.lake[0]:
            await first.tables.change_rows(delete(THERE))
        again = replace(row_of(THERE), topic_id=str(UUID(int=9)))
        await first.tables.change_rows(lambda store, epoch: store.create_topics([again], epoch))
        assert first.lake[0][UUID(int=9)] == again

    asyncio.run(run())


@pytest.mark.exhaustive
def test_a_late_cleanup_of_a_deposed_controller_is_refused(tmp_path: Path) -> None:
    """It has read the row of a creation that did not end, which its successor has made a topic since, and is about to delete it."""

    async def run() -> None:
        first = Broker(tmp_path)
        await first.tables.change_rows(create(NEW))
        begun = await first.stop_in(first.tables.bring_together(), calls=2)
        second = Broker(tmp_path, first.term)
        await second.create(NEW)
        first.go_on.set()
        with pytest.raises(NotControllerError):
            await begun
        assert second.lake == ({NEW: row_of(NEW)}, {NEW})

    asyncio.run(run())


@pytest.mark.parametrize("late", CHANGES.values(), ids=list(CHANGES))
@pytest.mark.exhaustive
def test_a_late_change_before_the_successor_has_read_the_rows_is_seen_by_it(tmp_path: Path, late: Change) -> None:
    async def run() -> None:
        first = Broker(tmp_path)
        here = BrokerRegistration(0, 1, UUID(int=5), (), is_fenced=False)
        await first.term.controller.change(lambda now: replace(now, version=now.version + 1, brokers={0: here}))
        await first.create(THERE)
        await first.create(OTHER)
        begun = await first.stop_in(first.tables.change_rows(late))
        second = Broker(tmp_path, first.term)
        for row in second.lake[0].values():
            second.topics.add(topic_of(row, SETTINGS))
        first.go_on.set()
        await begun
        version = second.term.newest.version
        await second.tables.bring_together()
        rows, versions = second.lake
        assert rows.keys() == versions == ({OTHER} if late is CHANGES["deletion"] else {THERE, OTHER})
        followed = version + (late is not CHANGES["creation"])
        assert second.term.newest.version == followed
        is_followed = late in (CHANGES["settings"], CHANGES["partitions"])
        assert second.term.rows == ([rows[THERE]] if is_followed else [])
        assert THERE not in rows or rows[THERE].partitions == len(second.term.newest.partitions[THERE])
        if late is CHANGES["settings"]:
            topic = second.topics.topic("topic-1")
            topic.overrides = topic_of(rows[THERE], SETTINGS).overrides
        await second.tables.bring_together()
        assert second.term.newest.version == followed, "all is as it was found"

    asyncio.run(run())


@pytest.mark.exhaustive
def test_a_term_claims_the_table_once(tmp_path: Path) -> None:
    async def run() -> None:
        broker = Broker(tmp_path)
        log = tmp_path / "metadata" / "topics" / "_delta_log"

        def commits() -> int:
            return len(list(log.glob("*.json")))

        created = commits()
        for _ in range(3):
            await broker.tables.bring_together()
            assert commits() == created + 1
        await broker.create(THERE)
        assert commits() == created + 2
        broker.term.controller.resign()
        broker.term.elect()
        await broker.create(OTHER)  # a change is a claim
        await broker.tables.bring_together()
        assert commits() == created + 3

    asyncio.run(run())
