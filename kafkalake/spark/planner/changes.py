"""Answers what the jar asks of a topic's changes: `SELECT ... CHANGES FROM VERSION 17` and `readStream.changes`.

A question has `lake`, `topic` and the `options` of the query; points are the JSON of `ChangePoint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from kafkalake.errors import ConfigurationError
from kafkalake.reader.changed_values import evolved_avro
from kafkalake.reader.changelog import (
    ChangePoint,
    ChangeRange,
    begin_changes,
    is_keyed,
    next_point,
    plan_changes,
    the_topic,
)
from kafkalake.reader.comparison import narrow
from kafkalake.reader.plan import SegmentSlice
from kafkalake.reader.predicate import Selection
from kafkalake.reader.read_options import TIME_ZONE_NOTE, ReadOptions, parse_options
from kafkalake.spark.planner.lakes import lake_path, open_lake
from kafkalake.spark.planner.question import Question
from kafkalake.spark.planner.tables import require_same
from kafkalake.spark.planner.task_json import encode_task

_VERSION = "_commit_version"
_OF_SPARK = frozenset(
    {
        "startingversion",
        "endingversion",
        "startingtimestamp",
        "endingtimestamp",
        "startingboundinclusive",
        "endingboundinclusive",
        "deduplicationmode",
        "computeupdates",
    }
)
"""Options of changes that Spark has turned into the question's range."""
_POSSIBLE = ("failondataloss", "isolation", "minpartitions", "maxrecordsperpartition")


def kind(question: Question) -> dict[str, Any]:
    """Return whether the changes of a topic are those of keys. Raise the errors of `parse_options` and `the_topic`."""
    options = _options(question)
    tables = open_lake(options.lake)
    config = tables.control_store.load().config
    return {"is_keyed": is_keyed(lake_path(options.lake), config, the_topic(options, tables))}


def begin(question: Question) -> dict[str, Any]:
    """Return the points `start` and `end` of a range.

    The range is `first` and `last` (versions, which are in it unless `is_after_first` or `is_before_last`) or `first_ms` and
    `last_ms`. Raise the errors of `parse_options`, `begin_changes` and `require_same`.
    """
    options = _options(question)
    wanted = ChangeRange(
        question.get("first"),
        question.get("last"),
        question.get("first_ms"),
        question.get("last_ms"),
        is_after_first=question.get("is_after_first", False),
        is_before_last=question.get("is_before_last", False),
    )
    start, end = begin_changes(options, wanted, open_lake(options.lake))
    require_same(question["topic"], question["topic_id"], end.topic_id)
    return {"start": start.json, "end": end.json}


def go_on(question: Question) -> dict[str, Any]:
    """Return the newest point after `start`, or `start`. Raise the errors of `next_point`."""
    options = _options(question)
    return next_point(options, ChangePoint.of_json(question["start"]), open_lake(options.lake)).json


def plan(question: Question) -> dict[str, Any]:
    """Return the tasks that read the changes from `start` to `end` for which all `filters` may be true.

    Of keys (`is_keyed`) a task has all of a partition, and its part of `before` has the records below the range. commits: by
    partition, the start of the range, and [end offset, version, time in ms] of each commit. Raise the errors of `plan_changes`
    and `evolved_avro`.
    """
    options = _options(question)
    start, end = (ChangePoint.of_json(question[name]) for name in ("start", "end"))
    keyed = question["is_keyed"]
    selection, versions = _selected(question["filters"])
    changes = plan_changes(
        options, start, end, open_lake(options.lake), keyed=keyed, selection=selection, versions=versions
    )
    avro = evolved_avro(options, open_lake(options.lake))
    groups = _by_partition(changes.groups) if keyed else changes.groups
    before = {group[0].partition: group for group in _by_partition(changes.before)}
    slices = [piece for group in (*changes.groups, *changes.before) for piece in group]
    return {
        "tasks": [encode_task(group, avro) for group in groups],
        "before": [encode_task(before.get(group[0].partition, ()), avro) for group in groups] if keyed else [],
        "commits": {
            str(partition): {"start": start.ends.get(partition, 0), "commits": commits}
            for partition, commits in changes.commits.items()
        },
        "records": sum(piece.to_offset - piece.from_offset for piece in slices),
        "bytes": sum(piece.bytes for piece in slices),
    }


def _selected(filters: Sequence[Mapping[str, Any]]) -> tuple[Selection, range]:
    """Return the records, and the versions, of which the comparisons may be true."""
    records = versions = Selection()
    for compared in filters:
        if compared["column"] == _VERSION:
            versions = narrow(versions, "offset", compared["operator"], compared["values"]) or versions
        else:
            records = narrow(records, compared["column"], compared["operator"], compared["values"]) or records
    return records, range(versions.offset_min, versions.offset_end)


def _by_partition(groups: Iterable[Sequence[SegmentSlice]]) -> list[list[SegmentSlice]]:
    pieces = sorted(
        (piece for group in groups for piece in group), key=lambda piece: (piece.partition, piece.from_offset)
    )
    return [list(group) for _, group in groupby(pieces, key=lambda piece: piece.partition)]


def _options(question: Question) -> ReadOptions:
    """Return the options of the query. Raise `ConfigurationError` for one that changes have not."""
    given = {name: text for name, text in question["options"].items() if name.lower() not in _OF_SPARK}
    wrong = next((name for name in given if not name.startswith("__") and name.lower() not in _POSSIBLE), None)
    if wrong is not None:
        raise ConfigurationError(f"{wrong} is no option of changes")
    return parse_options(
        given | {"lake": question["lake"], "subscribe": question["topic"]}, time_zone=given.get(TIME_ZONE_NOTE)
    )
