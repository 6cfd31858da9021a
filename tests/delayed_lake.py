"""A lake with records that wait in `__delayed`, written with no broker, as its coordinator writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
from written_lake import WrittenLake

from kafkalake.delayed_journal import (
    NO_DUE_TIME,
    Kind,
    Note,
    Origin,
    Reason,
    encode,
    encode_notes,
    journal_partition,
    note,
)
from kafkalake.internal_topics import DELAYED_JOURNAL
from kafkalake.record.schema import SCHEMA
from kafkalake.topic_partition import PartitionId, TopicPartition

JOURNAL_PARTITIONS = 3
SENT_MS = 1_000


class Waiting(NamedTuple):
    """A record to wait: when it is due (ms; `NO_DUE_TIME`: a cancel), and what it holds."""

    due_ms: int
    key: bytes | None = None
    value: bytes | None = None
    delay_id: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class DelayedLake(WrittenLake):
    """The topics `orders` and `orders-delay-5s`, of two partitions, and `__delayed`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.create("orders", 2)
        self.create("orders-delay-5s", 2)
        self.create(DELAYED_JOURNAL, JOURNAL_PARTITIONS)
        self._sent = 0

    def id_of(self, topic: str) -> UUID:
        return UUID(self.topics[topic].topic_id)

    def hand_in(
        self,
        target: TopicPartition,
        records: Sequence[Waiting],
        *,
        source: TopicPartition | None = None,
        producer_id: int = -1,
        is_transactional: bool = False,
    ) -> PartitionId[int]:
        """Write what one batch has; returns the journal partition and the offset there of the first."""
        where = self._identity(target)
        batch = encode(
            _rows(records),
            np.array([each.due_ms for each in records]),
            Origin(where, self._identity(source or target), producer_id, 0, -1, self._sent, is_transactional),
            pa.array([each.delay_id for each in records], pa.binary()),
            SENT_MS + 1,
        )
        self._sent += len(records)
        partition = journal_partition(where, JOURNAL_PARTITIONS)
        return partition, self.append_batch(DELAYED_JOURNAL, partition, batch)

    def finish(self, target: TopicPartition, offsets: Sequence[int], reason: Reason = Reason.HANDED_OVER) -> None:
        """Write that what is at these offsets of the journal waits no longer."""
        where = self._identity(target)
        written = note(Note(Kind.FINISHED, where, -1, -1, np.array(offsets), reason))
        self.append_batch(DELAYED_JOURNAL, journal_partition(where, JOURNAL_PARTITIONS), encode_notes([written]))

    def _identity(self, partition: TopicPartition) -> PartitionId[UUID]:
        return self.id_of(partition[0]), partition[1]


def cancel(delay_id: bytes) -> Waiting:
    """A cancel of what has this id."""
    return Waiting(NO_DUE_TIME, delay_id=delay_id)


def _rows(records: Sequence[Waiting]) -> pa.RecordBatch:
    """The records as their producer sent them."""
    columns = {
        "offset": range(len(records)),
        "timestamp": [SENT_MS] * len(records),
        "key": [each.key for each in records],
        "value": [each.value for each in records],
        "headers": [[{"key": key, "value": value} for key, value in each.headers] for each in records],
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)
