"""The Delta table `topics`: one small file, replaced by every change.

The newest controller epoch of its changes is Delta's `txn` of them: one of an older epoch is refused. A table of an earlier version
has none, and takes a change of any epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.errors import NotControllerError
from kafkalake.metadata import changes, paths
from kafkalake.metadata.tables.delta_table import OpenDeltaTable
from kafkalake.metadata.tables.lake_tables import LakeTables
from kafkalake.metadata.tables.schemas import TopicRow, from_table

CONTROLLER_EPOCH = "kafkalake-controller-epoch"
"""The `txn` application id whose version is the controller epoch of a change."""


class DeltaTopics(LakeTables):
    """`TopicTable` on Delta."""

    def load_topics(self) -> list[TopicRow]:
        return sorted(self._load(paths.TOPICS, TopicRow), key=lambda row: row.topic)

    def find_topic(self, name: str) -> TopicRow | None:
        """Return a topic, or None."""
        return next(iter(self.find_topics([name])), None)

    def find_topics(self, names: Collection[str]) -> list[TopicRow]:
        """Return those of the topics that exist. Of thousands of topics the rows of the others are not made."""
        with self._locks[paths.TOPICS]:
            table = self._tables[paths.TOPICS]
            table.refresh_if_outdated()
            rows = table.read()
        return from_table(TopicRow, rows.filter(pc.is_in(rows.column("topic"), pa.array(names, pa.string()))))

    def topic_names(self) -> list[str]:
        """Return the names of all topics, sorted."""
        with self._locks[paths.TOPICS]:
            table = self._tables[paths.TOPICS]
            table.refresh_if_outdated()
            return sorted(table.read().column("topic").to_pylist())

    def claim_topics(self, controller_epoch: int) -> None:
        self._change(list, controller_epoch)

    def create_topics(self, rows: Sequence[TopicRow], controller_epoch: int | None = None) -> None:
        self._change(lambda before: changes.with_topics_created(before, rows), controller_epoch)

    def delete_topics(self, topic_ids: Collection[str], controller_epoch: int | None = None) -> None:
        self._change(lambda before: changes.with_topics_deleted(before, topic_ids), controller_epoch)

    def alter_topics(self, rows: Sequence[TopicRow], controller_epoch: int | None = None) -> None:
        self._change(lambda before: changes.with_topics_altered(before, rows), controller_epoch)

    def _change(self, decide: Callable[[Sequence[TopicRow]], Sequence[TopicRow]], controller_epoch: int | None) -> None:
        self._replace_rows(paths.TOPICS, TopicRow, decide, lambda table: _claim(table, controller_epoch))


def _claim(topics: OpenDeltaTable, controller_epoch: int | None) -> Sequence[tuple[str, int]]:
    """Return the `txn` of a change if its epoch is newer than the table's. Raise `NotControllerError` if it is older."""
    if controller_epoch is None or topics.transaction_version(CONTROLLER_EPOCH) == controller_epoch:
        return ()
    if topics.has_later(CONTROLLER_EPOCH, controller_epoch):
        raise NotControllerError()
    return ((CONTROLLER_EPOCH, controller_epoch),)
