"""The wire cache against a plain list of batches."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kafkalake.broker.partitions.wire_cache import EncodedRead, PartitionTail, WireCache

Batch = tuple[int, int, bytes]


def append(tail: PartitionTail, batch: Batch) -> bool:
    base_offset, next_offset, data = batch
    room = tail.reserve(len(data), base_offset, next_offset)
    if room is not None:
        room[:] = data
    return room is not None


def read(tail: PartitionTail, offset: int, end_offset: int, bytes_max: int, first_whole: bool) -> bytes | None:
    found = tail.read(offset, end_offset, bytes_max, first_whole=first_whole)
    if found is None:
        return None
    views, total = found
    data = b"".join(views)
    assert len(data) == total
    return data


def expected(batches: list[Batch], offset: int, end_offset: int, bytes_max: int, first_whole: bool) -> bytes:
    data = b""
    for _base_offset, next_offset, batch in batches:
        if next_offset <= offset:
            continue
        if next_offset > end_offset or (len(data) + len(batch) > bytes_max and not (first_whole and not data)):
            break
        data += batch
        if len(data) > bytes_max:
            break
    return data


def numbered(sizes: list[tuple[int, int]]) -> list[Batch]:
    batches = []
    offset = 100
    for number, (records, length) in enumerate(sizes):
        batches.append((offset, offset + records, bytes([number % 256]) * length))
        offset += records
    return batches


@examples(300)
@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 40_000)), min_size=1, max_size=40),
    st.integers(0, 300),
    st.integers(0, 300),
    st.integers(0, 200_000),
    st.booleans(),
)
def test_gives_the_whole_batches_that_fit(
    sizes: list[tuple[int, int]], offset: int, end_offset: int, bytes_max: int, first_whole: bool
) -> None:
    tail = WireCache(1 << 30).tail()
    batches = numbered(sizes)
    for batch in batches:
        assert append(tail, batch)
    found = read(tail, offset, end_offset, bytes_max, first_whole)
    if 100 <= offset < batches[-1][1]:
        assert found == expected(batches, offset, end_offset, bytes_max, first_whole)
    else:
        assert found is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60_000)), max_size=80))
def test_stays_within_its_budget_and_keeps_the_newest(appends: list[tuple[int, int]]) -> None:
    cache = WireCache(300_000)
    tails = [cache.tail() for _ in range(4)]
    ends = [0] * 4
    for which, length in appends:
        assert append(tails[which], (ends[which], ends[which] + 1, bytes([which]) * length))
        ends[which] += 1
        assert read(tails[which], ends[which] - 1, ends[which], 1, True) == bytes([which]) * length
        live = sum(chunk.size for tail in tails for chunk in tail._chunks)
        assert cache.bytes == live
        assert live <= 300_000 + 1024 * 1024


def test_a_gap_lets_the_older_batches_go() -> None:
    tail = WireCache(1 << 20).tail()
    assert append(tail, (0, 5, b"a" * 10))
    assert append(tail, (7, 9, b"b" * 10))
    assert read(tail, 0, 9, 100, True) is None
    assert read(tail, 7, 9, 100, True) == b"b" * 10


def test_a_batch_too_large_for_the_cache_is_not_kept() -> None:
    tail = WireCache(1000).tail()
    assert append(tail, (0, 1, b"a" * 10))
    assert not append(tail, (1, 2, b"b" * 600))
    assert read(tail, 0, 2, 100, True) is None


def test_a_view_in_use_outlives_its_chunk() -> None:
    cache = WireCache(40_000)
    tail = cache.tail()
    assert append(tail, (0, 1, b"a" * 9_000))
    found = tail.read(0, 1, 10_000, first_whole=True)
    assert found is not None
    for offset in range(1, 50):
        assert append(tail, (offset, offset + 1, b"b" * 9_000))
    assert bytes(found[0][0]) == b"a" * 9_000
    assert read(tail, 0, 50, 100, True) is None


def test_clearing_often_keeps_no_dead_chunks() -> None:
    cache = WireCache(1 << 30)
    tail = cache.tail()
    for offset in range(0, 20_000, 2):
        assert append(tail, (offset, offset + 1, b"x"))
    assert len(cache._by_age) < 200


def test_memory_is_used_again_but_not_while_a_view_is_in_use() -> None:
    cache = WireCache(4 * 1024 * 1024)
    tail = cache.tail()
    held = []
    for offset in range(40):
        assert append(tail, (offset, offset + 1, bytes([offset]) * 600_000))
        if offset % 3 == 0:
            found = tail.read(offset, offset + 1, 1_000_000, first_whole=True)
            assert found is not None
            held.append((offset, found[0][0]))
    for offset, view in held:
        assert bytes(view) == bytes([offset]) * 600_000


KIB = 1024


def encoded(next_offset: int, end_offset: int, size: int = 100 * KIB) -> EncodedRead:
    return EncodedRead(memoryview(bytes(size)), next_offset, end_offset, size, size)


def side_by_side(cache: WireCache) -> PartitionTail:
    """A tail whose consumers have just asked for the same."""
    tail = cache.tail()
    for _ in range(2):
        assert tail.read_encoded(-1, 9, 1) is None
    return tail


def test_a_read_is_what_the_files_would_give_now() -> None:
    tail = side_by_side(WireCache(4096 * KIB))
    cut_by_its_limit, up_to_the_end = encoded(50, 80), encoded(80, 80)
    tail.keep_encoded(0, 1000, cut_by_its_limit)
    tail.keep_encoded(50, 1000, up_to_the_end)
    assert tail.read_encoded(0, 80, 1000) is tail.read_encoded(0, 200, 1000) is cut_by_its_limit
    assert tail.read_encoded(50, 80, 1000) is up_to_the_end
    assert tail.read_encoded(50, 81, 1000) is None  # there is more to read
    assert tail.read_encoded(0, 49, 1000) is None  # not all is readable, as for a read_committed consumer
    assert tail.read_encoded(0, 80, 999) is None
    assert tail.read_encoded(1, 80, 1000) is None


def test_reads_take_a_quarter_of_the_budget_and_those_used_last_stay() -> None:
    cache = WireCache(1200 * KIB)
    first, second = side_by_side(cache), side_by_side(cache)
    for number in range(3):
        first.keep_encoded(number, 1, encoded(number + 1, 9))
    assert first.read_encoded(0, 9, 1) is not None
    second.keep_encoded(0, 1, encoded(1, 9))
    assert [first.read_encoded(number, 9, 1) is not None for number in range(3)] == [True, False, True]
    second.keep_encoded(7, 1, encoded(8, 9, 301 * KIB))  # larger than the quarter
    second.keep_encoded(8, 1, encoded(9, 9, 63 * KIB))  # not worth it
    assert second.read_encoded(7, 9, 1) is second.read_encoded(8, 9, 1) is None
    assert cache.bytes == 300 * KIB


@pytest.mark.parametrize(("stored_bytes", "expected"), [(120, 1200), (38, 1000), (400, 2000)])
def test_a_read_takes_the_bytes_that_the_last_one_needed(stored_bytes: int, expected: int) -> None:
    tail = WireCache(4096 * KIB).tail()
    assert tail.stored_bytes_for(1000) == 1000
    tail.keep_encoded(0, 1000, EncodedRead(memoryview(bytes(100)), 1, 9, 100, stored_bytes))
    assert tail.stored_bytes_for(1000) == expected
    tail.keep_encoded(1, 1000, EncodedRead(memoryview(b""), 1, 9, 0, 0))
    assert tail.stored_bytes_for(1000) == expected


def test_reads_make_way_for_a_changed_log_and_count_in_the_budget() -> None:
    cache = WireCache(4096 * KIB)
    tail = side_by_side(cache)
    for number in range(80):
        append(tail, (number, number + 1, bytes(60 * KIB)))
    start = tail.start_offset
    tail.keep_encoded(0, 1, encoded(1, 9, 1024 * KIB))
    assert start is not None and tail.start_offset is not None and tail.start_offset > start
    assert cache.bytes <= cache.bytes_max
    generation = tail.generation
    tail.forget()
    assert (tail.read_encoded(0, 9, 1), tail.start_offset, cache.bytes) == (None, None, 0)
    assert tail.generation != generation


def test_a_read_is_kept_only_while_consumers_are_side_by_side() -> None:
    tail = WireCache(4096 * KIB).tail()

    def is_kept(offset: int) -> bool:
        assert tail.read_encoded(offset, 99, 1) is None
        tail.keep_encoded(offset, 1, encoded(offset + 1, 99))
        return (offset, 1) in tail._encoded

    assert not is_kept(0)
    assert is_kept(0)  # a second consumer
    assert all(is_kept(offset) for offset in range(1, 32))
    assert not is_kept(32)
