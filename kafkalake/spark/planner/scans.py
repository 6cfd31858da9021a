"""Plans batch scans: the snapshot, bounded by the options, narrowed by the query's filters, as tasks for the jar's readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from kafkalake.reader.bounds import begin_read
from kafkalake.reader.changed_values import evolved_avro
from kafkalake.reader.comparison import narrow
from kafkalake.reader.plan import SegmentSlice, check_losses, grouped, selected_slices
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read import Read
from kafkalake.reader.read_options import TIME_ZONE_NOTE, parse_options
from kafkalake.spark.planner.columns import check_columns
from kafkalake.spark.planner.lakes import open_lake
from kafkalake.spark.planner.query_snapshot import QuerySnapshots
from kafkalake.spark.planner.question import Question
from kafkalake.spark.planner.tables import TOPIC_ID_NOTE, require_same
from kafkalake.spark.planner.task_json import encode_task

_snapshots = QuerySnapshots()


class Begun(NamedTuple):
    """A scan before its tasks: the read, the records of it that are wanted, and the positions of the filters that say so."""

    read: Read
    selection: Selection
    narrowed: list[int]


def plan_scan(question: Question) -> dict[str, Any]:
    """Return the tasks of a scan, and what `shown` says of them.

    limit: so many records are enough (-1: all are wanted). Raise the errors of `begin_scan`, `evolved_avro`, `RecordsLostError`.
    """
    begun, limit = begin_scan(question), question["limit"]
    slices = selected_slices(begun.read, begun.selection)
    if limit >= 0:
        slices = list(_first(slices, limit))
    options = begun.read.options
    check_losses(slices, options)
    groups = grouped(slices, options) or [[]]
    avro = evolved_avro(options, open_lake(options.lake))
    return {
        "tasks": [encode_task(group, avro) for group in groups],
        **shown(begun, [piece for group in groups for piece in group]),
    }


def _first(slices: Iterable[SegmentSlice], records: int) -> Iterator[SegmentSlice]:
    """Yield the first slices, which hold `records` for certain, or all if there are not so many."""
    for piece in slices:
        if records <= 0:
            return
        if piece.is_dense and piece.to_offset - piece.from_offset > records:
            yield piece.part(piece.from_offset, piece.from_offset + records)
            return
        yield piece
        records -= piece.records or 0


def begin_scan(question: Question) -> Begun:
    """Begin a scan of `columns` (of Kafka's, with their types) and `fields` (of JSON values) under `filters`.

    query: which query the scan is part of. Raise the errors of `parse_options`, `check_columns`, `begin_read` and
    `require_same`, and `ValueError` if a filter that is the scan's alone (`is_exact`) cannot be.
    """
    given = question["options"]
    options = parse_options(given, time_zone=given.get(TIME_ZONE_NOTE))
    check_columns(question, options)
    selection, narrowed = _selection(question["filters"])
    read = begin_read(
        options, open_lake(options.lake), agreed=partial(_snapshots.as_first_seen, query=question["query"])
    )
    for partition in read.partitions:
        require_same(partition.topic, given.get(TOPIC_ID_NOTE), partition.topic_id)
    return Begun(read, selection, narrowed)


def shown(begun: Begun, slices: Iterable[SegmentSlice]) -> dict[str, Any]:
    """Return what Spark shows of a scan of `slices`, and its size.

    records: an upper bound of what the tasks read. bytes: an estimate of it. snapshot: the version of the lake's table
    `partitions`. segments: those that are read, of `segments_of_all`. narrowed: the positions of the filters that have narrowed it.
    """
    pieces, read = list(slices), begun.read
    return {
        "records": sum(piece.to_offset - piece.from_offset for piece in pieces),
        "bytes": sum(piece.bytes for piece in pieces),
        "snapshot": read.version,
        "partitions": len(read.partitions),
        "segments": len({piece.path for piece in pieces}),
        "segments_of_all": sum(len(partition.segments) for partition in read.partitions),
        "narrowed": begun.narrowed,
    }


def _selection(filters: Sequence[Mapping[str, Any] | None]) -> tuple[Selection, list[int]]:
    """Return the conjunction of the comparisons, and the positions of those that have narrowed it. None: no comparison."""
    selection, narrowed = Selection(), []
    for position, compared in enumerate(filters):
        if compared is None:
            continue
        found = _any_of(selection, compared["any_of"]) if "any_of" in compared else _narrow(selection, compared)
        if found is None and compared["is_exact"]:
            raise ValueError(f"no records are selected by {compared}")
        if found is not None and found != selection:
            selection = found
            narrowed.append(position)
    return selection, narrowed


def _any_of(selection: Selection, conjunctions: Sequence[Sequence[Mapping[str, Any]]]) -> Selection | None:
    """Return `selection` narrowed to what one of the conjunctions takes, or None if one of them may take everything."""
    group = []
    for conjunction in conjunctions:
        taken = Selection()
        for compared in conjunction:
            taken = _narrow(taken, compared) or taken
        if taken == Selection():
            return None
        group.append(taken)
    return selection.with_either(group)


def _narrow(selection: Selection, compared: Mapping[str, Any]) -> Selection | None:
    return narrow(selection, compared["column"], compared["operator"], compared["values"])
