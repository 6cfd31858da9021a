"""What other processes do in the tests of the metadata: started with `spawn`, so they share nothing with the test."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from metadata_rows import partition_row, published, segment_row, topic_row

from kafkalake.clock import SystemClock
from kafkalake.errors import KafkaLakeError, KafkaStorageError, TopicAlreadyExistsError
from kafkalake.metadata import lease
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.delta_table import OpenDeltaTable, TableChange

SPAWN = multiprocessing.get_context("spawn")


def hold_lease(lake: Path, pipe: Connection) -> None:
    """Acquire the lease of broker 0, say how that went, and hold it until told to release it."""
    try:
        held = lease.acquire(DeltaMetadataStore(lake), lake, 0, "127.0.0.1", 9092, SystemClock())
    except KafkaLakeError as error:
        pipe.send(str(error))
        return
    pipe.send("held")
    pipe.recv()
    held.release()
    pipe.send("released")


def create_topics(lake: Path, names: Sequence[str], topic_id: str, pipe: Connection) -> None:
    """Create the topics, each as one of several writers; answer which ones this writer got."""
    store = DeltaMetadataStore(lake)
    pipe.send("ready")
    pipe.recv()
    won = []
    for name in names:
        try:
            store.create_topics([topic_row(name, topic_id=topic_id)])
            won.append(name)
        except TopicAlreadyExistsError:
            pass
    pipe.send(won)


def publish_often(lake: Path, leader: int, times: int, pipe: Connection) -> None:
    """Publish `times` times as one of several leaders, each time with one more segment."""
    store = DeltaMetadataStore(lake)
    pipe.send("ready")
    pipe.recv()
    for version in range(times):
        rows = [partition_row(partition=leader, leader=leader, end=version)]
        sealed = [segment_row(partition=leader, base=version * 100, broker=leader)]
        store.publish(published(version, rows, sealed, leader=leader))
    pipe.send("done")


def die_while_publishing(lake: Path, at_commit: int, before: bool) -> None:
    """Publish version 1 and be killed before or after its commit number `at_commit` (0: segments, 1: partitions)."""
    store = DeltaMetadataStore(lake)
    commit = OpenDeltaTable.commit
    commits = 0

    def commit_and_die(table: OpenDeltaTable, change: TableChange, *, durable: bool = False) -> None:
        nonlocal commits
        if before and commits == at_commit:
            os.kill(os.getpid(), signal.SIGKILL)
        commit(table, change, durable=durable)
        if not before and commits == at_commit:
            os.kill(os.getpid(), signal.SIGKILL)
        commits += 1

    OpenDeltaTable.commit = commit_and_die  # type: ignore[method-assign]
    store.publish(published(1, [partition_row(end=200)], [segment_row(base=100)]))


def publish_on_a_full_disk(lake: Path, pipe: Connection) -> None:
    """No file of this process may grow: every write fails, as on a full disk. Then there is room again."""
    store = DeltaMetadataStore(lake)
    store.publish(published(0, [partition_row(end=100)], [segment_row(base=0)]))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    outcome = []
    for write in (
        lambda: store.publish(published(1, [partition_row(end=200)], [segment_row(base=100)])),
        lambda: store.create_topics([topic_row()]),
    ):
        try:
            write()
            outcome.append("written")
        except KafkaStorageError:
            outcome.append("refused")
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    store.publish(published(2, [partition_row(end=200)], [segment_row(base=100)]))
    store.create_topics([topic_row()])
    pipe.send(outcome)
