"""Counts and extremes of offsets and timestamps, as far as the metadata tells them exactly; the other slices are left to be read.

The metadata tells of a sealed segment how many records it has, and their smallest and largest timestamp. It does not tell enough of
the active segment, of slices with aborted transactions, and of parts of a segment where some offsets hold no record (markers of
transactions, what compaction has removed).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from kafkalake.reader.plan import SegmentSlice, check_losses, grouped, selected_slices
from kafkalake.spark.planner.question import Question
from kafkalake.spark.planner.scans import begin_scan, shown
from kafkalake.spark.planner.task_json import encode_task

ONE_TASK_BYTES_MAX = 128 << 20
"""Up to so many bytes are read by the driver, or by the task that has the known facts too: Spark need not add up its rows."""


class Facts(NamedTuple):
    """Records of a partition as the metadata tells of them. Extremes are None of no records, and where none was asked for."""

    topic: str
    partition: int
    records: int
    min_offset: int | None
    max_offset: int | None
    min_timestamp_ms: int | None
    max_timestamp_ms: int | None


def plan_aggregate(question: Question) -> dict[str, Any]:
    """Return the known facts by partition, and tasks of the slices that are to be read.

    offsets, times: whether extremes of them are asked for. is_complete: there is one task. Raise the errors of `begin_scan`
    and `RecordsLostError`.
    """
    begun = begin_scan(question)
    options = begun.read.options
    slices = selected_slices(begun.read, begun.selection)
    check_losses(slices, options)
    known, unknown = known_and_unknown(slices, offsets=question["offsets"], times=question["times"])
    is_little = sum(piece.cost for piece in unknown) <= ONE_TASK_BYTES_MAX and options.partitions_min is None
    groups = [unknown] if is_little else grouped(unknown, options) or [[]]
    return {
        "known": known,
        "is_complete": len(groups) == 1,
        "tasks": [encode_task(group) for group in groups],
        **shown(begun, unknown),
    }


def known_and_unknown(
    slices: Sequence[SegmentSlice], *, offsets: bool, times: bool
) -> tuple[list[Facts], list[SegmentSlice]]:
    """Return what is known of the slices' records, and the slices of which nothing is, which are to be read."""
    known: list[Facts] = []
    unknown: list[SegmentSlice] = []
    for (topic, partition), of_partition in groupby(slices, lambda piece: (piece.topic, piece.partition)):
        pieces = list(of_partition)
        told = [_is_told(piece, times) for piece in pieces]
        ends: list[int | None] = [None, None]
        if offsets:
            # Of all slices with records only the first and the last have an extreme offset.
            with_records = [number for number, piece in enumerate(pieces) if piece.records]
            for end, number in enumerate((with_records[0], with_records[-1]) if with_records else ()):
                told[number] &= pieces[number].is_dense
                if told[number]:
                    ends[end] = pieces[number].from_offset if end == 0 else pieces[number].to_offset - 1
        unknown += [piece for piece, is_told in zip(pieces, told, strict=True) if not is_told]
        counted = [piece for piece, is_told in zip(pieces, told, strict=True) if is_told and piece.records]
        if counted:
            earliest = [each for piece in counted if times and (each := piece.min_timestamp_ms) is not None]
            latest = [each for piece in counted if times and (each := piece.max_timestamp_ms) is not None]
            extremes = (*ends, min(earliest, default=None), max(latest, default=None))
            known.append(Facts(topic, partition, sum(piece.records or 0 for piece in counted), *extremes))
    return known, unknown


def _is_told(piece: SegmentSlice, times: bool) -> bool:
    if piece.records is None:
        return False
    has_times = piece.has_exact_times and None not in (piece.min_timestamp_ms, piece.max_timestamp_ms)
    return piece.records == 0 or not times or has_times
