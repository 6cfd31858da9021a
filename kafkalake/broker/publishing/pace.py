"""When a table is committed: at most once an interval, less often if a commit takes long, and after a pause if it fails. Pure.

A publish is due `interval_ms` after the last one began, but not before `COST_SHARE` times the duration of the last commit has
passed since its end (at most `COST_PAUSE_MS_MAX`): a table with a long log commits slowly and is then written less often. After a
failure it is due after a backoff that doubles up to `BACKOFF_MS_MAX`. All times are monotonic.
"""

from __future__ import annotations

import logging

COST_SHARE = 20
COST_PAUSE_MS_MAX = 10_000
BACKOFF_MS_MIN = 250
BACKOFF_MS_MAX = 30_000

logger = logging.getLogger(__name__)


class Pace:
    """The pace of the commits to one table."""

    def __init__(self, table: str, interval_ms: int) -> None:
        self._table = table
        self._interval_ms = interval_ms
        self._began_ms = 0
        self._due_ms: int | None = None
        self._failures = 0

    def is_due(self, now_ms: int) -> bool:
        """Return whether a publish may begin."""
        return self._due_ms is None or now_ms >= self._due_ms

    @property
    def due_ms(self) -> int:
        """The time from which a publish may begin."""
        return 0 if self._due_ms is None else self._due_ms

    def begin(self, now_ms: int) -> None:
        """Note that a publish begins."""
        self._began_ms = now_ms
        self._due_ms = now_ms + self._interval_ms

    def succeeded(self, now_ms: int, cost_ms: int) -> None:
        """Note that the publish that began is committed. cost_ms: the duration of the commit."""
        pause_ms = min(COST_SHARE * cost_ms, COST_PAUSE_MS_MAX)
        self._due_ms = max(self._began_ms + self._interval_ms, now_ms + pause_ms)
        if self._failures:
            logger.info("publishing of %s works again after %d failures", self._table, self._failures)
        self._failures = 0

    def failed(self, now_ms: int, error: BaseException) -> None:
        """Note that the publish that began failed, perhaps after it was committed."""
        backoff_ms = min(BACKOFF_MS_MIN << min(self._failures, 20), BACKOFF_MS_MAX)
        self._failures += 1
        self._due_ms = max(self._began_ms + self._interval_ms, now_ms + backoff_ms)
        logger.warning(
            "publishing of %s failed (%d in a row), next try in %d ms: %s",
            self._table,
            self._failures,
            self._due_ms - now_ms,
            error,
        )
