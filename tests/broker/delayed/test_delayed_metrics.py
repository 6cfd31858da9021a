"""Percentiles of lateness, against numpy's on the same values."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafkalake.broker.delayed.metrics import WINDOW_MS, HandOverMetrics

NOW_MS = 1_700_000_000_000


@given(st.lists(st.lists(st.integers(0, 1 << 38), max_size=20), min_size=1, max_size=5))
def test_percentiles_are_never_too_low_and_at_most_a_sixteenth_too_high(parts: list[list[int]]) -> None:
    metrics = HandOverMetrics()
    for part in parts:
        metrics.handed_over(np.array(part, dtype=np.int64), NOW_MS)
    every = sorted(value for part in parts for value in part)
    found = metrics.lateness(NOW_MS)
    assert found.records == metrics.handed_over_records == len(every)
    for percent, shown in ((50, found.p50_ms), (99, found.p99_ms), (100, found.max_ms)):
        exact = every[-(-len(every) * percent // 100) - 1] if every else 0
        assert exact <= shown <= exact * 17 / 16 + (exact >= 64)


def test_lateness_is_of_the_last_minute_and_totals_are_for_ever() -> None:
    metrics = HandOverMetrics()
    metrics.handed_over(np.array([100_000]), NOW_MS)
    metrics.handed_over(np.array([5, 7, 7]), NOW_MS + 30_000)
    assert metrics.lateness(NOW_MS + 30_000).records == 4
    assert metrics.lateness(NOW_MS + WINDOW_MS)[:3] == (3, 7, 7)
    assert metrics.lateness(NOW_MS + 2 * WINDOW_MS) == (0, 0, 0, 0)
    metrics.dead_lettered(2)
    assert (metrics.handed_over_records, metrics.dead_letters) == (4, 2)
