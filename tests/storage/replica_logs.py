"""What the tests of replicas share: a leader's log with every kind of content, and its copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from manual_clock import ManualClock
from record_batches import simple_batch
from storage.partition_logs import append, open_log

from kafkalake.record import layout as at
from kafkalake.storage.files import REAL_FILES, Files
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log
from kafkalake.storage.producer_state import ABORT, COMMIT, EndMarker
from kafkalake.storage.replica_read import NEVER, ReplicaRead, SegmentRef
from kafkalake.storage.rewrite import RewriteRule, rewrite
from kafkalake.storage.segment_names import DATA_SUFFIX

SEGMENT_BYTES = 5_000


def written(directory: Path, clock: ManualClock, **config: object) -> Log:
    """A leader's log of several segments and epochs, with idempotent producers and transactions."""
    log = open_log(directory, clock, segment_bytes=SEGMENT_BYTES, **config)
    for number in range(40):
        if number in (0, 13, 26):
            log.take_over(number + 1)
        epoch = log.latest_epoch
        append(log, simple_batch([b"a%d" % number] * 5, producer_id=4, epoch=0, sequence=5 * number), epoch=epoch)
        append(log, simple_batch([b"t"], producer_id=7, epoch=0, sequence=number, transactional=True), epoch=epoch)
        if number % 5 == 4:
            log.append_control(EndMarker(7, 0, ABORT if number % 2 else COMMIT, 0), epoch)
            log.advance_high_watermark(log.log_end_offset)
    return log


def open_follower(directory: Path, clock: ManualClock, files: Files = REAL_FILES, **config: object) -> Log:
    """A replica's log in `directory`."""
    return open_log(directory, clock, files, is_replicated=True, segment_bytes=SEGMENT_BYTES, **config)


def copied(leader: Log, follower: Log, max_bytes: int = 3_000, whole_from_bytes: int = NEVER) -> None:
    """Copy what the follower lacks, and then the watermark."""
    while copied_once(leader, follower, max_bytes, whole_from_bytes):
        pass
    follower.advance_high_watermark(min(leader.high_watermark, follower.log_end_offset))


def copied_once(leader: Log, follower: Log, max_bytes: int, whole_from_bytes: int = NEVER) -> bool:
    """Copy one read. Return whether there were messages."""
    read = leader.read_replica(follower.log_end_offset, max_bytes, whole_from_bytes)
    if read.whole is not None:
        install(leader, follower, read.whole, max_bytes)
        return True
    done = follower.append_replica(read.messages, read.segment_base_offset, ends_segment=read.ends_segment)
    assert (done.first_offset, done.next_offset) == (read.first_offset, read.next_offset)
    return len(read.messages) > 0


def install(leader: Log, follower: Log, ref: SegmentRef, max_bytes: int) -> None:
    """Copy a whole segment."""
    follower.install_segment(ref, str(downloaded(leader, Path(follower.directory), ref, max_bytes)))


def downloaded(leader: Log, directory: Path, ref: SegmentRef, max_bytes: int) -> Path:
    """The leader's segment in a temporary file."""
    path = directory / "copied.tmp"
    positions = range(0, ref.total_bytes, max_bytes)
    path.write_bytes(b"".join(leader.read_segment_file(ref, position, max_bytes) for position in positions))
    return path


def compact(log: Log, bases: Sequence[int]) -> RewrittenSegment:
    """Rewrite segments as `rewritten`, and adopt the new one."""
    ref = rewritten(log, bases)
    assert log.adopt_rewritten([ref]) == []
    return ref


def rewritten(log: Log, bases: Sequence[int]) -> RewrittenSegment:
    """Rewrite the adjacent sealed segments at `bases` without records of transactions and some others."""
    directory, segments = Path(log.directory), {each.base_offset: each for each in log.sealed_segments()}
    old = [segments[base] for base in bases]
    generation = 1 + max(each.generation for each in old)
    kept = np.array([offset for offset in kept_of(log) if old[0].base_offset <= offset < old[-1].next_offset])
    rule = RewriteRule(kept, frozenset(), {}, 0, 0)
    new = rewrite([each.path for each in old], str(directory), generation, rule).segment
    return RewrittenSegment(new.base_offset, new.next_offset, new.generation)


def kept_of(log: Log) -> list[int]:
    """Every other offset of producer 4."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        messages = log.read(offset, 1)
        for header in messages.headers[messages.headers[:, at.PRODUCER_ID] == 4].tolist():
            found += range(header[at.BASE_OFFSET], header[at.BASE_OFFSET] + header[at.RECORDS], 2)
        offset = messages.next_offset
    return found


def reads_of(leader: Log, max_bytes: int = 1) -> list[ReplicaRead]:
    """The messages one by one, or so many bytes at a time."""
    reads, offset = [], leader.replica_start_offset
    while offset < leader.log_end_offset:
        reads.append(leader.read_replica(offset, max_bytes))
        offset = reads[-1].next_offset
    return reads


def data_of(directory: Path) -> dict[str, bytes]:
    """The data files."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix == DATA_SUFFIX}


def epochs_of(log: Log) -> list[tuple[int, int]]:
    """The end of each leader epoch."""
    return [log.end_offset_for_epoch(epoch) for epoch in range(log.latest_epoch + 1)]


def assert_same(leader: Log, follower: Log) -> None:
    """Assert that both logs have the same bytes, producers, epochs and aborted transactions."""
    assert data_of(Path(follower.directory)) == data_of(Path(leader.directory))
    start, end = leader.log_start_offset, leader.log_end_offset
    assert (follower.log_end_offset, follower.last_stable_offset) == (end, leader.last_stable_offset)
    assert follower.producers() == leader.producers()
    assert follower.aborted_transactions(start, end) == leader.aborted_transactions(start, end)
    assert epochs_of(follower) == epochs_of(leader)
