"""Entries come back in order when they are due, near and far ones, from memory and from files."""

from __future__ import annotations

import errno
import time
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalake.broker.delayed import due_index, due_runs
from kafkalake.broker.delayed.due_index import HOUR_MS, MINUTE_MS, Buckets, DueIndex
from kafkalake.broker.delayed.due_runs import OFFSET, DueRuns, Entries
from kafkalake.broker.delayed.offset_set import OffsetSet

NOW = 1_700_000_000_000


class MemoryFiles:
    """Bucket files in memory. `fails`: every call does."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.fails = False

    def _check(self) -> None:
        if self.fails:
            raise OSError(errno.EIO, "fails on purpose")

    def write(self, name: str, position: int, data: bytes) -> None:
        self._check()
        file = self.files.setdefault(name, bytearray())
        file[position : position + len(data)] = data

    def read(self, name: str, position: int, length: int) -> bytes:
        self._check()
        return bytes(self.files[name][position : position + length])

    def remove(self, name: str) -> None:
        self._check()
        self.files.pop(name, None)


def test_buckets_that_are_far_apart_are_not_mixed() -> None:
    """Their numbers are the same in 16 bits."""
    times = [number * HOUR_MS for number in (7, 7 + (1 << 16), 7, 7 + (2 << 16), 8, 7 + (1 << 16))]
    buckets = Buckets("hour", HOUR_MS, MemoryFiles())
    buckets.add(entries(*((due, 0, place) for place, due in enumerate(times))))
    taken = [buckets.take_below(1 << 62, 10)[:, OFFSET].tolist() for _ in range(4)]
    assert [sorted(each) for each in taken] == [[0, 2], [4], [1, 5], [3]]
    assert len(buckets) == 0


def advance(index: DueIndex, now_ms: int) -> None:
    while index.advance(now_ms):
        pass


def entries(*rows: tuple[int, int, int]) -> Entries:
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


STEPS = st.lists(
    st.one_of(
        st.lists(
            st.tuples(
                st.sampled_from([-HOUR_MS, 0, 1, 5_000, MINUTE_MS, 3 * MINUTE_MS, 5 * HOUR_MS, 40 * 24 * HOUR_MS]),
                st.integers(0, 3),
            ),
            min_size=1,
            max_size=8,
        ),
        st.integers(1, 3 * HOUR_MS),
        st.sampled_from([1, 999, MINUTE_MS, HOUR_MS, 41 * 24 * HOUR_MS]),
    ),
    max_size=25,
)


@pytest.mark.exhaustive
@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(1, 6), st.integers(1, 7), st.sampled_from([1, 2, 5, 1_000]))
def test_the_index_is_a_sorted_list(steps: list[object], in_memory_max: int, limit: int, slice_max: int) -> None:
    with (
        mock.patch.object(due_index, "SLICE", slice_max),
        mock.patch.object(due_runs, "RUN_MAX", max(slice_max, 3)),
        mock.patch.object(due_runs, "HEAD_MIN", min(slice_max, 2)),
    ):
        follow_a_sorted_list(steps, in_memory_max, limit)


def follow_a_sorted_list(steps: list[object], in_memory_max: int, limit: int) -> None:
    files = MemoryFiles()
    index, model, now, offset = DueIndex(NOW, files, in_memory_max), [], NOW, 0
    for step in steps:
        if isinstance(step, int):
            now += step
            is_moving, taken = True, []
            while is_moving or taken:
                is_moving = index.advance(now)
                due = sorted(each for each in model if each[0] <= now)[:limit]
                assert is_moving or index.count_due(now) == sum(each[0] <= now for each in model)
                seen = index.peek(now, limit).tolist()
                taken = [(when, order, place) for when, order, place in index.take(now, limit).tolist()]
                assert seen == [list(each) for each in taken]
                assert taken == due[: len(taken)] and (taken or is_moving or not due)
                model = [each for each in model if each not in taken]
        else:
            assert isinstance(step, list)
            added = [(now + ahead, order, offset := offset + 1) for ahead, order in step]
            model += added
            index.add(entries(*added))
        assert len(index) == len(model)
        following = index.next_due_ms
        assert (following is None) == (not model)
        assert following is None or following <= max(min(model)[0], now)
    index.close()
    assert not files.files


def test_entries_stay_in_memory_while_files_cannot_be_written() -> None:
    files = MemoryFiles()
    index = DueIndex(NOW, files, 4)
    files.fails = True
    index.add(entries(*((NOW + 5 * HOUR_MS, 0, offset) for offset in range(6))))
    assert len(index) == 6
    files.fails = False
    index.add(entries(*((NOW + 5 * HOUR_MS, 0, offset) for offset in range(6, 20))))
    assert files.files
    advance(index, NOW + 5 * HOUR_MS)
    assert index.take(NOW + 5 * HOUR_MS, 100)[:, 2].tolist() == list(range(20))


def test_a_file_that_cannot_be_read_is_said() -> None:
    files = MemoryFiles()
    index = DueIndex(NOW, files, 1)
    index.add(entries(*((NOW + 5 * HOUR_MS, 0, offset) for offset in range(6))))
    files.fails = True
    with pytest.raises(OSError, match="on purpose"):
        index.advance(NOW + 5 * HOUR_MS)
    files.fails = False
    advance(index, NOW + 5 * HOUR_MS)
    assert len(index.take(NOW + 5 * HOUR_MS, 100)) == 6, "nothing was lost in memory either"


def test_no_call_moves_or_sorts_more_than_a_part() -> None:
    """However many records are due in one hour, or at one time: the calls are made on the event loop."""
    count, now = 6 * due_index.SLICE, NOW + 5 * HOUR_MS
    index = DueIndex(NOW, MemoryFiles(), 1_000)
    added = np.zeros((count, 3), dtype=np.int64)
    added[:, 0], added[:, 2] = now, np.arange(count)[::-1]
    for begin in range(0, count, 10_000):
        index.add(added[begin : begin + 10_000])
    with mock.patch.object(due_runs, "sort_entries", wraps=due_runs.sort_entries) as sort:
        calls = 0
        while index.advance(now):
            calls += 1
        assert 6 <= calls <= 20
        assert max(len(call.args[0]) for call in sort.call_args_list) <= due_runs.RUN_MAX
    found = np.concatenate([index.take(now, 5_000) for _ in range(count // 5_000 + 1)])
    assert found[:, 2].tolist() == list(range(count)) and not len(index)


@pytest.mark.exhaustive
def test_records_that_came_one_by_one_are_moved_together() -> None:
    """Moving a part costs processor time by its records, which may be as many pieces, and not by their square."""
    index, count = DueIndex(NOW, MemoryFiles(), 1_000_000), due_index.SLICE // 2
    began_s = time.thread_time()
    for offset in range(count):
        index.add(entries((NOW + 5 * HOUR_MS, 0, offset)))
        index.advance(NOW)
    added_s = time.thread_time() - began_s
    advance(index, NOW + 5 * HOUR_MS)
    assert time.thread_time() - began_s - added_s < added_s
    assert index.take(NOW + 5 * HOUR_MS, count)[:, 2].tolist() == list(range(count))


def test_what_is_peeked_at_stays() -> None:
    runs = DueRuns()
    runs.add(entries((5, 0, 1), (3, 1, 2), (3, 0, 7)))
    runs.add(entries((4, 0, 3)))
    assert runs.peek(4, 2).tolist() == runs.take(4, 2).tolist() == [[3, 0, 7], [3, 1, 2]]
    assert runs.take(9, 9)[:, 2].tolist() == [3, 1]
    assert runs.next_due_ms is None


@given(
    st.lists(st.tuples(st.booleans(), st.sets(st.integers(0, 9_000), max_size=5)), max_size=20), st.integers(0, 9_000)
)
@settings(deadline=None)
def test_a_set_of_offsets_is_a_set(changes: list[tuple[bool, set[int]]], start: int) -> None:
    offsets, model = OffsetSet(10), set[int]()
    for adds, changed in changes:
        array = np.array(sorted(changed), dtype=np.int64)
        (offsets.add if adds else offsets.discard)(array)
        model = model | {each for each in changed if each >= 10} if adds else model - changed
        assert len(offsets) == len(model)
    offsets.raise_start(start)
    model = {each for each in model if each >= start}
    assert offsets.offsets(0, 10_000).tolist() == sorted(model)
    assert offsets.count(100, 5_000) == sum(100 <= each < 5_000 for each in model)
    every = np.arange(9_100)
    assert np.flatnonzero(offsets.contains(every)).tolist() == sorted(model)
