"""The producers of a partition as its broker has them in memory: the newest snapshot, and the batches after it.

Reads headers only. A broker that is running is not asked, and need not be.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kafkalake.metadata.tables.schemas import SegmentRow
from kafkalake.reader.live_partitions import LivePartition
from kafkalake.reader.opened_segment import open_segment
from kafkalake.reader.read_options import READ_UNCOMMITTED
from kafkalake.reader.snapshot import partition_now
from kafkalake.storage.files import REAL_FILES, read_file
from kafkalake.storage.listing import list_directory
from kafkalake.storage.producer_state import Producers
from kafkalake.storage.replay import replay_headers
from kafkalake.storage.snapshot import Snapshot, decode_snapshot, snapshot_path


def producers_of(lake: Path, partition: LivePartition, sealed: Sequence[SegmentRow], now_ms: int) -> Producers:
    """Return the producers up to the high watermark. `sealed`: the Delta rows of its sealed segments.

    Raise `LakeError` if files of the lake are missing, `CorruptSegmentError` if one is damaged.
    """
    if partition.directory is None:
        return Producers()
    snapshot = partition_now(lake, partition, sealed, READ_UNCOMMITTED)
    newest = _newest(partition.directory, snapshot.end_offset)
    for segment in snapshot.segments:
        if segment.next_offset > newest.offset:
            end = min(segment.next_offset, snapshot.end_offset)
            with open_segment(segment.path, segment.readable_bytes) as reader:
                for messages in reader.messages(max(segment.base_offset, newest.offset), end, 0):
                    replay_headers(messages.headers, newest.producers, newest.offset, now_ms)
    return newest.producers


def _newest(directory: Path, end_offset: int) -> Snapshot:
    offsets = list_directory(REAL_FILES.list(str(directory))).snapshots
    for offset in sorted((each for each in offsets if each <= end_offset), reverse=True):
        try:
            found = decode_snapshot(read_file(REAL_FILES, snapshot_path(str(directory), offset)))
        except FileNotFoundError:
            continue  # a newer one has replaced it
        if found is not None:
            return found
    return Snapshot(0, Producers())
