"""Verifies the files of a lake against themselves and against its Delta tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kafkalake.metadata import paths
from kafkalake.metadata.catalog import directory_of
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.storage.verify import Problem, PublishedPartition, PublishedSegment, verify_lake


def verify(store: DeltaMetadataStore, topics: Collection[str] | None = None) -> Iterator[Problem]:
    """Yield inconsistencies in the logs of a lake, or of some of its topics, in themselves and with its Delta tables."""
    # Read Delta first: the disk, read later, is then never behind what was published.
    segments = [
        PublishedSegment(
            row.path,
            row.base_offset,
            row.next_offset,
            row.records,
            row.bytes,
            row.min_timestamp_ms,
            row.max_timestamp_ms,
        )
        for row in store.load_segments()
    ]
    partitions = [
        PublishedPartition(
            paths.relative_path(store.lake, directory_of(store.lake, row)),
            row.log_start_offset,
            row.high_watermark,
            row.last_stable_offset,
            row.log_end_offset,
        )
        for row in store.load_partitions()
    ]
    yield from verify_lake(store.lake, segments, partitions, topics)
