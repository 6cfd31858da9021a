"""Replaces sealed segments on behalf of jobs, with or without a running broker, which applies the change at its next publish.

The new segments are first written beside the old ones as files of a higher generation, and fsynced. One commit to `segments` then
makes them current. Queries planned later read them. Queries planned earlier continue with the old files, which are kept for
`file.delete.delay.ms`. A job that dies before the commit has changed nothing, and its files are found by name
(`storage/generations.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from kafkalake.clock import Clock
from kafkalake.metadata.lock_file import running_brokers
from kafkalake.metadata.store import BrokerTable, PublishedTables
from kafkalake.metadata.tables.schemas import SegmentRow


class _Tables(BrokerTable, PublishedTables, Protocol): ...


def swap(lake: Path, tables: _Tables, old: Sequence[SegmentRow], new: Sequence[SegmentRow], clock: Clock) -> int:
    """Replace `old` by `new`, whole segments of the same ranges, and return the new version of `segments`.

    The files of `new` must be durable. Raise `SegmentsChangedError` without a change if `old` has changed or is gone,
    `KafkaStorageError` if a commit fails.
    """
    version = tables.swap_segments(old, new)
    running = running_brokers(lake, tables.load_brokers(), clock.now_ms())
    for leader in sorted({row.broker_id for row in old} - running):
        tables.stamp_partitions(leader)  # a running broker publishes itself
    return version
