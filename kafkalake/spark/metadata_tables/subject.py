"""What a metadata table is about: a topic or all, now or then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.metadata.tables.schemas import PartitionRow, TopicRow
from kafkalake.reader.snapshot import topics_at

Rows = Iterator[tuple[object, ...]]
"""A topic's name and the values of a table's columns, as JSON has them."""


@dataclass(frozen=True)
class Subject:
    """The topic `topic`, or all (None), of a lake: at a version of its table `partitions`, at a time (ms), or now (both None)."""

    lake: Path
    store: DeltaMetadataStore
    topic: str | None
    version: int | None
    as_of_ms: int | None
    now_ms: int

    @property
    def is_past(self) -> bool:
        return self.version is not None or self.as_of_ms is not None

    @cached_property
    def partitions(self) -> list[PartitionRow]:
        """The rows of `partitions` then. Raise `LakeError` if they are not kept."""
        names = None if self.topic is None else [self.topic]
        return self.store.partitions_at(self.version, self.as_of_ms, names)[1]

    @cached_property
    def topics(self) -> list[TopicRow]:
        """The topic, or all of them, as of then; none if there was no such topic."""
        topics = self.store.load_topics() if self.topic is None else self.store.find_topics([self.topic])
        return topics_at(topics, self.partitions) if self.is_past else topics

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(each.topic for each in self.topics)


def micros(time_ms: int | None) -> int | None:
    """Return a time as Spark's TIMESTAMP has it."""
    return None if time_ms is None else time_ms * 1000
