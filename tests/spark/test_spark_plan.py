"""Plans: every offset that is asked for is read once, in pieces of about the same size, and nothing else is touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kafkalake.errors import OffsetOutOfRangeError
from kafkalake.reader.bounds import bounded
from kafkalake.reader.plan import PIECE_BYTES_MAX, SegmentSlice, plan_slices
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read import PartitionSnapshot, Read, SegmentFile
from kafkalake.reader.read_options import LATEST, OffsetRule, ReadOptions
from kafkalake.storage.producer_state import AbortedTransaction
from kafkalake.storage.txn_index import encode_aborted, encode_seal

OPTIONS = ReadOptions(lake="/lake", topics=("clicks",), isolation="read_uncommitted")
MIB = 1 << 20


def snapshot(
    partition: int, sizes: list[int], per_segment: int = 1000, start: int = 0, cut: int = 0
) -> PartitionSnapshot:
    """A partition of segments of `sizes` bytes; timestamps of segment k are [1000 k, 1000 k + 999] ms."""
    segments = [
        SegmentFile(
            per_segment * k,
            per_segment * (k + 1),
            f"/lake/{partition}/{per_segment * k:020d}.arrow",
            size,
            1000 * k,
            1000 * k + 999,
            sealed=True,
        )
        for k, size in enumerate(sizes)
    ]
    return PartitionSnapshot("clicks", partition, start, per_segment * len(sizes) - cut, segments)


def test_what_a_group_has_committed_comes_before_the_starting_offsets_and_must_be_there() -> None:
    options = replace(OPTIONS, group="etl", starting=OffsetRule(LATEST))
    both = [snapshot(0, [1, 1], start=500), snapshot(1, [1, 1], start=500)]

    def starts(committed: int, **changes: Any) -> list[int]:
        return [*bounded(Read(replace(options, **changes), both), {("clicks", 0): committed}).starts.values()]

    assert starts(700) == [700, 2000]
    for gone, nearest in ((499, 500), (2001, 2000)):
        with pytest.raises(OffsetOutOfRangeError, match=f"group etl has committed: {gone} of clicks-0 is not there"):
            starts(gone)
        assert starts(gone, fail_on_data_loss=False) == [nearest, 2000]


def covered(groups: list[list[SegmentSlice]]) -> list[tuple[int, int]]:
    """Every (partition, offset) that the slices read, with repetitions."""
    pieces = [piece for group in groups for piece in group]
    return sorted((piece.partition, offset) for piece in pieces for offset in range(piece.from_offset, piece.to_offset))


@examples(60)
@given(
    st.lists(st.lists(st.integers(0, 3 * PIECE_BYTES_MAX), min_size=1, max_size=6), min_size=1, max_size=3),
    st.integers(0, 40),
    st.integers(0, 9),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 60)),
    st.integers(1, 8),
)
def test_every_offset_is_read_once(
    sizes: list[list[int]], start: int, cut: int, at_least: int | None, records_max: int | None, cores: int
) -> None:
    snapshots = [
        snapshot(partition, of_partition, per_segment=50, start=start, cut=cut)
        for partition, of_partition in enumerate(sizes)
    ]
    options = ReadOptions(
        lake="/lake", isolation="read_uncommitted", partitions_min=at_least, records_per_partition_max=records_max
    )
    groups = plan_slices(Read(options, snapshots), Selection(), cores)
    expected = [(view.partition, offset) for view in snapshots for offset in range(view.start_offset, view.end_offset)]
    assert covered(groups) == expected
    if at_least is not None:
        assert len(groups) >= min(at_least, len(expected))
    if records_max is not None:
        assert max((sum(p.to_offset - p.from_offset for p in group) for group in groups), default=0) <= records_max


@pytest.mark.exhaustive
def test_large_segments_are_split_and_small_ones_put_together() -> None:
    large = plan_slices(Read(OPTIONS, [snapshot(0, [1024 * MIB])]), Selection(), cores=2)
    assert len(large) == 4
    assert {len(group) for group in large} == {1}
    small = plan_slices(Read(OPTIONS, [snapshot(0, [4096] * 5000)]), Selection(), cores=2)
    assert len(small) <= 12
    tiny = plan_slices(Read(OPTIONS, [snapshot(p, [4096]) for p in range(50)]), Selection(), cores=2)
    assert len(tiny) <= 4


def test_no_group_is_much_larger_than_another() -> None:
    sizes = [50 * MIB, 700 * MIB, 3 * MIB, 129 * MIB, 1 * MIB, 90 * MIB]
    costs = [
        sum(piece.cost for piece in group) for group in plan_slices(Read(OPTIONS, [snapshot(0, sizes)]), Selection(), 4)
    ]
    assert max(costs) < 2 * PIECE_BYTES_MAX
    assert len(costs) <= 12


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection().with_offset_range(2500, 2600), [(0, 2500, 2600), (1, 2500, 2600)]),
        (Selection().with_partitions([1]).with_offset_range(999, 1001), [(1, 999, 1000), (1, 1000, 1001)]),
        (Selection().with_partition_range(1, 9).with_offset_range(-5, 1), [(1, 0, 1)]),
        (
            Selection().with_time_range(3_999_000, 4_000_001),
            [(0, 3000, 4000), (0, 4000, 5000), (1, 3000, 4000), (1, 4000, 5000)],
        ),
        (Selection().with_offsets([7, 9, 19_500]).with_partitions([0]), [(0, 7, 10), (0, 19_500, 19_501)]),
        (
            Selection().with_either(
                [Selection().with_offset_range(5, 7), Selection().with_partitions([1]).with_offsets([19_500])]
            ),
            [(0, 5, 7), (1, 5, 7), (1, 19_500, 19_501)],
        ),
        (
            Selection()
            .with_either([Selection().with_time_range(0, 1), Selection().with_offset_range(19_999, 30_000)])
            .with_either([Selection().with_partitions([0]), Selection().with_partitions([7])]),
            [(0, 0, 1000), (0, 19_000, 20_000)],
        ),
        (Selection().with_either([Selection().with_partitions([5]), Selection().with_topics(["clacks"])]), []),
        (Selection().with_topics(["clacks"]), []),
        (Selection().with_offsets([]), []),
        (Selection().with_offset_range(5, 3), []),
    ],
)
def test_a_selection_leaves_few_slices(selection: Selection, expected: list[tuple[int, int, int]]) -> None:
    groups = plan_slices(Read(OPTIONS, [snapshot(p, [MIB] * 20) for p in range(2)]), selection, cores=2)
    assert (
        sorted((piece.partition, piece.from_offset, piece.to_offset) for group in groups for piece in group) == expected
    )


def test_slices_know_the_aborted_transactions_in_them(tmp_path: Path) -> None:
    def index(base: int, *entries: AbortedTransaction) -> SegmentFile:
        path = tmp_path / f"{base:020d}.arrow"
        data = b"".join(encode_aborted(entry, number) for number, entry in enumerate(entries)) + encode_seal(
            len(entries)
        )
        path.with_suffix(".txnindex").write_bytes(data)
        return SegmentFile(base, base + 100, str(path), 1000, sealed=True)

    segments = [
        index(0, AbortedTransaction(1, 10, 20, 21)),
        index(100, AbortedTransaction(2, 30, 150, 50)),
        index(200, AbortedTransaction(3, 50, 260, 261), AbortedTransaction(1, 270, 280, 281)),
    ]
    view = PartitionSnapshot("clicks", 0, 0, 200, segments[:2], segments[2:])
    options = ReadOptions(lake="/lake")
    (group,) = plan_slices(Read(options, [view]), Selection(), cores=1)
    assert [piece.aborted for piece in group] == [
        ((1, 10, 20), (2, 30, 150), (3, 50, 260)),
        ((2, 30, 150), (3, 50, 260)),
    ]
    ((piece,),) = plan_slices(Read(options, [view]), Selection().with_offset_range(160, 170), cores=1)
    assert piece.aborted == ((3, 50, 260),)
