"""Consumers at the tail get the producer's own bytes only where the log says the same of the records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from contract.wire_client import batch
from faulty_files import FaultyFiles
from leaderships import alone

from kafkalake.broker.partitions.partition import Partition
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.topics import Topic
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.clock import SystemClock
from kafkalake.errors import KafkaStorageError
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.wire.record_batch import decode_produced


def partition_of(log: Log) -> Partition:
    topic = Topic("t", uuid4(), {}, None, 0)
    return Partition(topic, 0, log, WireCache(1 << 20).tail(), alone())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("at_decoding", "at_append", "kept"),
    [
        ("CreateTime", "CreateTime", True),
        ("CreateTime", "LogAppendTime", False),
        ("LogAppendTime", "LogAppendTime", False),
        ("LogAppendTime", "CreateTime", True),
    ],
)
def test_the_timestamp_type_counts_when_the_batch_is_appended(
    tmp_path: Path, at_decoding: str, at_append: str, kept: bool
) -> None:
    """A batch may wait in its queue, behind a flush to the disk, while the topic's setting changes."""
    config = LogConfig(message_timestamp_type=at_decoding)
    log = Log.open(tmp_path, config, SystemClock())
    partition = partition_of(log)
    original = batch([(None, b"x")], timestamp=1_000_000_000_000)
    partition.enqueue(PendingAppend(partition, decode_produced(original), original))
    log.configure(replace(config, message_timestamp_type=at_append))
    partition.commit(partition.append_queued(), [], 0)
    cached = partition.read_tail(0, 1, 1 << 20, first_whole=True)
    assert (cached is not None) is kept


def test_a_batch_that_another_flush_has_discarded_is_not_acknowledged(tmp_path: Path) -> None:
    """`flush.ms` is kept in a thread: it may fail, and discard, between an append and its acknowledgement."""
    files = FaultyFiles()
    log = Log.open(tmp_path, LogConfig(), SystemClock(), files=files)
    partition = partition_of(log)
    original = batch([(None, b"x")])
    partition.enqueue(PendingAppend(partition, decode_produced(original), original))
    appended = partition.append_queued()
    files.failing_syncs = 1
    with pytest.raises(KafkaStorageError):
        log.flush()
    partition.commit(appended, [], 0)
    assert [type(each.result) for each in appended] == [KafkaStorageError]
    assert (log.log_end_offset, partition.read_tail(0, 1, 1 << 20, first_whole=True)) == (0, None)
