"""Consumers at the tail get the producer's own bytes only where the log says the same of the records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from contract.wire_client import batch

from kafkalake.broker.partitions.partition import Partition, PendingAppend
from kafkalake.broker.partitions.topics import Topic
from kafkalake.broker.partitions.wire_cache import WireCache
from kafkalake.clock import SystemClock
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.wire.record_batch import decode_produced


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
    partition = Partition(
        Topic("t", uuid4(), {}, None, 0),
        0,  # type: ignore[arg-type]
        log,
        WireCache(1 << 20).tail(),
    )
    original = batch([(None, b"x")], timestamp=1_000_000_000_000)
    partition.enqueue(PendingAppend(partition, decode_produced(original), original))
    log.configure(replace(config, message_timestamp_type=at_append))
    partition.commit(partition.append_queued())
    cached = partition.read_tail(0, 1, 1 << 20, first_whole=True)
    assert (cached is not None) is kept
