"""What three brokers report is published by the one that is the controller: whole transactions, few commits, nothing lost.

Real processes that are really killed, for `WHOLE_S` seconds at random.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.test_brokers_on_one_lake import admin, consume, controller_of, leaders, numbers, produce
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from deltalake import DeltaTable
from kafka_reference import BROKERS, Kafkalake, create_topic, kafkalake_cluster, topic_name
from long_runs import first_of
from waiting import wait_until
from whole_transactions import TransactionLoad, committed_offsets, half_transactions

from kafkalake.broker.publishing.broker_reports import ReportPoint
from kafkalake.broker.publishing.lake_publisher import PublishPoint
from kafkalake.broker.transactions.fault_points import KILL_AT
from kafkalake.metadata import paths
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.data_files import committed_ms

pytestmark = pytest.mark.process

INTERVAL_MS = 300
PARTITIONS = 6
PRODUCERS = 3
TIMEOUT_S = 60.0
SETTINGS = {"metadata.publish.interval.ms": str(INTERVAL_MS)}
KILL_S = float(os.environ.get("WHOLE_S", "6"))
TABLES = (paths.PARTITIONS, paths.SEGMENTS, paths.GROUP_OFFSETS, paths.TRANSACTIONS)


@pytest.fixture(scope="module")
def kill_at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with a file for each broker, that names the step at which it dies."""
    path = tmp_path_factory.mktemp("points")
    for number in range(BROKERS):
        (path / f"{number}").write_text("")
    return path


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, kill_at: Path) -> Iterator[list[Kafkalake]]:
    """Three brokers of one lake. A test leaves them running."""
    environments = [{KILL_AT: str(kill_at / f"{number}")} for number in range(BROKERS)]
    with kafkalake_cluster(tmp_path_factory.mktemp("brokers"), SETTINGS, environments) as cluster:
        yield list(cluster.brokers)


def servers_of(brokers: list[Kafkalake]) -> str:
    return ",".join(each.bootstrap_servers for each in brokers)


def commit_times(lake: Path, table: str) -> list[int]:
    """Return the times of the commits to a table, by version."""
    path = paths.table_path(lake, table)
    entries = sorted((path / "_delta_log").glob("*.json"))
    return [committed_ms(path, int(entry.stem)) for entry in entries]


def stable_offsets(lake: Path, topic: str) -> dict[int, int]:
    """Return the published last stable offsets of a topic."""
    rows = DeltaMetadataStore(lake, create=False).load_partitions()
    return {row.partition: row.last_stable_offset for row in rows if row.topic == topic}


def latest(brokers: list[Kafkalake], topic: str) -> dict[int, int]:
    """Return the last stable offsets of the logs."""
    asked = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(PARTITIONS)}
    client = admin(*brokers)  # which has to live as long as its futures
    found = client.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=10)
    return {each.partition: future.result(TIMEOUT_S).offset for each, future in found.items()}


def wait_until_published(brokers: list[Kafkalake], topic: str) -> dict[int, int]:
    """Wait until Delta has what the logs have, and return the last stable offsets."""

    def is_published() -> bool:
        try:
            return latest(brokers, topic) == stable_offsets(brokers[0].lake, topic)
        except KafkaException:
            return False

    wait_until(is_published, timeout_s=TIMEOUT_S)
    return stable_offsets(brokers[0].lake, topic)


def check_published_once(lake: Path) -> None:
    """Check that no range of a log and no committed offset is in the tables twice."""
    store = DeltaMetadataStore(lake, create=False)
    ends: dict[tuple[str, int], int] = {}
    for row in store.load_segments():
        key = row.topic_id, row.partition
        assert row.base_offset >= ends.get(key, 0), row
        ends[key] = row.next_offset
    offsets = dataset_of(lake, paths.GROUP_OFFSETS)
    keys = [(row["group"], row["topic"], row["partition"], row["journal_offset"]) for row in offsets]
    assert len(keys) == len(set(keys))


def dataset_of(lake: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(paths.table_path(lake, table)).to_pyarrow_table().to_pylist()
    return rows


def new_topic(brokers: list[Kafkalake], name: str) -> str:
    """Create a topic whose partitions are led by all brokers."""
    topic = topic_name(name)
    create_topic(brokers[0], topic, partitions=PARTITIONS)
    wait_until(lambda: set(leaders(brokers[0], topic)) == set(range(BROKERS)), timeout_s=TIMEOUT_S)
    return topic


def check_whole(brokers: list[Kafkalake], topic: str, load: TransactionLoad, first: int) -> None:
    ends = wait_until_published(brokers, topic)
    offsets = committed_offsets(servers_of(brokers), topic, ends)
    assert len(offsets) >= load.committed > 0
    assert all(len(each) == PARTITIONS for each in offsets.values())
    seen, halves = half_transactions(brokers[0].lake, topic, offsets, first)
    print(f"transactions={len(offsets)} versions={seen}")
    assert halves == []
    assert seen > 1
    check_published_once(brokers[0].lake)


@pytest.mark.timeout(300 + 2 * KILL_S)
def test_each_version_shows_whole_transactions_while_brokers_die(brokers: list[Kafkalake]) -> None:
    topic = new_topic(brokers, "whole")
    first = len(commit_times(brokers[0].lake, paths.PARTITIONS))
    load = TransactionLoad(servers_of(brokers), topic, PARTITIONS, producers=PRODUCERS)
    chance = random.Random(7)
    ends = time.monotonic() + KILL_S
    load.start()
    try:
        while time.monotonic() < ends:
            goes_on(load)
            if chance.random() < 0.5:
                shows_more(brokers[0].lake, topic)  # brokers that are killed one after the other show little
            victim = chance.choice(brokers)
            victim.kill()
            victim.start()
        goes_on(load)
    finally:
        load.stop()
    check_whole(brokers, topic, load, first)


def shows_more(lake: Path, topic: str) -> None:
    """Wait until a version shows further records."""
    before = stable_offsets(lake, topic)
    wait_until(lambda: stable_offsets(lake, topic) != before, timeout_s=TIMEOUT_S)


def goes_on(load: TransactionLoad) -> None:
    """Wait for further transactions."""
    before = load.committed
    wait_until(lambda: load.committed > before + 3, timeout_s=TIMEOUT_S)


def test_each_table_is_committed_once_an_interval_under_load_and_not_at_all_without(brokers: list[Kafkalake]) -> None:
    lake, topic = brokers[0].lake, new_topic(brokers, "load")
    load = TransactionLoad(servers_of(brokers), topic, PARTITIONS, producers=3)
    before = {name: len(commit_times(lake, name)) for name in TABLES}
    began_ms = time.time_ns() // 1_000_000

    def commits() -> dict[str, int]:
        return {name: len(commit_times(lake, name)) - before[name] for name in TABLES}

    load.start()
    for number in range(3):
        produce(brokers[number], topic, numbers(500))
        consume(brokers[number], topic, 50, f"{topic}-{number}")
    goes_on(load)
    wait_until(lambda: time.time_ns() // 1_000_000 - began_ms > 10 * INTERVAL_MS)
    load.stop()
    wait_until_published(brokers, topic)
    shown = (paths.PARTITIONS, paths.TRANSACTIONS, paths.GROUP_OFFSETS)
    wait_until(lambda: all(commits()[name] for name in shown), commits, timeout_s=TIMEOUT_S)
    counts = commits()
    ended_ms = time.time_ns() // 1_000_000
    assert all(count <= (ended_ms - began_ms) / INTERVAL_MS + 2 for count in counts.values()), counts
    idle = [len(commit_times(lake, name)) for name in TABLES]

    def is_idle() -> bool:
        """Return whether nothing was committed in the last intervals."""
        nonlocal idle
        time.sleep(5 * INTERVAL_MS / 1000)  # that nothing happens can only be waited for
        before_now, idle = idle, [len(commit_times(lake, name)) for name in TABLES]
        return before_now == idle

    wait_until(lambda: is_idle() and is_idle(), timeout_s=TIMEOUT_S)  # what is late on a busy machine comes in between


CONTROLLERS = [PublishPoint.COMMITTED, *(each for each in PublishPoint if each is not PublishPoint.COMMITTED)]
REPORTING = [ReportPoint.HELD, *(each for each in ReportPoint if each is not ReportPoint.HELD)]


@pytest.mark.parametrize("point", [*first_of(CONTROLLERS, 1), *first_of(REPORTING, 1)])
def test_a_broker_that_dies_at_a_step_of_a_publish_loses_nothing_and_nothing_is_published_twice(
    brokers: list[Kafkalake], kill_at: Path, point: PublishPoint | ReportPoint
) -> None:
    """The controller, at a step of its own, or one of the others, at a step of its report."""
    topic = new_topic(brokers, "step")
    load = TransactionLoad(servers_of(brokers), topic, PARTITIONS, producers=PRODUCERS)
    first = len(commit_times(brokers[0].lake, paths.PARTITIONS))
    load.start()
    try:
        goes_on(load)
        controller = controller_of(brokers)
        is_controllers = isinstance(point, PublishPoint)
        victim = controller if is_controllers else next(each for each in brokers if each is not controller)
        (kill_at / f"{victim.broker_id}").write_text(point.value)
        wait_until(lambda: not all(each.is_running() for each in brokers), timeout_s=TIMEOUT_S)
        (kill_at / f"{victim.broker_id}").write_text("")
        assert not victim.is_running()
        for each in brokers:
            if not each.is_running():
                each.kill()
                each.start()
        goes_on(load)
    finally:
        for file in kill_at.iterdir():
            file.write_text("")
        load.stop()
    consume(brokers[0], topic, 10, topic)
    check_whole(brokers, topic, load, first)


def test_a_controller_that_was_stopped_longer_than_its_session_publishes_nothing_older(
    brokers: list[Kafkalake],
) -> None:
    topic = new_topic(brokers, "stopped")
    first = len(commit_times(brokers[0].lake, paths.PARTITIONS))
    load = TransactionLoad(servers_of(brokers), topic, PARTITIONS, producers=PRODUCERS)
    load.start()
    try:
        goes_on(load)
        wait_until(lambda: any(stable_offsets(brokers[0].lake, topic).values()), timeout_s=TIMEOUT_S)
        controller = controller_of(brokers)
        os.kill(controller.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: controller_of(brokers) is not controller, timeout_s=TIMEOUT_S)
        finally:
            os.kill(controller.pid, signal.SIGCONT)
        goes_on(load)
    finally:
        load.stop()
    assert controller_of(brokers) is not controller
    check_whole(brokers, topic, load, first)
