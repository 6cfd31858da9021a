"""A topic that is to be created, or to get more partitions, as it was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafkalake.broker.partitions.topics import Topic


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created. -1 means the broker's default. `assignments` are broker ids per partition, or None.

    is_level: the broker makes it for `delay.levels` of another topic.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] | None = None
    config: Mapping[str, str | None] | None = None
    is_level: bool = False


class MorePartitions(NamedTuple):
    """A topic that is to have so many partitions. assignments: the replicas of the new ones, or None to place them."""

    topic: Topic
    partitions: int
    assignments: Sequence[Sequence[int]] | None = None
