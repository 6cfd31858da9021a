"""Retention's decisions against a plain model of Kafka's rules, and the guard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from retention_model import taken

from kafkalake.storage.retention import (
    BLOCK,
    OFF,
    SIZE,
    TIME,
    WARN,
    PartitionRetention,
    RetentionRule,
    SealedRange,
    decide_retention,
)

NOW_MS = 10_000


@st.composite
def partitions(draw: st.DrawFn) -> list[SealedRange]:
    segments, offset = [], draw(st.integers(0, 50))
    for _ in range(draw(st.integers(0, 8))):
        end = offset + draw(st.integers(1, 30))
        segments.append(SealedRange(offset, end, draw(st.integers(1, 200)), draw(st.integers(0, NOW_MS))))
        offset = end
    return segments


@pytest.mark.exhaustive
@given(
    partitions(),
    st.builds(
        RetentionRule,
        st.booleans(),
        st.integers(-1, NOW_MS),
        st.integers(-1, 1000),
        st.sampled_from((OFF, WARN, BLOCK)),
    ),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 300), max_size=3),
    st.integers(0, 60),
    st.integers(0, 300),
    st.integers(0, 300),
)
def test_what_goes_is_what_kafka_would_take_one_by_one(
    segments: list[SealedRange],
    rule: RetentionRule,
    committed: dict[str, int],
    log_start: int,
    end_offset: int,
    active_bytes: int,
) -> None:
    decision = decide_retention(
        segments,
        rule,
        committed,
        now_ms=NOW_MS,
        log_start_offset=log_start,
        end_offset=end_offset,
        active_bytes=active_bytes,
    )
    gone = taken(
        segments,
        rule,
        committed,
        now_ms=NOW_MS,
        log_start=log_start,
        end_offset=end_offset,
        active_bytes=active_bytes,
    )
    assert list(decision.segments) == gone
    assert len(decision.reasons) == len(gone)
    assert decision.log_start_offset == (gone[-1].next_offset if gone else log_start)
    assert decision.bytes == sum(segment.bytes for segment in gone)
    if rule.guard == WARN:
        assert decision.unread == {g: o for g, o in committed.items() if gone and o < gone[-1].next_offset}
    if rule.guard == BLOCK:
        assert not decision.unread
        assert all(offset >= decision.log_start_offset for offset in committed.values()) or not gone
    else:
        assert not decision.kept_for
    again = decide_retention(
        segments,
        rule,
        committed,
        now_ms=NOW_MS,
        log_start_offset=decision.log_start_offset,
        end_offset=end_offset,
        active_bytes=active_bytes,
    )
    # A second run finds nothing, unless size took what time had stopped at.
    assert not again.segments or SIZE in decision.reasons


def decide(segments: list[SealedRange], committed: dict[str, int] | None = None, **rule: object) -> PartitionRetention:
    return decide_retention(
        segments,
        RetentionRule(**{"delete": True, "retention_ms": -1, "retention_bytes": -1, **rule}),  # type: ignore[arg-type]
        committed or {},
        now_ms=NOW_MS,
        log_start_offset=0,
        end_offset=1_000,
        active_bytes=100,
    )


FOUR = [SealedRange(at, at + 10, 100, NOW_MS - age) for at, age in ((0, 900), (10, 800), (20, 100), (30, 700))]


def test_a_segment_behind_one_that_stays_stays() -> None:
    assert [each.base_offset for each in decide(FOUR, retention_ms=500).segments] == [0, 10]


def test_size_counts_the_active_segment_and_keeps_at_least_what_is_asked_for() -> None:
    assert [each.base_offset for each in decide(FOUR, retention_bytes=300).segments] == [0, 10]
    assert [each.base_offset for each in decide(FOUR, retention_bytes=301).segments] == [0]
    assert decide(FOUR, retention_bytes=500).segments == ()


def test_time_goes_first_and_size_takes_from_what_is_left() -> None:
    decision = decide(FOUR, retention_ms=850, retention_bytes=200)
    assert decision.reasons == (TIME, SIZE, SIZE)


def test_topics_that_are_compacted_only_or_kept_for_ever_keep_all() -> None:
    assert decide(FOUR, delete=False, retention_ms=0, retention_bytes=0).segments == ()
    assert decide(FOUR).segments == ()


def test_the_guard_names_the_groups_and_what_is_kept_for_them() -> None:
    committed = {"slow": 15, "fast": 40, "slower": 12}
    blocked = decide(FOUR, committed, retention_ms=0, guard=BLOCK)
    assert [each.base_offset for each in blocked.segments] == [0]
    assert (blocked.kept_for, blocked.kept_bytes) == ({"slow": 15, "slower": 12}, 300)
    warned = decide(FOUR, committed, retention_ms=0, guard=WARN)
    assert (warned.log_start_offset, warned.unread) == (40, {"slow": 15, "slower": 12})
