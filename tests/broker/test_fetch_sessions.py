"""Fetch sessions: slots, eviction, epochs; with a clock that is told the time."""

from __future__ import annotations

import itertools

import pytest

from kafkalake.broker.partitions.fetch_sessions import (
    IDLE_MS,
    UNKNOWN_PARTITIONS_MAX,
    FetchContext,
    FetchPartition,
    FetchSessionCache,
)
from kafkalake.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError


def cache(slots: int) -> FetchSessionCache:
    numbers = itertools.count(1)
    return FetchSessionCache(slots, lambda: next(numbers))


def partitions(count: int) -> list[FetchPartition]:
    return [FetchPartition("t", index, 0, 1000) for index in range(count)]


def begin(
    sessions: FetchSessionCache, session_id: int, epoch: int, count: int = 0, now_ms: int = 0, by_id: bool = False
) -> FetchContext:
    return sessions.begin(session_id, epoch, partitions(count), [], uses_topic_ids=by_id, now_ms=now_ms)


def test_a_session_is_made_and_goes_on() -> None:
    sessions = cache(2)
    first = begin(sessions, 0, 0, 3)
    assert first.session_id == 1
    assert not first.incremental
    for epoch in (1, 2, 3):
        following = begin(sessions, 1, epoch)
        assert following.incremental
        assert [each.partition for each in following.partitions] == [0, 1, 2]


def test_the_epoch_starts_again_at_1_after_the_largest() -> None:
    sessions = cache(1)
    context = begin(sessions, 0, 0, 1)
    assert context.session is not None
    context.session.epoch = 2**31 - 1
    begin(sessions, 1, 2**31 - 1)
    begin(sessions, 1, 1)


def test_errors() -> None:
    sessions = cache(1)
    begin(sessions, 0, 0, 1)
    with pytest.raises(FetchSessionIdNotFoundError):
        begin(sessions, 9, 1)
    with pytest.raises(InvalidFetchSessionEpochError):
        begin(sessions, 1, 2)
    with pytest.raises(FetchSessionTopicIdError):
        begin(sessions, 1, 1, by_id=True)


def test_without_a_slot_there_is_no_session() -> None:
    sessions = cache(1)
    assert begin(sessions, 0, 0, 1).session_id == 1
    assert begin(sessions, 0, 0, 1).session_id == 0
    assert begin(cache(0), 0, 0, 1).session_id == 0


def test_an_idle_session_makes_room() -> None:
    sessions = cache(2)
    begin(sessions, 0, 0, 1, now_ms=0)
    begin(sessions, 0, 0, 1, now_ms=0)
    begin(sessions, 1, 1, now_ms=IDLE_MS)
    assert begin(sessions, 0, 0, 1, now_ms=IDLE_MS + 1).session_id == 3
    with pytest.raises(FetchSessionIdNotFoundError):
        begin(sessions, 2, 1, now_ms=IDLE_MS + 1)
    begin(sessions, 1, 2, now_ms=IDLE_MS + 1)


def test_a_larger_session_replaces_a_smaller_one_that_has_settled() -> None:
    sessions = cache(1)
    begin(sessions, 0, 0, 2, now_ms=0)
    begin(sessions, 1, 1, now_ms=IDLE_MS)
    assert begin(sessions, 0, 0, 2, now_ms=IDLE_MS + 1).session_id == 0
    assert begin(sessions, 0, 0, 3, now_ms=IDLE_MS + 1).session_id == 2


def test_a_new_full_fetch_closes_the_session_it_names() -> None:
    sessions = cache(1)
    begin(sessions, 0, 0, 1)
    assert begin(sessions, 1, 0, 1).session_id == 2
    assert len(sessions) == 1
    begin(sessions, 2, -1, 1)
    assert len(sessions) == 0


def test_an_emptied_session_is_closed() -> None:
    sessions = cache(1)
    begin(sessions, 0, 0, 1)
    context = sessions.begin(1, 1, [], [("t", 0)], uses_topic_ids=False, now_ms=0)
    assert context.partitions == []
    assert context.session_id == 0
    assert len(sessions) == 0


def test_of_a_partition_that_is_named_twice_the_last_counts() -> None:
    sessions = cache(1)
    asked = [FetchPartition("t", 0, 5, 1000), FetchPartition("t", 1, 6, 1000), FetchPartition("t", 0, 7, 1000)]
    for epoch in (-1, 0):
        context = sessions.begin(0, epoch, asked, [], uses_topic_ids=False, now_ms=0)
        assert [(each.partition, each.fetch_offset) for each in context.partitions] == [(0, 7), (1, 6)]


def test_a_session_keeps_few_partitions_that_are_not_there() -> None:
    sessions = FetchSessionCache(9, itertools.count(1).__next__, is_known=lambda asked: asked.partition < 3)
    assert begin(sessions, 0, 0, 4 + UNKNOWN_PARTITIONS_MAX).session_id == 0
    assert begin(sessions, 0, 0, 4).session_id == 1
    begin(sessions, 1, 1, 3 + UNKNOWN_PARTITIONS_MAX)
    with pytest.raises(FetchSessionIdNotFoundError):
        begin(sessions, 1, 2, 4 + UNKNOWN_PARTITIONS_MAX)
    assert len(sessions) == 0


def test_partitions_of_all_sessions_are_bounded() -> None:
    sessions = FetchSessionCache(9, itertools.count(1).__next__, partitions_max=5)
    assert begin(sessions, 0, 0, 3).session_id == 1
    assert begin(sessions, 0, 0, 3).session_id == 0
    assert begin(sessions, 0, 0, 2).session_id == 2
    assert begin(sessions, 1, 1, 3).session_id == 1  # changes nothing
    with pytest.raises(FetchSessionIdNotFoundError):
        begin(sessions, 1, 2, 4)
    assert begin(sessions, 0, 0, 3).session_id == 3
    sessions.begin(3, 1, [], [("t", 0), ("t", 1), ("t", 2)], uses_topic_ids=False, now_ms=0)
    begin(sessions, 2, -1)
    assert begin(sessions, 0, 0, 5).session_id == 4
