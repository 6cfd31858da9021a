"""The Delta table `partitions`, partitioned by leader. A publish replaces one file for each leader whose rows changed.

Publishes are not fsynced: the next one rewrites those rows, and an fsync every second is too expensive. A broker's first publish
restores the state of the logs after a power loss.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.errors import KafkaStorageError
from kafkalake.metadata import changes, paths
from kafkalake.metadata.store import NONE_PUBLISHED, PublishedPartitions, PublishedState
from kafkalake.metadata.tables.data_files import DataFile, committed_ms
from kafkalake.metadata.tables.delta_table import OpenDeltaTable, TableChange
from kafkalake.metadata.tables.lake_tables import TABLE_DEFINITIONS, LakeTables, is_published
from kafkalake.metadata.tables.schemas import PARTITIONS_SCHEMA, TIMESTAMP, PartitionRow, from_table, to_table
from kafkalake.metadata.tables.topic_commits import TopicCommit, oldest_readable, topic_commits
from kafkalake.topic_partition import PartitionId


@dataclass(slots=True)
class _LeaderRows:
    """The rows of one leader. `version`: of `partitions`, when last read."""

    leader: int
    version: int = -1
    rows: dict[PartitionId[str], PartitionRow] = field(default_factory=dict)
    has_changed: bool = False

    def look(self, table: OpenDeltaTable) -> None:
        """Read the rows if another writer has committed since the last read."""
        if table.version == self.version:
            return
        self.version = table.version
        self.has_changed = True
        rows = [row for file in _files_of(table, [self.leader]) for row in from_table(PartitionRow, table.rows(file))]
        self._keep(rows)

    def published(self, version: int, rows: Sequence[PartitionRow]) -> None:
        """Note the rows that this process has published itself."""
        self.version = version
        self._keep(rows)

    def _keep(self, rows: Iterable[PartitionRow]) -> None:
        self.rows = {(row.topic_id, row.partition): row for row in rows}

    def refuse_older_epochs(self, published: Iterable[PartitionRow]) -> None:
        """Raise `KafkaStorageError` if a partition has a newer epoch: this publish of its former leader is late."""
        for row in published:
            known = self.rows.get((row.topic_id, row.partition))
            if known is not None and row.leader_epoch < known.leader_epoch:
                raise KafkaStorageError(
                    f"{row.topic}-{row.partition} is led in epoch {known.leader_epoch}; "
                    f"what epoch {row.leader_epoch} says is late"
                )


class DeltaPartitions(LakeTables):
    """`PartitionTable` on Delta, and the part of a publish that concerns it."""

    @cached_property
    def _leader_rows(self) -> dict[int, _LeaderRows]:
        return {}

    def load_partitions(self, version: int | None = None, timestamp_ms: int | None = None) -> list[PartitionRow]:
        _, rows = self.partitions_at(version, timestamp_ms)
        return rows

    def load_published(self, app_id: str) -> PublishedPartitions:
        table = self._tables[paths.PARTITIONS]
        with self._locks[paths.PARTITIONS]:
            table.refresh()
            rows = from_table(PartitionRow, table.read_version(table.version))
            return PublishedPartitions(changes.current_partitions(rows), _last_publish(table, app_id))

    def raise_log_starts(self, log_starts: Mapping[PartitionId[str], int]) -> int:
        table = self._tables[paths.PARTITIONS]
        with self._locks[paths.PARTITIONS]:
            table.refresh()
            while _log_starts_change(table, log_starts) is not None:
                self._commit(table, lambda: _log_starts_change(table, log_starts), durable=True)
            table.force()
            return table.version

    def raised_log_starts(self, leader: int) -> dict[PartitionId[str], int]:
        table = self._tables[paths.PARTITIONS]
        with self._locks[paths.PARTITIONS]:
            table.refresh_if_outdated()
            led = self._led(leader)
            led.look(table)
            changed, led.has_changed = led.has_changed, False
            return _log_starts_of(led.rows.values()) if changed else {}

    def _publish_partitions(self, state: PublishedState, segments_version: int) -> int:
        """Replace the leaders' rows, stamped with the version of `segments` that belongs to them, and return the new version."""
        table = self._tables[paths.PARTITIONS]
        with self._locks[paths.PARTITIONS]:
            all_led = [self._led(leader) for leader in state.leaders]
            rows: Sequence[PartitionRow] = ()

            def change() -> TableChange | None:
                nonlocal rows
                rows = state.partitions
                is_there = is_published(table, state)
                if not is_there:
                    _check_followed(table, state)
                for led in all_led:
                    led.look(table)
                    led.refuse_older_epochs(rows)
                    rows = changes.newest_rows(led.rows, rows)
                return None if is_there else _publish_change(table, state, segments_version, rows)

            self._commit(table, change)
            for led in all_led:
                led.published(table.version, [row for row in rows if row.leader == led.leader])
            return table.version

    def partitions_at(
        self, version: int | None, timestamp_ms: int | None, topics: Collection[str] | None = None
    ) -> tuple[int, list[PartitionRow]]:
        """Return a version and its partitions, those of `topics` or all: now, at a version or at a time."""
        if version is not None and timestamp_ms is not None:
            raise ValueError("a version and a time cannot both be asked for")
        with self._locks[paths.PARTITIONS]:
            partitions = self._tables[paths.PARTITIONS]
            partitions.refresh_if_outdated()
            if timestamp_ms is not None:
                version = partitions.version_at(timestamp_ms)
            found = partitions.version if version is None else version
            table = partitions.read_version(found)
        if topics is not None:  # before rows are made of thousands of others
            table = table.filter(pc.is_in(table.column("topic"), pa.array(topics, pa.string())))
        return found, changes.current_partitions(from_table(PartitionRow, table))

    def topic_commits(
        self, topic: str, after: int, last: int, end_of: Callable[[PartitionRow], int]
    ) -> list[TopicCommit]:
        """Return the versions in (after, last] that showed new records of a topic name. Raise `LakeError` if one is gone."""
        path = paths.table_path(self.lake, paths.PARTITIONS)
        return topic_commits(path, TABLE_DEFINITIONS[paths.PARTITIONS], topic, after, last, end_of)

    def first_version_since(self, timestamp_ms: int) -> int:
        """Return the first version committed at or after the time, which may be the one after the newest.

        Raise `LakeError` if the log does not reach that far back.
        """
        with self._locks[paths.PARTITIONS]:
            table = self._tables[paths.PARTITIONS]
            version = table.version_at_or_oldest(timestamp_ms)
            if version > 0:
                version = table.version_at(timestamp_ms)
        committed = committed_ms(table.path, version)
        return version if committed >= timestamp_ms else version + 1

    def version_then(self, timestamp_ms: int) -> int:
        """Return the newest version committed at or before the time, or the oldest that can be read."""
        with self._locks[paths.PARTITIONS]:
            return self._tables[paths.PARTITIONS].version_at_or_oldest(timestamp_ms)

    def committed_ms(self, version: int) -> int:
        """Return the time of a version. Raise `LakeError` if its entry is gone."""
        return committed_ms(paths.table_path(self.lake, paths.PARTITIONS), version)

    def oldest_version(self) -> int:
        """Return the oldest version that can be read."""
        with self._locks[paths.PARTITIONS]:
            table = self._tables[paths.PARTITIONS]
            table.refresh()
            oldest, newest = table.version_at_or_oldest(0), table.version
        return oldest_readable(table.path, oldest, newest)

    def _led(self, leader: int) -> _LeaderRows:
        return self._leader_rows.setdefault(leader, _LeaderRows(leader))


def _check_followed(partitions: OpenDeltaTable, state: PublishedState) -> None:
    """Raise `KafkaStorageError` if the last publish is another than the one that this one follows."""
    last = _last_publish(partitions, state.app_id)
    if state.follows not in (None, last):
        raise KafkaStorageError(f"publish {state.version} of {state.app_id} follows {state.follows}, not {last}")


def _last_publish(partitions: OpenDeltaTable, app_id: str) -> int:
    last = partitions.transaction_version(app_id)
    return NONE_PUBLISHED if last is None else last


def _publish_change(
    partitions: OpenDeltaTable, state: PublishedState, segments_version: int, published: Sequence[PartitionRow]
) -> TableChange:
    """Return the commit that replaces the leaders' rows, stamped with the publish time and version of `segments`.

    Log starts raised by a job stay raised, even if the broker has not applied them yet.
    """
    rows = to_table(PARTITIONS_SCHEMA, published)
    stamps = {
        "published_at": pa.scalar(state.published_at_ms * 1000, TIMESTAMP),
        "segments_version": pa.scalar(segments_version, pa.int64()),
    }
    for name, value in stamps.items():
        index = PARTITIONS_SCHEMA.get_field_index(name)
        rows = rows.set_column(index, PARTITIONS_SCHEMA.field(index), pa.repeat(value, rows.num_rows))
    leaders = rows.column("leader")
    files = [rows.filter(pc.equal(leaders, leader)) for leader in state.leaders] if len(state.leaders) > 1 else [rows]
    replaced = _files_of(partitions, state.leaders)
    return TableChange(add=files, remove=replaced, transactions=[(state.app_id, state.version)])


def _files_of(partitions: OpenDeltaTable, leaders: Iterable[int]) -> list[DataFile]:
    names = [{"leader": str(leader)} for leader in leaders]
    return [file for file in partitions.files() if file.partition in names]


def _log_starts_of(rows: Iterable[PartitionRow]) -> dict[PartitionId[str], int]:
    return {(row.topic_id, row.partition): row.log_start_offset for row in rows if row.log_start_offset > 0}


def _log_starts_change(partitions: OpenDeltaTable, log_starts: Mapping[PartitionId[str], int]) -> TableChange | None:
    """Return the commit that rewrites one file with raised log starts, or None. A file has one leader, given by its path."""
    for file in partitions.files():
        rows = from_table(PartitionRow, partitions.rows(file))
        raised = changes.with_log_starts(rows, log_starts)
        if raised != rows:
            return TableChange(add=[to_table(PARTITIONS_SCHEMA, raised)], remove=[file])
    return None


def stamp_change(partitions: OpenDeltaTable, leader: int, segments_version: int) -> TableChange | None:
    """Return the commit that sets `segments_version` in a leader's rows, or None if nothing changes."""
    replaced = _files_of(partitions, [leader])
    rows = [row for file in replaced for row in from_table(PartitionRow, partitions.rows(file))]
    stamped = [replace(row, segments_version=segments_version) for row in rows]
    if stamped == rows:
        return None
    return TableChange(add=[to_table(PARTITIONS_SCHEMA, stamped)], remove=replaced)
