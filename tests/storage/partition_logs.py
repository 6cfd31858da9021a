"""What the tests of storage share: a log in a directory, read back whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from manual_clock import ManualClock
from record_batches import Row, rows_of

from kafkalake.errors import KafkaError
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.append_group import AppendResult
from kafkalake.storage.config import LogConfig
from kafkalake.storage.files import REAL_FILES, Files
from kafkalake.storage.generations import RewrittenSegment
from kafkalake.storage.log import Log
from kafkalake.storage.log_events import LogEvents
from kafkalake.storage.open_files import OpenFiles
from kafkalake.storage.sealed_segment import SealedSegment


class SegmentsSeen:
    """The events of a log: the sealed segments, the base offsets of the removed ones."""

    def __init__(self) -> None:
        self.sealed: list[SealedSegment] = []
        self.removed: list[int] = []

    def segment_sealed(self, segment: SealedSegment) -> None:
        self.sealed.append(segment)

    def segment_removed(self, base_offset: int, generation: int) -> None:
        self.removed.append(base_offset)


def open_log(
    directory: Path | str,
    clock: ManualClock | None = None,
    files: Files = REAL_FILES,
    topic_id: UUID | None = None,
    events: LogEvents | None = None,
    *,
    is_replicated: bool = False,
    swapped: Sequence[RewrittenSegment] = (),
    **config: object,
) -> Log:
    """The log in `directory`, of that topic if any; `config` are fields of `LogConfig`."""
    config.setdefault("file_delete_delay_ms", 0)
    settings = LogConfig(**config)  # type: ignore[arg-type]
    opened, clock = OpenFiles(files, 16), clock or ManualClock()
    return Log.open(directory, settings, clock, files, opened, swapped, topic_id, events, is_replicated=is_replicated)


def append(log: Log, *batches: ProducerBatch, epoch: int = 0) -> list[AppendResult | KafkaError]:
    """Append and acknowledge, as a leader alone does."""
    answers = log.append(batches, epoch)
    log.advance_high_watermark(log.log_end_offset)
    return answers


def accepted(answer: AppendResult | KafkaError) -> AppendResult:
    """The answer, which is no error."""
    assert isinstance(answer, AppendResult), answer
    return answer


def read_all(
    log: Log, start: int | None = None, end: int | None = None, max_bytes: int = 3_000
) -> list[tuple[int, Row]]:
    """(offset, row) of every record from `start` to `end` (default: all that consumers see), fetch by fetch."""
    offset = log.log_start_offset if start is None else start
    end = log.high_watermark if end is None else end
    rows: list[tuple[int, Row]] = []
    while offset < end:
        messages = log.read(offset, max_bytes, end)
        if not len(messages):
            break
        rows += [row for row in rows_of(messages) if offset <= row[0] < end]
        offset = messages.next_offset
    return rows
