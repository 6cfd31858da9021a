"""When a table is committed."""

from __future__ import annotations

import pytest

from kafkalake.broker.publishing.pace import BACKOFF_MS_MAX, BACKOFF_MS_MIN, COST_PAUSE_MS_MAX, COST_SHARE, Pace
from kafkalake.errors import KafkaStorageError

INTERVAL_MS = 1_000


@pytest.mark.parametrize(
    ("cost_ms", "pause_ms"),
    [(5, INTERVAL_MS - 5), (200, COST_SHARE * 200), (60_000, COST_PAUSE_MS_MAX)],
)
def test_commits_that_take_long_are_made_less_often(cost_ms: int, pause_ms: int) -> None:
    pace = Pace("partitions", INTERVAL_MS)
    assert pace.is_due(0)
    pace.begin(100)
    assert not pace.is_due(100 + INTERVAL_MS - 1)
    pace.succeeded(100 + cost_ms, cost_ms)
    assert pace.due_ms == 100 + cost_ms + pause_ms


def test_failures_are_tried_again_with_a_growing_pause_that_has_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    pace = Pace("partitions", 10)
    pauses = []
    for _ in range(10):
        pace.begin(0)
        pace.failed(0, KafkaStorageError("no space left on device"))
        pauses.append(pace.due_ms)
    assert pauses == [min(BACKOFF_MS_MIN << number, BACKOFF_MS_MAX) for number in range(10)]
    caplog.set_level("INFO")
    pace.begin(0)
    pace.succeeded(0, 0)
    assert "works again after 10 failures" in caplog.text
    assert pace.is_due(10)
