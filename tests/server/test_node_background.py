"""What runs in the background of a broker goes on after any error, and changes of topics whose outcome Delta does not tell."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from kafka_reference import free_port

from kafkalake.broker.admin.topic_creation import Creation
from kafkalake.broker.admin.topic_tables import TopicTables
from kafkalake.broker.controller.controller import Controller
from kafkalake.broker.controller.membership import Membership
from kafkalake.broker.groups.offset_removal import OffsetRemoval
from kafkalake.broker.partitions import scheduler
from kafkalake.broker.partitions.isr_changes import IsrChanges
from kafkalake.broker.partitions.log_directory import LogDirectory
from kafkalake.broker.partitions.new_topic import MorePartitions, NewTopic
from kafkalake.broker.partitions.rewritten_segments import RewrittenSegments
from kafkalake.broker.partitions.topic_rows import overrides_as_text
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.publishing.lake_publisher import LakePublisher
from kafkalake.broker.publishing.partitions import PartitionReporter
from kafkalake.broker.staged.service import StagedAppends
from kafkalake.broker.transactions.expiry import Expiry
from kafkalake.broker.transactions.orphans import Orphans
from kafkalake.errors import CoordinatorNotAvailableError, InvalidReplicaAssignmentError, KafkaStorageError
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.delta_table import OpenDeltaTable
from kafkalake.metadata.tables.schemas import TopicRow
from kafkalake.process.node import Node
from kafkalake.process.upkeep import Upkeep
from kafkalake.server.acceptor import Acceptor
from kafkalake.storage.log import Log

pytestmark = pytest.mark.exhaustive

TIMEOUT_MS = 20_000


@asynccontextmanager
async def running(lake: Path, **settings: str) -> AsyncIterator[Node]:
    pairs = {name.replace("_", "."): value for name, value in settings.items()}
    node = Node(lake, {"listeners": f"PLAINTEXT://127.0.0.1:{free_port()}", **pairs})
    try:
        await node.start()
        yield node
    finally:
        await node.stop()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(TIMEOUT_MS / 1000):
        while not condition():
            await asyncio.sleep(0.01)


STEPS = {
    "publishing": (LakePublisher, "_round"),
    "changes by jobs": (PartitionReporter, "_look_for_jobs"),
    "partitions to be compared again": (PartitionReporter, "_compare_unread"),
    "upkeep": (Upkeep, "_look_after"),
    "flush": (Topics, "flushed_by_time"),
    "idle connections": (Acceptor, "_check_idle"),
    "expiry of offsets": (OffsetRemoval, "expire"),
    "expiry of transactional ids": (Expiry, "expire"),
    "retention": (Log, "enforce_retention"),
    "maintenance": (DeltaMetadataStore, "maintain"),
    "heartbeat": (Membership, "_beat"),
    "sessions": (Controller, "fence_expired"),
    "image": (Membership, "_look_for_versions"),
    "isr": (IsrChanges, "propose_shrinks"),
    "leader balance": (Membership, "_rebalance"),
    "orphaned transactions": (Orphans, "look"),
    "rewritten segments": (RewrittenSegments, "look"),
    "offline replicas": (Upkeep, "_reopen_failed"),
    "delayed metrics": (Upkeep, "_log_delayed"),
    "staged appends": (StagedAppends, "recover"),
}
"""Of each task that runs in the background: a step of it that is made to fail."""


def test_every_task_in_the_background_goes_on_after_any_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = dict.fromkeys(STEPS.values(), 0)

    def fail_twice(place: tuple[type, str]) -> None:
        original = getattr(*place)

        def step(*arguments: Any, **named: Any) -> Any:
            calls[place] += 1
            if calls[place] in (2, 3):
                raise RuntimeError("injected")
            return original(*arguments, **named)

        monkeypatch.setattr(*place, step)

    for place in calls:
        fail_twice(place)
    for interval in ("UPKEEP", "REWRITTEN", "REOPEN", "DELAYED"):
        monkeypatch.setattr(f"kafkalake.process.upkeep.{interval}_INTERVAL_MS", 10)
    monkeypatch.setattr("kafkalake.broker.controller.membership.LOOK_INTERVAL_MS", 10)
    monkeypatch.setattr("kafkalake.broker.publishing.partitions._AGAIN_INTERVAL_MS", 10)
    monkeypatch.setattr("kafkalake.broker.staged.service.RECOVERY_INTERVAL_MS", 10)
    monkeypatch.setattr(scheduler, "PAUSE_MS_MIN", 10)

    async def scenario() -> None:
        short = {"metadata_publish_interval_ms": "10"}
        short |= {"log_initial_task_delay_ms": "0", "log_retention_check_interval_ms": "10"}
        short |= {"metadata_maintenance_interval_ms": "100", "connections_max_idle_ms": "200"}
        short |= {"broker_heartbeat_interval_ms": "10", "replica_lag_time_max_ms": "10"}
        short |= {"leader_imbalance_check_interval_seconds": "1"}
        short |= {"offsets_retention_check_interval_ms": "10"}
        short |= {"transaction_remove_expired_transaction_cleanup_interval_ms": "10"}
        short |= {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "10"}
        async with running(tmp_path / "lake", **short) as node:
            assert node.broker is not None
            assert set(node.broker.scheduler.names) == set(STEPS)
            await node.broker.topic_admin.create(NewTopic("clicks"), timeout_ms=TIMEOUT_MS)
            await until(lambda: all(count > 4 for count in calls.values()))
            assert set(node.broker.scheduler.names) == set(STEPS)

    asyncio.run(scenario())


def test_the_upkeep_of_many_partitions_lets_requests_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []
    turn = 0
    monkeypatch.setattr("kafkalake.process.upkeep.UPKEEP_INTERVAL_MS", 10)
    monkeypatch.setattr("kafkalake.run_blocking.TURN_NS", 0)
    monkeypatch.setattr(Log, "expire_producers", lambda log: turns.append(turn))

    async def scenario() -> None:
        nonlocal turn
        async with running(tmp_path / "lake") as node:
            assert node.broker is not None
            await node.broker.topic_admin.create(NewTopic("clicks", partitions=250), timeout_ms=TIMEOUT_MS)
            turns.clear()
            while len(turns) < 1_000:
                turn += 1
                await asyncio.sleep(0)
            assert max(Counter(turns).values()) == 1  # turns are not counted while the broker closes

    asyncio.run(scenario())


# Changes of topics whose outcome Delta does not tell.


class UnreliableTable:
    """`topics` of a store: from `break_it` on commits are written, then nothing can be read, `failures` times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failures = 0
        self.written = True
        commit, refresh = OpenDeltaTable._commit_files, OpenDeltaTable.refresh

        def commit_files(table: OpenDeltaTable, *arguments: Any) -> None:
            if table.path.name != "topics" or not self.failures:
                commit(table, *arguments)
                return
            if self.written:
                commit(table, *arguments)
            raise OSError(5, "Input/output error")

        def fail_to_refresh(table: OpenDeltaTable) -> None:
            if table.path.name == "topics" and self.failures and not self._is_first(table):
                self.failures -= 1
                raise KafkaStorageError("cannot read the log")
            refresh(table)

        self._seen = 0
        monkeypatch.setattr(OpenDeltaTable, "_commit_files", commit_files)
        monkeypatch.setattr(OpenDeltaTable, "refresh", fail_to_refresh)
        monkeypatch.setattr(OpenDeltaTable, "refresh_if_outdated", fail_to_refresh)
        monkeypatch.setattr(OpenDeltaTable, "refresh_if_outdated", lambda table: table.refresh())

    def _is_first(self, table: OpenDeltaTable) -> bool:
        """The look before the commit succeeds."""
        self._seen += 1
        return self._seen == 1

    def break_it(self, *, failures: int, written: bool) -> None:
        self.failures, self.written, self._seen = failures, written, 0


def served(node: Node) -> list[str]:
    assert node.broker is not None
    return sorted(node.broker.topics.names())


def in_delta(lake: Path) -> list[str]:
    return [row.topic for row in DeltaMetadataStore(lake, create=False).load_topics()]


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("failures", [1, 4])
def test_a_topic_is_served_exactly_where_delta_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, written: bool
) -> None:
    """The outcome of a commit is not known, once, and again: what is written to a topic is never gone at the next start."""
    lake = tmp_path / "lake"
    monkeypatch.setattr("kafkalake.broker.admin.topic_settler._DELAY_MS_MAX", 250)

    async def scenario() -> None:
        table = UnreliableTable(monkeypatch)
        async with running(lake) as node:
            assert node.broker is not None
            admin = node.broker.topic_admin

            async def delete(topic: Topic) -> None:
                await admin.delete_all([topic], timeout_ms=TIMEOUT_MS)

            for _ in range(2):
                await admin.create(NewTopic("kept"), timeout_ms=TIMEOUT_MS)
                table.break_it(failures=failures, written=written)
                with pytest.raises(KafkaStorageError):
                    await admin.create(NewTopic("new"), timeout_ms=TIMEOUT_MS)
                await until(lambda: not table.failures)
                await until(lambda: in_delta(lake) == ["kept"])
                assert served(node) == ["kept"]
                topic = await admin.create(NewTopic("new"), timeout_ms=TIMEOUT_MS)
                assert (await admin.create(NewTopic("other"), timeout_ms=TIMEOUT_MS)).topic_id != topic.topic_id
                table.break_it(failures=failures, written=written)
                try:
                    await delete(topic)
                except KafkaStorageError:
                    assert failures > 1 or not written
                await until(lambda: not table.failures)
                await until(lambda: served(node) == in_delta(lake))
                assert served(node) == (["kept", "other"] if written else ["kept", "new", "other"])
                for name in served(node):
                    await delete(node.broker.topics.find(name))
            await admin.create(NewTopic("kept"), timeout_ms=TIMEOUT_MS)
        async with running(lake) as node:
            assert served(node) == in_delta(lake) == ["kept"]

    asyncio.run(scenario())


def test_a_topic_that_cannot_be_served_nor_deleted_takes_none_of_the_others_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log cannot be opened, and the table cannot be changed in the moment after."""
    open_log, delete = LogDirectory.open, TopicTables.delete
    faults = ["the log", "the table"]

    def open_or_fail(logs: LogDirectory, name: str, *arguments: Any, **options: Any) -> Log:
        if name == "broken" and "the log" in faults:
            faults.remove("the log")
            raise KafkaStorageError("no descriptor is left")
        return open_log(logs, name, *arguments, **options)

    async def delete_or_fail(tables: TopicTables, topic_id: UUID) -> None:
        if "the table" in faults:
            faults.remove("the table")
            raise KafkaStorageError("Delta is away")
        await delete(tables, topic_id)

    monkeypatch.setattr(LogDirectory, "open", open_or_fail)
    monkeypatch.setattr(TopicTables, "delete", delete_or_fail)

    async def scenario() -> None:
        async with running(tmp_path / "lake") as node:
            assert node.broker is not None
            admin = node.broker.topic_admin
            wanted = [NewTopic(name) for name in ("first", "broken", "last")]
            first, broken, last = await admin.create_all(wanted, timeout_ms=TIMEOUT_MS)
            assert isinstance(broken, KafkaStorageError)
            assert not faults
            assert [isinstance(each, Creation) for each in (first, last)] == [True, True]
            assert served(node) == in_delta(tmp_path / "lake") == ["broken", "first", "last"]
            await admin.delete_all([node.broker.topics.topic("broken")], timeout_ms=TIMEOUT_MS)
            created = await admin.create(NewTopic("broken"), timeout_ms=TIMEOUT_MS)
            assert not created.replicas[0].is_offline

    asyncio.run(scenario())


def partitions_of(node: Node) -> dict[str, int]:
    assert node.broker is not None
    return {each.name: len(each.registrations) for each in node.broker.topics}


def rows_of(lake: Path) -> dict[str, TopicRow]:
    return {row.topic: row for row in DeltaMetadataStore(lake, create=False).load_topics()}


async def alter(node: Node, topic: Topic, **settings: str) -> None:
    """Give a topic these settings and no others."""
    assert node.broker is not None
    now = {name.replace("_", "."): value for name, value in settings.items()}
    await node.broker.topic_admin.alter_configs({topic: lambda before: now}, changed_by="test", validate_only=False)


def test_a_broker_that_is_alone_finishes_or_undoes_what_a_kill_has_left_in_one_table(tmp_path: Path) -> None:
    """The row of a topic that was being created, and one of a topic that was about to have more partitions."""
    lake = tmp_path / "lake"

    async def restart(count: int) -> None:
        async with running(lake) as node:
            assert node.broker is not None
            await until(lambda: partitions_of(node) == {"kept": count})
            await until(lambda: {name: row.partitions for name, row in rows_of(lake).items()} == partitions_of(node))
            await alter(node, node.broker.topics.topic("kept"), retention_ms=str(count))
            assert rows_of(lake)["kept"].config == {"retention.ms": str(count)}

    async def scenario() -> None:
        async with running(lake) as node:
            assert node.broker is not None
            await node.broker.topic_admin.create(NewTopic("kept"), timeout_ms=TIMEOUT_MS)
        for _ in range(2):
            store, kept = DeltaMetadataStore(lake, create=False), rows_of(lake)["kept"]
            store.create_topics([replace(kept, topic="new", topic_id=str(uuid4()))])
            store.alter_topics([replace(kept, partitions=kept.partitions + 2)])
            await restart(kept.partitions + 2)

    asyncio.run(scenario())


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("failures", [1, 4])
def test_a_change_of_a_topic_is_served_exactly_where_delta_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int, written: bool
) -> None:
    """The outcome of a commit is not known, once, and again: more partitions, then other settings."""
    lake = tmp_path / "lake"
    monkeypatch.setattr("kafkalake.broker.admin.topic_settler._DELAY_MS_MAX", 250)

    async def scenario() -> None:
        table = UnreliableTable(monkeypatch)

        async def fail(work: Awaitable[object]) -> None:
            table.break_it(failures=failures, written=written)
            with suppress(KafkaStorageError):
                await work
            await until(lambda: not table.failures)

        async with running(lake) as node:
            assert node.broker is not None
            admin = node.broker.topic_admin
            topic = await admin.create(NewTopic("kept"), timeout_ms=TIMEOUT_MS)

            def add_one() -> Awaitable[object]:
                more = MorePartitions(topic, len(topic.registrations) + 1)
                return admin.add_partitions([more], timeout_ms=TIMEOUT_MS)

            for turn in range(2):
                before = len(topic.registrations)
                await fail(add_one())
                await until(lambda: rows_of(lake)["kept"].partitions == len(topic.registrations))
                assert len(topic.registrations) == before + written
                await fail(alter(node, topic, retention_ms=str(turn)))
                await until(lambda: rows_of(lake)["kept"].config == overrides_as_text(topic.overrides))
                assert (overrides_as_text(topic.overrides) == {"retention.ms": str(turn)}) == written
                await add_one()
                await alter(node, topic)
                assert rows_of(lake)["kept"].partitions == len(topic.registrations) == before + written + 1

    asyncio.run(scenario())


def test_replicas_that_are_named_for_partitions_are_checked_when_it_is_their_turn(tmp_path: Path) -> None:
    """A change before may have added some of the partitions, which would have others."""

    async def scenario() -> None:
        async with running(tmp_path / "lake") as node:
            assert node.broker is not None
            admin = node.broker.topic_admin
            topic = await admin.create(NewTopic("grown"), timeout_ms=TIMEOUT_MS)
            (first,), (second,) = await asyncio.gather(
                admin.add_partitions([MorePartitions(topic, 3)], timeout_ms=TIMEOUT_MS),
                admin.add_partitions([MorePartitions(topic, 4, [[0]] * 3)], timeout_ms=TIMEOUT_MS),
            )
            assert first is None
            assert isinstance(second, InvalidReplicaAssignmentError)
            assert partitions_of(node) == {"grown": 3}

    asyncio.run(scenario())


def test_a_topic_whose_creation_has_yet_to_be_undone_is_not_said_to_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client would write to it, and find that it is gone."""
    lake = tmp_path / "lake"
    create, delete = DeltaMetadataStore.create_topics, DeltaMetadataStore.delete_topics
    failing = {"create": True, "delete": True}

    def create_topics(store: DeltaMetadataStore, rows: Sequence[TopicRow], controller_epoch: int) -> None:
        create(store, rows, controller_epoch)
        if failing["create"]:
            raise KafkaStorageError("whether it was committed is not known")

    def delete_topics(store: DeltaMetadataStore, topic_ids: Collection[str], controller_epoch: int) -> None:
        if failing["delete"]:
            raise KafkaStorageError("nothing is committed")
        delete(store, topic_ids, controller_epoch)

    monkeypatch.setattr(DeltaMetadataStore, "create_topics", create_topics)
    monkeypatch.setattr(DeltaMetadataStore, "delete_topics", delete_topics)

    async def scenario() -> None:
        async with running(lake) as node:
            assert node.broker is not None
            admin = node.broker.topic_admin
            for _ in range(2):
                with pytest.raises(KafkaStorageError):
                    await admin.create(NewTopic("new"), timeout_ms=TIMEOUT_MS)
                failing["create"] = False
            assert (served(node), in_delta(lake)) == ([], ["new"])
            failing["delete"] = False
            await until(lambda: not in_delta(lake))
            await admin.create(NewTopic("new"), timeout_ms=TIMEOUT_MS)
            assert served(node) == in_delta(lake) == ["new"]

    asyncio.run(scenario())


def test_a_journal_topic_whose_creation_is_in_doubt_is_no_coordinator_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients ask again where the coordinator is not available; an unknown topic would be the end of their group."""

    async def scenario() -> None:
        table = UnreliableTable(monkeypatch)
        async with running(tmp_path / "lake", offsets_topic_num_partitions="2") as node:
            assert node.broker is not None
            groups = node.broker.groups
            table.break_it(failures=6, written=True)
            for _ in range(3):  # the last ones while Delta has a topic that is not served
                with pytest.raises(CoordinatorNotAvailableError):
                    await groups.journal.make_ready()
            await until(lambda: not table.failures)
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                while True:
                    try:
                        await groups.journal.make_ready()
                        break
                    except CoordinatorNotAvailableError:
                        await asyncio.sleep(0.01)
            assert served(node) == in_delta(tmp_path / "lake") == ["__consumer_offsets"]

    asyncio.run(scenario())
