"""`transactions`: one row for each transactional id, the newest, and nothing twice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from manual_clock import ManualClock
from memory_store import MemoryMetadataStore, MetadataStore
from metadata_rows import NOW_MS

from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.store import Transactions
from kafkalake.metadata.tables.schemas import TransactionRow

pytestmark = pytest.mark.exhaustive

ROW = TransactionRow(
    transactional_id="copier",
    producer_id=7,
    producer_epoch=3,
    state="Ongoing",
    partitions=(("clicks", 0), ("clicks", 4)),
    timeout=60_000,
    updated_at_ms=NOW_MS,
    started_at_ms=None,
    previous_producer_id=-1,
    next_producer_id=-1,
    client_version=2,
    journal_partition=3,
    journal_offset=5,
)


@pytest.fixture(params=["delta", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    store: MetadataStore = (
        MemoryMetadataStore(ManualClock(NOW_MS)) if request.param == "memory" else DeltaMetadataStore(tmp_path / "lake")
    )
    yield store
    store.close()


def test_a_new_lake_has_none(store: MetadataStore) -> None:
    assert list(store.load_transactions().rows) == []


def test_a_row_replaces_the_one_before_and_the_others_stay(store: MetadataStore) -> None:
    other = replace(ROW, transactional_id="other", journal_partition=1, journal_offset=0, started_at_ms=NOW_MS)
    store.publish_transactions(Transactions([ROW, other], {3: 6, 1: 1}))
    ended = replace(ROW, state="CompleteCommit", partitions=(), journal_offset=7)
    store.publish_transactions(Transactions([ended], {3: 8}))
    loaded = store.load_transactions()
    assert list(loaded.rows) == [ended, other]
    assert (loaded.positions[3], loaded.positions[1]) == (8, 1)


def test_what_was_published_is_not_published_again(store: MetadataStore) -> None:
    newer = replace(ROW, producer_epoch=4, journal_offset=9)
    store.publish_transactions(Transactions([newer], {3: 10}))
    store.publish_transactions(Transactions([ROW], {3: 6}))
    loaded = store.load_transactions()
    assert (list(loaded.rows), loaded.positions[3]) == ([newer], 10)


def test_an_expired_id_goes_and_the_position_stays(store: MetadataStore) -> None:
    store.publish_transactions(Transactions([ROW], {3: 6}))
    store.publish_transactions(Transactions([replace(ROW, state="Dead", partitions=(), journal_offset=6)], {3: 7}))
    loaded = store.load_transactions()
    assert (list(loaded.rows), loaded.positions[3]) == ([], 7)


def test_several_brokers_publish_their_partitions_of_the_journal(tmp_path: Path) -> None:
    """Each replaces the table's file on top of what the others have published. A former leader of a partition changes nothing."""
    lake = tmp_path / "lake"
    first, second = DeltaMetadataStore(lake), DeltaMetadataStore(lake)
    other = replace(ROW, transactional_id="other", journal_partition=1, journal_offset=0)
    for store, row in ((first, ROW), (second, other), (first, replace(ROW, producer_epoch=4, journal_offset=9))):
        store.publish_transactions(Transactions([row], {row.journal_partition: row.journal_offset + 1}))
    second.publish_transactions(Transactions([replace(ROW, producer_epoch=5, journal_offset=12)], {3: 13}))
    first.publish_transactions(Transactions([replace(ROW, producer_epoch=4, journal_offset=10)], {3: 11}))
    loaded = second.load_transactions()
    assert [(row.transactional_id, row.producer_epoch) for row in loaded.rows] == [("copier", 5), ("other", 3)]
    assert (loaded.positions[3], loaded.positions[1]) == (13, 1)
