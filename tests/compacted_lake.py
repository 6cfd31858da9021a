"""A compacted topic in a lake without a broker: written, remembered, compacted, read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from compaction_model import Written
from manual_clock import ManualClock
from record_batches import rows_of
from written_lake import ABORT, WrittenLake

from kafkalake.jobs.compaction.command import CompactionJob
from kafkalake.jobs.frame import main
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.storage.segment_reader import SEGMENTS

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
Pair = tuple[bytes | None, bytes | None]


class CompactedTopic:
    """Writes to a topic and remembers what; timestamps count up from `time_ms`, a record each."""

    def __init__(self, lake: Path | WrittenLake, name: str = "states", **config: str) -> None:
        self.lake = WrittenLake(lake) if isinstance(lake, Path) else lake
        self.name = name
        self.lake.create(name)
        row = self.lake.topics[name]
        self.lake.store.alter_topics([replace(row, config={**CONFIG, **config})])
        self.log = self.lake.logs[name, 0]
        self.time_ms = 1_000
        self.records: list[Written] = []
        self._sequences: dict[int, int] = {}
        self._open: dict[int, list[int]] = {}

    def write(self, pairs: Sequence[Pair], producer: int = -1, *, transactional: bool = False) -> None:
        """One batch; of an idempotent producer unless its id is -1."""
        rows = [
            (self.time_ms + len(self.records) + i, key, value, [("h", b"%d" % i)])
            for i, (key, value) in enumerate(pairs)
        ]
        options: dict[str, Any] = {}
        if producer >= 0:
            sequence = self._sequences.get(producer, 0)
            options = {"producer_id": producer, "epoch": 0, "sequence": sequence, "transactional": transactional}
            self._sequences[producer] = sequence + len(pairs)
        base = self.lake.append(self.name, 0, rows, **options)
        for i, (timestamp, key, value, headers) in enumerate(rows):
            if transactional:
                self._open.setdefault(producer, []).append(len(self.records))
            self.records.append(Written(base + i, key, value, timestamp, tuple(headers)))

    def is_open(self, producer: int) -> bool:
        """Whether the producer is in a transaction."""
        return producer in self._open

    @property
    def stable_end(self) -> int | None:
        """The offset at which the first open transaction begins; None: there is none."""
        return min((self.records[numbers[0]].offset for numbers in self._open.values()), default=None)

    def end(self, producer: int, kind: int) -> None:
        """Commit or abort."""
        self.lake.end_transaction(self.name, 0, producer, kind)
        for number in self._open.pop(producer):
            if kind == ABORT:
                self.records[number] = replace(self.records[number], aborted=True)

    def seal(self) -> None:
        """Seal the active segment."""
        self.lake.roll(self.name)

    def publish(self) -> int:
        """Tell Delta; the offset up to which the topic can be compacted."""
        self.lake.publish()
        rows = self.lake.store.load_segments(self.name)
        return max((row.next_offset for row in rows if row.next_offset <= self.log.last_stable_offset), default=0)

    def stored(self) -> list[Written]:
        """Every record in the sealed segments that Delta names."""
        found = []
        for row in DeltaMetadataStore(self.lake.path, create=False).load_segments(self.name):
            reader = SEGMENTS.open(self.lake.path / row.path)
            for messages in reader.messages(row.base_offset, row.next_offset):
                for offset, (timestamp, key, value, headers) in rows_of(messages):
                    found.append(Written(offset, key, value, timestamp, tuple(headers)))
        return found

    def sealed(self, records: Sequence[Written]) -> list[Written]:
        """Those of `records` in sealed segments, as `stored` would have them."""
        end = self.lake.store.load_segments(self.name)[-1].next_offset
        return [replace(record, aborted=False) for record in records if record.offset < end]


def compact(lake: Path, spark: Any, now_ms: int = 10 * DAY_MS) -> None:
    """Run the job."""
    assert main(CompactionJob(), ["--lake", str(lake)], spark=spark, clock=ManualClock(now_ms)) == 0
