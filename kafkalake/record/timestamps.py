"""The timestamps of records, in ms since 1970: those that mean something, and those that a topic takes."""

from __future__ import annotations

from kafkalake.timestamp_range import EARLIEST_TIMESTAMP_MS, LATEST_TIMESTAMP_MS

NO_TIMESTAMP = -1


def allowed_timestamps(before_max_ms: int | None, after_max_ms: int | None, now_ms: int) -> tuple[int, int]:
    """Return the earliest and the latest timestamp that a topic takes now (KIP-937). None: no bound but that of all timestamps."""
    earliest, latest = EARLIEST_TIMESTAMP_MS, LATEST_TIMESTAMP_MS
    if before_max_ms is not None and now_ms - before_max_ms > earliest:
        earliest = now_ms - before_max_ms
    if after_max_ms is not None and now_ms + after_max_ms < latest:
        latest = now_ms + after_max_ms
    return earliest, latest
