"""`group_offsets`: what a publish adds, what a broker loads again, and how the table stays small."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from manual_clock import ManualClock
from memory_store import MemoryMetadataStore, MetadataStore
from metadata_rows import NOW_MS

from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.paths import table_path
from kafkalake.metadata.store import PublishedOffsets
from kafkalake.metadata.tables import group_offsets
from kafkalake.metadata.tables.schemas import GROUP_OFFSETS_SCHEMA, GroupOffsetRow, to_table

pytestmark = pytest.mark.exhaustive


def row(
    position: int, offset: int | None = None, *, group: str = "etl", partition: int = 0, journal: int = 3
) -> GroupOffsetRow:
    return GroupOffsetRow(
        group=group,
        topic="clicks",
        topic_id=None,
        partition=partition,
        offset=offset,
        leader_epoch=0,
        metadata="",
        committed_at_ms=NOW_MS + position,
        expires_at_ms=None,
        journal_partition=journal,
        journal_offset=position,
    )


@pytest.fixture(params=["delta", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    store: MetadataStore = (
        MemoryMetadataStore(ManualClock(NOW_MS)) if request.param == "memory" else DeltaMetadataStore(tmp_path / "lake")
    )
    yield store
    store.close()


def test_the_newest_row_of_a_partition_counts(store: MetadataStore) -> None:
    store.publish_group_offsets(PublishedOffsets([row(0, 10), row(1, 5, partition=1)], {3: 2}))
    store.publish_group_offsets(PublishedOffsets([row(4, 7), row(3, None, partition=1)], {3: 5}))
    loaded = store.load_group_offsets()
    assert loaded.rows == [row(4, 7)]
    assert loaded.positions[3] == 5


def test_older_versions_say_what_was_committed_then(store: MetadataStore) -> None:
    first = store.publish_group_offsets(PublishedOffsets([row(0, 10)], {3: 1}))
    store.publish_group_offsets(PublishedOffsets([row(1, 20)], {3: 2}))
    assert store.load_group_offsets(version=first) == PublishedOffsets([row(0, 10)], {})


def test_what_is_published_is_not_published_again(store: MetadataStore) -> None:
    version = store.publish_group_offsets(PublishedOffsets([row(0, 10), row(1, 5, partition=1)], {3: 2}))
    again = PublishedOffsets([row(0, 10), row(1, 5, partition=1)], {3: 2})
    assert store.publish_group_offsets(again) == version
    assert store.publish_group_offsets(PublishedOffsets([*again.rows, row(2, 6)], {3: 3})) == version + 1
    assert len(store.load_group_offsets().rows) == 2


def test_partitions_of_the_journal_are_published_by_themselves(store: MetadataStore) -> None:
    store.publish_group_offsets(PublishedOffsets([row(8, 10)], {3: 9}))
    store.publish_group_offsets(PublishedOffsets([row(0, 1, group="other", journal=1)], {1: 1}))
    loaded = store.load_group_offsets()
    assert [found.group for found in loaded.rows] == ["etl", "other"]
    assert (loaded.positions[1], loaded.positions[3]) == (1, 9)


def test_a_publish_carries_the_positions_as_deltas_transactions(tmp_path: Path) -> None:
    store = DeltaMetadataStore(tmp_path)
    store.publish_group_offsets(PublishedOffsets([row(0, 1), row(0, 1, group="b", journal=0)], {3: 1, 0: 7}))
    table = DeltaTable(table_path(tmp_path, "group_offsets"))
    assert table.version() == 1
    assert table.transaction_version("kafkalake-group-offsets-3") == 1
    assert table.transaction_version("kafkalake-group-offsets-0") == 7


def test_many_publishes_make_few_files_and_lose_nothing_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_offsets, "FILES_MAX", 4)
    monkeypatch.setattr(group_offsets, "HISTORY_ROWS", 20)
    store = DeltaMetadataStore(tmp_path)
    for position in range(120):
        store.publish_group_offsets(
            PublishedOffsets([row(position, position, partition=position % 3)], {3: position + 1})
        )
    table = DeltaTable(table_path(tmp_path, "group_offsets"))
    assert len(table.file_uris()) <= 5
    assert table.to_pyarrow_table().num_rows <= 60
    again = DeltaMetadataStore(tmp_path).load_group_offsets()
    assert [(found.partition, found.offset) for found in again.rows] == [(0, 117), (1, 118), (2, 119)]
    assert again.positions[3] == 120


def test_an_offset_that_is_gone_does_not_come_back_when_history_is_cut() -> None:
    rows = [row(0, 1), row(1, 2, partition=1), row(2, None), row(3, 3, partition=2), row(4, 4, partition=2)]
    cut = group_offsets.without_old_history(to_table(GROUP_OFFSETS_SCHEMA, rows), history_rows=2)
    assert cut.column("journal_offset").to_pylist() == [1, 3, 4]
    kept = group_offsets.without_old_history(to_table(GROUP_OFFSETS_SCHEMA, rows), history_rows=3)
    assert kept.column("journal_offset").to_pylist() == [1, 2, 3, 4]
