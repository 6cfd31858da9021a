"""After a kill: which segments Delta lacks and which it has too many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memory_store import MemoryMetadataStore
from metadata_rows import published, segment_row

from kafkalake.broker.publishing.reconcile import reconcile
from kafkalake.metadata.tables.schemas import SegmentRow

A, B, C = (segment_row(base=base) for base in (0, 100, 200))
B_SHORTER = segment_row(base=100, size=40)
A_COMPACTED = segment_row(base=0, generation=1)
AB_COMPACTED = segment_row(base=0, size=200, generation=1)


@pytest.mark.parametrize(
    ("on_disk", "in_delta", "missing", "gone"),
    [
        ([], [], [], []),
        ([A, B], [A, B], [], []),
        ([A, B], [A], [B], []),
        ([A, B], [], [A, B], []),
        ([B], [A, B], [], [A]),
        ([], [A], [], [A]),
        ([A, B_SHORTER], [A, B], [B_SHORTER], []),
        ([A, A_COMPACTED], [A_COMPACTED], [A], []),
        ([A, B, C, AB_COMPACTED], [AB_COMPACTED], [A, B, C], []),
        ([A, B], [AB_COMPACTED], [A, B], [AB_COMPACTED]),
        ([A, A_COMPACTED], [A], [A_COMPACTED], []),
    ],
)
def test_what_is_missing_and_what_is_gone(
    on_disk: list[SegmentRow], in_delta: list[SegmentRow], missing: list[SegmentRow], gone: list[SegmentRow]
) -> None:
    repair = reconcile(on_disk, in_delta)
    assert list(repair.missing) == missing
    assert list(repair.gone) == [row.key for row in gone]


_segments = st.lists(
    st.builds(
        lambda base, size, partition: segment_row(partition=partition, base=base * 100, size=size),
        st.integers(0, 5),
        st.sampled_from([50, 100]),
        st.integers(0, 1),
    ),
    unique_by=lambda row: row.key,
)


@given(on_disk=_segments, in_delta=_segments)
def test_publishing_the_repair_makes_delta_equal_to_the_disk(
    on_disk: list[SegmentRow], in_delta: list[SegmentRow]
) -> None:
    store = MemoryMetadataStore()
    store.publish(published(0, [], in_delta))
    repair = reconcile(on_disk, store.load_segments())
    store.publish(published(1, [], repair.missing, repair.gone))
    assert store.load_segments() == sorted(on_disk, key=lambda row: (row.partition, row.base_offset))
    again = reconcile(on_disk, store.load_segments())
    assert (again.missing, again.gone) == ((), ())
