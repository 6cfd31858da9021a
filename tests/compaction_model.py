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


def compacted(records: Sequence[Written], cleaned_to: int, *, tombstones_gone: bool = False) -> list[Written]:
    """What is left once offsets below `cleaned_to` are compacted; what is not is as it was, aborted records included."""
    newest: dict[bytes, int] = {}
    for record in records:
        if record.offset < cleaned_to and not record.aborted and record.key is not None:
            newest[record.key] = record.offset
    kept = []
    for record in records:
        if record.offset < cleaned_to:
            if record.key is None or record.aborted or newest[record.key] != record.offset:
                continue
            if tombstones_gone and record.value is None:
                continue
        kept.append(record)
    return kept
