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
from kafkalake.uuid_text import is_uuid_text

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalake.client.administration.blocking import Admin
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
        if topic is not None and topic not in known and not is_uuid_text(topic):
            close = did_you_mean(topic, known)
            raise Failure(f"topic '{topic}' does not exist" + (f"; {close}" if close else ""))
        return waiting(self.scan, self.names, columns, topic=topic, due_end_us=due_end_us)


def of_lake(lake: Path) -> DelayedSource:
    """Return what the files of a lake say. Raise `LakeError`."""
    return DelayedSource(*scan_lake(lake))


def of_broker(admin: Admin, bootstrap_server: str) -> DelayedSource:
    """Return what a broker says."""
    topics = {each.name: each for each in admin.list_topics()}
    journal = topics.get(DELAYED_JOURNAL)
    names = {each.topic_id: each.name for each in topics.values() if each.topic_id is not None}
    if journal is None:
        return DelayedSource(scan_nothing, names)
    return DelayedSource(_scan(admin, bootstrap_server, [each.partition for each in journal.partitions]), names)


def _scan(admin: Admin, bootstrap_server: str, partitions: Sequence[int]) -> Scan:
    from kafkalake.cli.consume import POLL_NEAR_END_S, new_consumer, unread
    from kafkalake.client.administration.partition_offsets import LATEST

    journal = [(DELAYED_JOURNAL, each) for each in partitions]
    found = admin.list_offsets(dict.fromkeys(journal, LATEST), read_committed=True)
    ends = {partition: each.offset for (_, partition), each in found.items()}

    def scan(columns: Sequence[str], selection: Selection) -> Iterator[tuple[int, pa.RecordBatch]]:
        more = {"isolation.level": "read_committed", "max.partition.fetch.bytes": FETCH_BYTES}
        with new_consumer(bootstrap_server, "earliest", more) as consumer:
            consumer.assign(journal)
            consumer.seek_to_beginning()
            while unread(consumer, DELAYED_JOURNAL, ends):
                for batch in consumer.poll_arrow(POLL_NEAR_END_S):
                    partition = batch.column("partition")[0].as_py()
                    yield partition, _before(batch, ends[partition]).select(columns)

    return scan


def _before(records: pa.RecordBatch, end: int) -> pa.RecordBatch:
    import numpy as np

    return records.slice(0, int(np.searchsorted(records.column("offset").to_numpy(), end)))
