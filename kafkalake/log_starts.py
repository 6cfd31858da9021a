"""Where a partition begins: the one rule for brokers, readers, jobs, and what Delta says.

A job removes the beginning of a partition by raising its log start in Delta; the log of its broker follows a little later.
"""

from __future__ import annotations


def raised_log_start(log_start_offset: int, raised: int, high_watermark: int) -> int:
    """Return the offset where a log begins for which Delta has the start `raised`.

    A start beyond the high watermark was raised for a log that has been lost since: the one begun in its place keeps its own.
    """
    return raised if log_start_offset < raised <= high_watermark else log_start_offset
