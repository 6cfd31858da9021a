"""The open Delta tables of a lake, and what all of them have in common: their locks, loading rows, and commits of the owner.

Every write is decided on the rows of one version and committed on top of exactly that version. After a lost race it is decided
again, in at most `delta_table.ATTEMPTS_MAX` attempts.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from kafkalake.errors import KafkaStorageError
from kafkalake.metadata import paths
from kafkalake.metadata.disk import Disk
from kafkalake.metadata.store import PublishedState
from kafkalake.metadata.tables.cluster_rows import CLUSTER_SCHEMA, PARTITION_BY
from kafkalake.metadata.tables.data_files import TableDefinition
from kafkalake.metadata.tables.delta_table import OpenDeltaTable, TableChange
from kafkalake.metadata.tables.schemas import (
    BROKERS_SCHEMA,
    CLEANING_SCHEMA,
    GROUP_OFFSETS_SCHEMA,
    PARTITIONS_SCHEMA,
    SEGMENTS_SCHEMA,
    TOPICS_SCHEMA,
    TRANSACTIONS_SCHEMA,
    BrokerRow,
    CleaningRow,
    TopicRow,
    from_table,
    located,
    to_table,
)
from kafkalake.metadata.tables.topic_commits import ChangedVersion, State, changed_versions, oldest_readable
from kafkalake.ownership import Ownership

TABLE_DEFINITIONS = {
    # A broker renews its lease every ten seconds.
    paths.BROKERS: TableDefinition(BROKERS_SCHEMA, history="interval 1 hours", expendable=True),
    # Longer than `partitions`, whose readable versions each need the version of `segments` they name.
    paths.SEGMENTS: TableDefinition(SEGMENTS_SCHEMA, history="interval 2 days", accept=located),
    # Expendable, because a broker publishes all its partitions again at startup.
    paths.PARTITIONS: TableDefinition(
        PARTITIONS_SCHEMA, history="interval 1 days", partition_by=("leader",), expendable=True
    ),
    paths.GROUP_OFFSETS: TableDefinition(GROUP_OFFSETS_SCHEMA, history="interval 7 days"),
    paths.CLEANING: TableDefinition(CLEANING_SCHEMA, history="interval 7 days"),
    paths.TRANSACTIONS: TableDefinition(TRANSACTIONS_SCHEMA, history="interval 1 days"),
    # Never begun anew: it is the only record of the brokers' epochs and of who leads what.
    paths.CLUSTER: TableDefinition(CLUSTER_SCHEMA, history="interval 7 days", partition_by=PARTITION_BY),
    paths.TOPICS: TableDefinition(TOPICS_SCHEMA, history="interval 30 days"),
}

_Row = TypeVar("_Row", TopicRow, BrokerRow, CleaningRow)


class LakeTables:
    """The tables of the lake at `lake`, each with a lock. With `create` all are created and opened at once, else on first use.

    With `ownership`, only the lease is committed while ownership is not certain.
    """

    def __init__(
        self, lake: Path, *, create: bool, disk: Disk, ownership: Ownership | None, randomness: random.Random | None
    ) -> None:
        self.lake = lake
        self._disk = disk
        self._ownership = ownership
        self._randomness = randomness or random.Random()
        self._locks = {name: threading.Lock() for name in paths.TABLES}
        self._tables = _Tables(lambda name: self._open(name, create=False))
        if create:
            self._tables.update({name: self._open(name, create=True) for name in paths.TABLES})

    def close(self) -> None:
        """Release the open tables. Further calls are not allowed."""
        self._tables.clear()

    def topic_changes(
        self, name: str, topic: str, state_of: Callable[[pa.Table], State], *, most: int, may_return: bool = False
    ) -> tuple[State, list[ChangedVersion[State]]]:
        """Return what changed a topic in the newest versions of a table, `most` at most, as `changed_versions` does."""
        with self._locks[name]:
            table = self._tables[name]
            table.refresh()
            oldest, newest = table.version_at_or_oldest(0), table.version
        first = oldest_readable(table.path, max(oldest, newest - most), newest)
        after = first if first > 0 else -1
        return changed_versions(
            table.path, TABLE_DEFINITIONS[name], topic, after, newest, state_of, may_return=may_return
        )

    def _open(self, name: str, *, create: bool) -> OpenDeltaTable:
        path = paths.table_path(self.lake, name)
        return OpenDeltaTable(path, TABLE_DEFINITIONS[name], create=create, disk=self._disk)

    def _exists(self, name: str) -> bool:
        return name in self._tables or paths.table_path(self.lake, name).exists()

    def _load(self, name: str, row_class: type[_Row]) -> list[_Row]:
        with self._locks[name]:
            self._tables[name].refresh_if_outdated()
            return from_table(row_class, self._tables[name].read())

    def _replace_rows(
        self,
        name: str,
        row_class: type[_Row],
        decide: Callable[[Sequence[_Row]], Sequence[_Row]],
        claim: Callable[[OpenDeltaTable], Sequence[tuple[str, int]]] = lambda table: (),
    ) -> None:
        """Replace the rows of a small table by the result of `decide` on the newest rows. Durable on return.

        `claim` returns the `txn` versions that the commit is to have, which is made for them if no row changes. It raises what
        refuses the change.
        """
        table = self._tables[name]
        schema = TABLE_DEFINITIONS[name].schema

        def change() -> TableChange | None:
            transactions = claim(table)
            rows = from_table(row_class, table.read())
            decided = decide(rows)
            if list(decided) == rows:
                return TableChange(transactions=transactions) if transactions else None
            return TableChange(add=[to_table(schema, decided)], remove=table.files(), transactions=transactions)

        with self._locks[name]:
            table.refresh()
            self._commit(table, change, durable=True)

    def _commit(
        self, table: OpenDeltaTable, decide: Callable[[], TableChange | None], *, durable: bool = False
    ) -> None:
        def decide_as_owner() -> TableChange | None:
            if ownership is not None and not ownership.is_certain():
                raise KafkaStorageError(f"nothing is committed to {table.path}: the lease was not renewed in time")
            return decide()

        ownership = None if table is self._tables.get(paths.BROKERS) else self._ownership
        table.commit_decided(decide_as_owner, durable=durable, randomness=self._randomness)


def is_published(table: OpenDeltaTable, state: PublishedState) -> bool:
    """Return whether the table has this publish. Raise `KafkaStorageError` if it has a later one."""
    last = table.transaction_version(state.app_id)
    if table.has_later(state.app_id, state.version):
        raise KafkaStorageError(f"publish {state.version} of {state.app_id} is late: {table.path} has {last} already")
    return last == state.version


class _Tables(dict[str, OpenDeltaTable]):
    """Open tables by name. A missing one is opened."""

    def __init__(self, open_table: Callable[[str], OpenDeltaTable]) -> None:
        super().__init__()
        self._open = open_table

    def __missing__(self, name: str) -> OpenDeltaTable:
        return self.setdefault(name, self._open(name))
