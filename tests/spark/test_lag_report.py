"""The rules of the lag report, against plain models of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalake.jobs.lag.report import (
    AlertRules,
    Commit,
    CommitHistory,
    GroupPartition,
    GroupTopic,
    Lag,
    PartitionEdge,
    alerts,
    measure,
    position,
)
from kafkalake.metadata.tables.schemas import GroupOffsetRow

KEY = GroupPartition("etl", "clicks", 0)


def row(offset: int | None, time_ms: int, number: int, group: str = "etl") -> GroupOffsetRow:
    return GroupOffsetRow(group, "clicks", None, 0, offset, -1, "", time_ms, None, 0, number)


def lag(lag: int, seconds: float = 0.0, partition: int = 0, group: str = "etl") -> Lag:
    return Lag(group, "clicks", partition, 0, 0, 0, lag, lag, seconds, None, None, None, 0)


@given(
    st.integers(0, 100),
    st.integers(0, 100),
    st.integers(0, 100),
    st.one_of(st.none(), st.integers(0, 10_000)),
    st.one_of(st.none(), st.floats(0, 1e6)),
    st.one_of(st.none(), st.floats(0, 1e6)),
)
def test_lag_is_what_kafkas_tools_show_and_never_negative(
    committed: int, start: int, more: int, record_ms: int | None, rate_in: float | None, rate_out: float | None
) -> None:
    edge = PartitionEdge(start, start + more, rate_in)
    commit = Commit(committed, 5)
    found = measure(KEY, commit, edge, now_ms=8_000, next_record_ms=record_ms, rate_out=rate_out)
    assert found.lag == max(0, start + more - committed)
    assert (position(commit, edge) is None) == (found.lag == 0)
    assert found.lost == (max(0, start - committed) if found.lag else 0)
    if found.lag == 0:
        assert (found.lag_seconds, found.catch_up_seconds) == (0, 0)
    else:
        assert found.lag_seconds == (None if record_ms is None else max(0, 8_000 - record_ms) / 1000)
        gains = (rate_out or 0) - (rate_in or 0)
        assert (found.catch_up_seconds is None) == (gains <= 0)
        if gains > 0:
            assert found.catch_up_seconds == found.lag / gains


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 50)), st.integers(0, 100)), max_size=8), st.integers(0, 100)
)
def test_what_was_committed_at_a_time_is_the_last_commit_by_then(
    commits: list[tuple[int | None, int]], time_ms: int
) -> None:
    commits.sort(key=lambda each: each[1])
    history = CommitHistory([row(offset, at, number) for number, (offset, at) in enumerate(commits)])
    expected = None
    for offset, at in commits:
        if at <= time_ms:
            expected = None if offset is None else Commit(offset, at)
    assert history.at(time_ms).get(KEY) == expected


def test_the_rate_out_is_taken_over_the_window() -> None:
    history = CommitHistory([row(0, 0, 0), row(100, 10_000, 1), row(300, 20_000, 2)])
    assert history.rate(KEY, 10_000, 20_000) == 20
    assert history.rate(KEY, 15_000, 25_000) == 20  # at 100 when the window began
    assert history.rate(KEY, 25_000, 35_000) == 0
    assert history.rate(KEY, -10_000, 10_000) == 10  # from its first commit on
    assert history.rate(GroupPartition("other", "clicks", 0), 0, 10_000) is None
    assert CommitHistory([row(5, 1_000, 0)]).rate(KEY, 0, 10_000) is None
    back = CommitHistory([row(100, 0, 0), row(10, 5_000, 1)])
    assert back.rate(KEY, 0, 10_000) == 0


def test_alerts_are_about_a_group_in_a_topic() -> None:
    rows = [lag(60, 5.0), lag(50, 90.0, partition=1), lag(10, 1.0, group="calm")]
    found = alerts(rows, {}, AlertRules(max_lag=100, max_lag_seconds=60))
    assert [(alert.group, alert.rule, alert.value) for alert in found] == [
        ("etl", "max-lag", 110),
        ("etl", "max-lag-seconds", 90),
    ]
    assert found[0].text == "group 'etl' is 110 records behind in clicks, above 100"
    assert alerts(rows, {}, AlertRules()) == []
    assert alerts(rows, {}, AlertRules(max_lag=110, max_lag_seconds=90)) == []


def test_growing_means_in_each_of_so_many_runs() -> None:
    key = GroupTopic("etl", "clicks")
    rules = AlertRules(growing_runs=2)
    for earlier, expected in (([1, 2], 1), ([5, 2], 0), ([2, 2], 0), ([2], 0), ([9, 1, 2], 1), ([1, 3], 0)):
        assert len(alerts([lag(3)], {key: earlier}, rules)) == expected, earlier
    assert alerts([lag(3)], {GroupTopic("etl", "orders"): [1, 2]}, rules) == []
