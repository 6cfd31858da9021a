"""The Delta table `topics`: one small file, replaced by every change."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.metadata import changes, paths
from kafkalake.metadata.tables.lake_tables import LakeTables
from kafkalake.metadata.tables.schemas import TopicRow, from_table


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

    def create_topics(self, rows: Sequence[TopicRow]) -> None:
        self._replace_rows(paths.TOPICS, TopicRow, lambda before: changes.with_topics_created(before, rows))

    def delete_topic(self, topic_id: str) -> None:
        self._replace_rows(paths.TOPICS, TopicRow, lambda rows: changes.with_topic_deleted(rows, topic_id))

    def alter_topic(self, row: TopicRow) -> None:
        self._replace_rows(paths.TOPICS, TopicRow, lambda rows: changes.with_topic_altered(rows, row))
