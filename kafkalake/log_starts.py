"""The one rule for the first offset of a partition, used by brokers, readers, jobs and the metadata in Delta.

A job truncates the beginning of a partition by raising its log start in Delta. The broker's log follows a little later.
"""

from __future__ import annotations


def raised_log_start(log_start_offset: int, raised: int, high_watermark: int) -> int:
    """Return the first offset of a log whose start in Delta is `raised`.

    A start beyond the high watermark was raised for a log that has been lost since. The log begun in its place keeps its own.
    """
    return raised if log_start_offset < raised <= high_watermark else log_start_offset
