"""The Delta table `topics`: one small file, replaced by every change."""

from __future__ import annotations

from kafkalake.metadata import changes, paths
from kafkalake.metadata.tables.lake_tables import LakeTables
from kafkalake.metadata.tables.schemas import TopicRow


class DeltaTopics(LakeTables):
    """`TopicTable` on Delta."""

    def load_topics(self) -> list[TopicRow]:
        return sorted(self._load(paths.TOPICS, TopicRow), key=lambda row: row.topic)

    def create_topic(self, row: TopicRow) -> None:
        self._replace_rows(paths.TOPICS, TopicRow, lambda rows: changes.with_topic_created(rows, row))

    def delete_topic(self, topic: str) -> None:
        self._replace_rows(paths.TOPICS, TopicRow, lambda rows: changes.with_topic_deleted(rows, topic))

    def alter_topic(self, row: TopicRow) -> None:
        self._replace_rows(paths.TOPICS, TopicRow, lambda rows: changes.with_topic_altered(rows, row))
