"""How a job replaces sealed segments: with the broker up, which follows at its next publish, or with none.

The new segments are written beside the old ones first, as files of a higher generation, and forced to the disk. One commit
to `segments` then makes them count: readers that plan afterwards read them, those that planned before go on with the old
files, which are kept for `file.delete.delay.ms`. A job that dies before the commit has changed nothing; what it left is
found by name (`storage/generations.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafkalake.clock import Clock
from kafkalake.metadata.lease import running_brokers
from kafkalake.metadata.store import MetadataStore
from kafkalake.metadata.tables.schemas import SegmentRow


def swap(lake: Path, store: MetadataStore, old: Sequence[SegmentRow], new: Sequence[SegmentRow], clock: Clock) -> int:
    """Have `new` count in place of `old`, which are whole segments of the same ranges; the version of `segments` that says so.

    The files of `new` must be on the disk. Raises `SegmentsChangedError` where `old` is not there any more, and nothing is
    changed; `KafkaStorageError`.
    """
    version = store.swap_segments(old, new)
    running = running_brokers(lake, store.load_brokers(), clock.now_ms())
    for leader in sorted({leader_of(row) for row in old} - running):
        store.stamp_partitions(leader)  # a broker that runs publishes itself
    return version


def leader_of(row: SegmentRow) -> int:
    """The broker in whose directory a segment lies: `logs/<broker id>/...`."""
    return int(row.path.split("/")[1])
