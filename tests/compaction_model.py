"""Kafka's rules of compaction in plain Python over records in a list: what the tests compare the job with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Written:
    """A record as it was written: `aborted` says whether its transaction was."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
    aborted: bool = False


def compacted(records: Sequence[Written], cleaned_to: int, *, expired_to: int = 0) -> list[Written]:
    """What is left once offsets below `cleaned_to` are compacted; the others are as they were.

    expired_to: tombstones below it were seen by an earlier compaction, long enough ago.
    """
    newest: dict[bytes, int] = {}
    for record in records:
        if record.offset < cleaned_to and not record.aborted and record.key is not None:
            newest[record.key] = record.offset
    kept = []
    for record in records:
        if record.offset < cleaned_to:
            if record.key is None or record.aborted or newest[record.key] != record.offset:
                continue
            if record.value is None and record.offset < expired_to:
                continue
        kept.append(record)
    return kept
