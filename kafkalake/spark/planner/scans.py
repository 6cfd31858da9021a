"""Plans batch scans: the snapshot, bounded by the options, narrowed by the query's filters, as tasks for the jar's readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kafkalake.reader.bounds import begin_read
from kafkalake.reader.comparison import narrow
from kafkalake.reader.plan import plan_slices
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import TIME_ZONE_NOTE, parse_options
from kafkalake.spark.planner.columns import check_columns
from kafkalake.spark.planner.lakes import open_lake
from kafkalake.spark.planner.task_json import encode_task
from kafkalake.spark.source.query_snapshot import as_first_seen


def plan_scan(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tasks of a scan of `columns` (of Kafka's, with their types) and `fields` (of JSON values) under `filters`.

    query: which query the scan is part of.

    records, bytes: upper bounds of what the tasks read. snapshot: the version of the lake's table `partitions`. segments: those
    that are read, of `segments_of_all`. narrowed: the positions of the filters that have narrowed it. Raise the errors of
    `parse_options`, `check_columns`, `begin_read` and `plan_slices`.
    """
    given = question["options"]
    options = parse_options(given, time_zone=given.get(TIME_ZONE_NOTE))
    check_columns(question, options)
    selection, narrowed = _selection(question["filters"])
    read = begin_read(options, open_lake(options.lake), agreed=partial(as_first_seen, query=question["query"]))
    groups = plan_slices(read, selection) or [[]]
    slices = [piece for group in groups for piece in group]
    return {
        "tasks": [encode_task(group) for group in groups],
        "records": sum(piece.to_offset - piece.from_offset for piece in slices),
        "bytes": sum(piece.cost for piece in slices),
        "snapshot": read.version,
        "partitions": len(read.partitions),
        "segments": len({piece.path for piece in slices}),
        "segments_of_all": sum(len(partition.segments) for partition in read.partitions),
        "narrowed": narrowed,
    }


def _selection(filters: Sequence[Mapping[str, Any] | None]) -> tuple[Selection, list[int]]:
    """Return the conjunction of the comparisons, and the positions of those that have narrowed it. None: no comparison."""
    selection, narrowed = Selection(), []
    for position, compared in enumerate(filters):
        if compared is None:
            continue
        found = narrow(selection, compared["column"], compared["operator"], compared["values"])
        if found is not None and found != selection:
            selection = found
            narrowed.append(position)
    return selection, narrowed
