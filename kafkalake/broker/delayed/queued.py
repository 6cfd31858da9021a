"""The records that are handed over to one target, and those that wait for it to be free."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from kafkalake.broker.delayed.rows import WaitingRows
from kafkalake.broker.delayed.targets import REFUSED, TOO_LARGE
from kafkalake.delayed_journal import Note, Reason
from kafkalake.errors import InvalidRecordError, KafkaError

PAUSE_MS_MIN = 20
PAUSE_MS_MAX = 5_000


@dataclass(slots=True, eq=False)
class HandOver:
    """An intent, its records and their bytes. No records: the intent withdraws the one before it.

    failures: of its batch, in succession. apart_bytes: its bytes, while they are not counted among those that are held.
    """

    note: Note
    rows: WaitingRows | None
    size_bytes: int
    failures: int = 0
    apart_bytes: int = 0


@dataclass(slots=True, eq=False)
class Queued:
    """Records that wait for their target to be free, all for one reason: 0 or an error code.

    stays: they are not parked. They have been in an intent, so that the index may have them or not.
    """

    rows: WaitingRows
    error_code: int = 0
    stays: bool = False


def take(queue: deque[Queued], error_code: int, rows_max: int, bytes_max: int) -> tuple[WaitingRows, int]:
    """Remove the first records of a queue that have this error code, of about so many rows and bytes, at least one.

    Return them and their bytes.
    """
    taken: list[WaitingRows] = []
    size_bytes = 0
    while queue and queue[0].error_code == error_code and rows_max > 0 and bytes_max > 0:
        rows = queue[0].rows
        sizes = np.cumsum(rows.sizes)
        fitting = min(int(np.searchsorted(sizes, bytes_max, side="right")), rows_max)
        count = fitting if fitting or taken else 1
        if not count:
            break
        taken.append(rows.slice(0, count))
        rows_max, bytes_max = rows_max - count, bytes_max - int(sizes[count - 1])
        size_bytes += int(sizes[count - 1])
        if count < len(rows):
            queue[0] = replace(queue[0], rows=rows.slice(count, len(rows)))
            break
        queue.popleft()
    return WaitingRows.concat(taken), size_bytes


def parts_to_try(rows: WaitingRows, intent: Note, error: KafkaError) -> tuple[WaitingRows, WaitingRows] | None:
    """Return two parts of a batch that is refused, one of which may be taken, None if there is nothing to try.

    Halves, but those with and without a key if the topic may be compacted by now: all of a large backlog may be without one, and
    halves would end with an intent for each record.
    """
    if len(rows) == 1:
        return None
    if isinstance(error, (*TOO_LARGE, *REFUSED) if intent.reason is Reason.DEAD_LETTERED else TOO_LARGE):
        half = len(rows) // 2
        return rows.slice(0, half), rows.slice(half, len(rows))
    if not isinstance(error, InvalidRecordError):
        return None
    has_key = rows.batch.column("key").is_valid().to_numpy(zero_copy_only=False)
    if has_key.all() or not has_key.any():
        return None
    return rows.take(np.flatnonzero(has_key)), rows.take(np.flatnonzero(~has_key))


def pause_after(failures: int) -> int:
    """Return the milliseconds until a write is repeated that has failed so often before."""
    return min(PAUSE_MS_MIN << min(failures, 10), PAUSE_MS_MAX)
