"""A replica of this broker that follows the leader of its partition: what it asks for, and what an answer does to its log.

The log is copied message by message, so that the files of all replicas are equal. Where it parts from the leader's, it is cut
(KIP-101, 279, 595); where the leader's begins after its end, it begins again there. The high watermark is the leader's, at most
the log end: `state` never shows a record that may be lost.

A log that is no prefix of the leader's although the epochs agree (`DivergedLogError`) is refilled: once without its newest epoch,
then from nothing, and then no more in this leader epoch.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from kafkalake.broker.partitions.leader_replicas import AskedReplica, FetchedReplica, ReplicaId
from kafkalake.cluster.replication import EpochEnd, decide_truncation
from kafkalake.errors import OffsetOutOfRangeError
from kafkalake.storage.log import Log

logger = logging.getLogger(__name__)

REFILLS_MAX = 2
ALL_COUNTED = 1 << 62
"""A leader may count a follower for all that its log has, also for what it gets meanwhile."""
PAUSE_MS_MIN = 50
"""The pause after the first error of a partition or a leader. It doubles up to `replica.fetch.backoff.ms`."""


class Follower:
    """A replica that follows `leader_id` in `leader_epoch`. Its log is used by nothing else that changes it.

    under_way: the work on the log that is running in threads, which must end before somebody else uses the log.
    """

    __slots__ = (
        "_copying",
        "_pause_ms",
        "_refills",
        "is_in_sync",
        "leader_epoch",
        "leader_id",
        "log",
        "name",
        "replica",
        "retry_ms",
        "tasks",
        "under_way",
    )

    def __init__(self, replica: ReplicaId, name: str, log: Log, leader_id: int, leader_epoch: int) -> None:
        self.replica = replica
        self.name = name
        self.log = log
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.retry_ms = 0
        """The time, of a monotonic clock, before which it is not fetched again."""
        self._pause_ms = 0
        self.is_in_sync = False
        """Whether the last answer left nothing below the leader's high watermark to fetch."""
        self.under_way: set[asyncio.Future[Any]] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        """The copies of whole segments that are being made."""
        self._copying: asyncio.Task[None] | None = None
        self._refills = 0

    def ask(self, max_bytes: int) -> AskedReplica:
        """Return what to fetch next."""
        log = self.log
        return AskedReplica(
            self.replica,
            self.leader_epoch,
            log.log_end_offset,
            log.latest_epoch,
            log.log_start_offset,
            log.high_watermark,
            max_bytes,
        )

    def has_answer(self, asked: AskedReplica) -> bool:
        """Return whether an answer to `asked` still continues the log."""
        log = self.log
        return (asked.leader_epoch, asked.offset, asked.last_epoch) == (
            self.leader_epoch,
            log.log_end_offset,
            log.latest_epoch,
        )

    def needs_thread(self, fetched: FetchedReplica) -> bool:
        """Return whether `take` reads or forces files, however short the answer is."""
        log = self.log
        return (
            fetched.diverging is not None
            or fetched.error is not None
            or log.log_start_offset < fetched.log_start_offset
            or log.flush_due(len(fetched.messages))  # about the most records that so many bytes have
            or self._reads_segment(fetched)
        )

    def _reads_segment(self, fetched: FetchedReplica) -> bool:
        return _is_appended(fetched) and self.log.append_reads_segment(
            fetched.messages, fetched.segment_base_offset, ends_segment=fetched.ends_segment
        )

    def take(self, fetched: FetchedReplica) -> None:
        """Make the log what an answer says that has no error, or `OffsetOutOfRangeError`. It may run in any thread.

        Raise `KafkaStorageError` if I/O fails, `CorruptMessageError`, `CorruptSegmentError` or `OffsetOutOfRangeError` if the
        answer does not fit to the log.
        """
        if fetched.error is not None:
            self._begin_again(fetched)
        elif fetched.diverging is not None:
            self._truncate(fetched.diverging)
        else:
            self._append(fetched)

    def _append(self, fetched: FetchedReplica) -> None:
        log = self.log
        counted_end = log.log_end_offset
        if _is_appended(fetched):
            log.append_replica(fetched.messages, fetched.segment_base_offset, ends_segment=fetched.ends_segment)
        if log.flush_due():
            log.flush(counted_end)
        log.advance_high_watermark(min(fetched.high_watermark, log.log_end_offset))
        self.is_in_sync = fetched.high_watermark <= log.log_end_offset
        start = min(fetched.log_start_offset, log.high_watermark)
        if start > log.log_start_offset:
            log.raise_start(start)

    def flush(self, *, sealed_only: bool = False) -> None:
        """Force all records to disk, or those in sealed segments. The leader may count each of them.

        It may run in any thread, beside `take`. Raise `KafkaStorageError` if that fails.
        """
        flush = self.log.flush_sealed if sealed_only else self.log.flush
        flush(ALL_COUNTED)

    def _truncate(self, diverging: EpochEnd) -> None:
        """Cut the log where it parts from the leader's. After a clean election that is not below the high watermark."""
        log = self.log
        before = log.log_end_offset, log.latest_epoch
        own = EpochEnd(*log.end_offset_for_epoch(diverging.epoch))
        offset = decide_truncation(diverging, own, log.log_end_offset)
        if offset < log.log_start_offset:
            log.restart_at(offset)
        else:
            log.truncate_to(offset, below_high_watermark=offset < log.high_watermark)
        if before == (log.log_end_offset, log.latest_epoch):
            raise OffsetOutOfRangeError(f"{self.name} diverges at {diverging} and has nothing above that")

    def _begin_again(self, fetched: FetchedReplica) -> None:
        """Empty the log and begin where the leader's does. Raise the leader's error if the two overlap."""
        start, log = fetched.segment_base_offset, self.log
        is_empty = log.log_start_offset == log.log_end_offset
        if start < 0 or start == log.log_end_offset or (start < log.log_end_offset and not is_empty):
            raise OffsetOutOfRangeError(f"{self.name} ends at {log.log_end_offset}, and its leader begins at {start}")
        log.restart_at(start)

    @property
    def may_be_refilled(self) -> bool:
        """Return whether a log that has parted from the leader's was not refilled twice already."""
        return self._refills < REFILLS_MAX

    def refill(self) -> None:
        """Remove what may be no part of the leader's log: first the newest epoch, then all. It may run in any thread.

        Only for a replica that is not eligible to lead: it removes records below the high watermark, which others must have.
        Raise `KafkaStorageError` if I/O fails.
        """
        log, self._refills = self.log, self._refills + 1
        _, start = log.end_offset_for_epoch(log.latest_epoch - 1)
        if self._refills == 1 and log.log_start_offset < start < log.log_end_offset:
            logger.warning("log cut where its newest epoch begins partition=%s offset=%d", self.name, start)
            log.truncate_to(start, below_high_watermark=True)
        else:
            self._refills = REFILLS_MAX
            logger.warning("log emptied, to be copied again partition=%s end=%d", self.name, log.log_end_offset)
            log.restart_at(0)  # the leader says where its log begins if that is later

    def work_until(self, done: asyncio.Future[Any]) -> None:
        """Note work on the log that runs in a thread."""
        self.under_way.add(done)
        done.add_done_callback(self.under_way.discard)

    def copy_by(self, task: asyncio.Task[None], *, is_next: bool) -> None:
        """Note a task that copies a whole segment. `is_next`: it continues the log, which is not fetched meanwhile."""
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        if is_next:
            self._copying = task

    # Pauses after errors

    def is_due(self, now_ms: int) -> bool:
        """Return whether it may be fetched now."""
        return self.retry_ms <= now_ms and (self._copying is None or self._copying.done())

    def pause(self, now_ms: int, pause_ms_max: int) -> int:
        """Fetch again after a pause, and return its length in ms. It doubles as long as there are errors."""
        self._pause_ms = min(max(2 * self._pause_ms, PAUSE_MS_MIN), pause_ms_max)
        self.retry_ms = now_ms + self._pause_ms
        return self._pause_ms

    def succeeded(self) -> bool:
        """Note an answer without an error, and return whether the one before had one."""
        was_paused, self._pause_ms = self._pause_ms > 0, 0
        return was_paused


def _is_appended(fetched: FetchedReplica) -> bool:
    """Return whether an answer is appended, without messages too: the leader may have begun the next segment."""
    return fetched.segment_base_offset >= 0 and fetched.whole is None
