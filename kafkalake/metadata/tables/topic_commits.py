"""The versions of a Delta table in which a topic changed, or grew: what each showed first, and when it was committed.

A version's files are known from the entries of the log, which are read one after another. Rows are read only where a topic's
offsets differ: of two versions with the same offsets, all between have them too, because a log only grows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from kafkalake.errors import LakeError
from kafkalake.metadata.changes import current_partitions
from kafkalake.metadata.delta_checkpoint import entry_path
from kafkalake.metadata.tables.data_files import (
    DataFile,
    TableDefinition,
    committed_ms,
    data_files,
    first_line,
    read_file,
)
from kafkalake.metadata.tables.schemas import PartitionRow, from_table
from kafkalake.topic_partition import PartitionId

State = TypeVar("State")


class TopicCommit(NamedTuple):
    """A version that showed new records of a topic name: when it was committed, and where the partitions ended in it.

    Partitions have the ids of their topics: an earlier topic may have had the name. Those without records are absent.
    """

    version: int
    committed_ms: int
    ends: Mapping[PartitionId[str], int]


class ChangedVersion(NamedTuple, Generic[State]):
    """A version in which the state of a topic differs from that before, and when it was committed."""

    version: int
    committed_ms: int
    state: State


def topic_commits(
    table: Path,
    definition: TableDefinition,
    topic: str,
    after: int,
    last: int,
    end_of: Callable[[PartitionRow], int],
) -> list[TopicCommit]:
    """Return the commits of a topic name in the versions (after, last], ascending. `after` -1: before the first.

    Raise `LakeError` if the log or a file of one of these versions is gone.
    """

    def ends(rows: pa.Table) -> dict[PartitionId[str], int]:
        current = current_partitions(from_table(PartitionRow, rows))
        return {(row.topic_id, row.partition): end for row in current if (end := end_of(row)) > 0}

    _, changed = changed_versions(table, definition, topic, after, last, ends)
    return [TopicCommit(*each) for each in changed]


def changed_versions(
    table: Path,
    definition: TableDefinition,
    topic: str,
    after: int,
    last: int,
    state_of: Callable[[pa.Table], State],
    *,
    may_return: bool = False,
) -> tuple[State, list[ChangedVersion[State]]]:
    """Return the state of a topic name in version `after`, and the versions in (after, last] that changed it, ascending.

    state_of: of the topic's rows in a version. may_return: a state may be as it was before the last change, so that each version
    is looked at. Raise `LakeError` if the log or a file of one of these versions is gone.
    """
    versions = [_files_at(table, after), *(_entry_files(table, version) for version in range(after + 1, last + 1))]
    files: dict[str, DataFile] = {}
    states = []
    for added, removed in versions:
        files = {path: file for path, file in (files | added).items() if path not in removed}
        states.append(files)

    known = {path: file for state in states for path, file in state.items()}

    @lru_cache(maxsize=4096)
    def rows_of(path: str) -> pa.Table:
        rows = read_file(table, definition, known[path])
        return rows.filter(pc.equal(rows.column("topic"), topic))

    @lru_cache(maxsize=4096)
    def state_at(number: int) -> State:
        return state_of(pa.concat_tables([definition.schema.empty_table(), *map(rows_of, states[number])]))

    def changed(first: int, then: int) -> Iterator[int]:
        if first >= then or (not may_return and state_at(first) == state_at(then)):
            return
        if then == first + 1:
            if state_at(first) != state_at(then):
                yield then
            return
        middle = (first + then) // 2
        yield from changed(first, middle)
        yield from changed(middle, then)

    return state_at(0), [
        ChangedVersion(after + number, committed_ms(table, after + number), state_at(number))
        for number in changed(0, last - after)
    ]


def oldest_readable(table: Path, first: int, last: int) -> int:
    """Return the oldest of the versions [first, last] from which on files are there: they are removed before the log's entries."""
    while first < last and not _is_readable(table, first, last):
        middle = (first + last) // 2
        if _is_readable(table, middle, last):
            first, last = first + 1, middle
        else:
            first = middle + 1
    return first


def _is_readable(table: Path, version: int, last: int) -> bool:
    """Return whether the files of a version are there. One without files, as the first is, is as readable as the next one."""
    for each in range(version, last + 1):
        try:
            files, _ = _files_at(table, each)
        except LakeError:
            return False
        if files:
            return all((table / path).exists() for path in files)
    return True


def _files_at(table: Path, version: int) -> tuple[dict[str, DataFile], set[str]]:
    if version < 0:
        return {}, set()
    try:
        return {file.path: file for file in data_files(DeltaTable(table, version=version))}, set()
    except (DeltaError, OSError) as error:
        raise LakeError(f"version {version} of {table} cannot be read ({first_line(error)})") from error


def _entry_files(table: Path, version: int) -> tuple[dict[str, DataFile], set[str]]:
    """Return the files that a version adds and those that it removes."""
    try:
        actions = [json.loads(line) for line in entry_path(table, version).read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise LakeError(f"version {version} of {table} cannot be read: {error}") from error
    added = [action["add"] for action in actions if "add" in action]
    files = [DataFile(each["path"], each["size"], 0, each["partitionValues"]) for each in added]
    return {file.path: file for file in files}, {action["remove"]["path"] for action in actions if "remove" in action}
