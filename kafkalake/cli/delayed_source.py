"""Where `kafkalake delayed` finds what waits: the files of a lake, or `__delayed` as a broker serves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from kafkalake.cli.output import Failure
from kafkalake.close_names import did_you_mean
from kafkalake.internal_topics import DELAYED_JOURNAL
from kafkalake.reader.delayed import DELAYED_SCHEMA, Scan, scan_lake, scan_nothing, waiting

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalake.client.cluster import Cluster
    from kafkalake.reader.predicate import Selection

FETCH_BYTES = 8 << 20


@dataclass(frozen=True)
class DelayedSource:
    """The journal, and the names of the topics by id."""

    scan: Scan
    names: Mapping[UUID, str]

    def waiting(
        self, columns: Sequence[str] = tuple(DELAYED_SCHEMA.names), *, topic: str | None, due_end_us: int
    ) -> pa.RecordBatchReader:
        """Return what waits, as `reader.delayed.waiting`. Raise `Failure` if there is no such topic."""
        known = sorted(self.names.values())
        if topic is not None and topic not in known and not _is_id(topic):
            close = did_you_mean(topic, known)
            raise Failure(f"topic '{topic}' does not exist" + (f"; {close}" if close else ""))
        return waiting(self.scan, self.names, columns, topic=topic, due_end_us=due_end_us)


def of_lake(lake: Path) -> DelayedSource:
    """Return what the files of a lake say. Raise `LakeError`."""
    return DelayedSource(*scan_lake(lake))


def of_broker(cluster: Cluster) -> DelayedSource:
    """Return what a broker says."""
    topics = {each.name: each for each in cluster.topics()}
    journal = topics.get(DELAYED_JOURNAL)
    scan = scan_nothing if journal is None else _scan(cluster, [each.partition for each in journal.partitions])
    names = {each.topic_id: each.name for each in topics.values() if each.topic_id is not None}
    return DelayedSource(scan, names)


def _scan(cluster: Cluster, partitions: Sequence[int]) -> Scan:
    from kafkalake.client.admin import EARLIEST, LATEST, list_offsets
    from kafkalake.client.fetcher import Fetcher

    found = list_offsets(cluster, DELAYED_JOURNAL, dict.fromkeys(partitions, LATEST), read_committed=True)
    ends = {partition: each.offset for partition, each in found.items()}

    def scan(columns: Sequence[str], selection: Selection) -> Iterator[tuple[int, pa.RecordBatch]]:
        starts = list_offsets(cluster, DELAYED_JOURNAL, dict.fromkeys(partitions, EARLIEST))
        fetcher = Fetcher(
            cluster,
            DELAYED_JOURNAL,
            {partition: each.offset for partition, each in starts.items()},
            read_committed=True,
            partition_max_bytes=FETCH_BYTES,
            out_of_range="earliest",
        )
        while behind := [partition for partition in partitions if fetcher.positions[partition] < ends[partition]]:
            for each in fetcher.poll(behind):
                yield each.partition, _before(each.records, ends[each.partition]).select(columns)

    return scan


def _before(records: pa.RecordBatch, end: int) -> pa.RecordBatch:
    import numpy as np

    return records.slice(0, int(np.searchsorted(records.column("offset").to_numpy(), end)))


def _is_id(topic: str) -> bool:
    from kafkalake.uuid_text import decode_uuid

    try:
        return bool(decode_uuid(topic))
    except ValueError:
        return False
