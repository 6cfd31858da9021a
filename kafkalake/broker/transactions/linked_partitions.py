"""Which partitions transactions link: pure, a union of sets.

transactions   {a, b}   {b, c}   {d, e}
linked         {a, b, c}         {d, e}
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kafkalake.topic_partition import TopicPartition


class LinkedPartitions:
    """Disjoint sets of partitions. Two are in one set if transactions link them, directly or through others."""

    def __init__(self, links: Iterable[Collection[TopicPartition]] = ()) -> None:
        self._set_of: dict[TopicPartition, set[TopicPartition]] = {}
        for link in links:
            self.link(link)

    def link(self, partitions: Collection[TopicPartition]) -> None:
        """Link the partitions of a transaction."""
        known = {id(found): found for each in partitions if (found := self._set_of.get(each)) is not None}
        linked = max(known.values(), key=len, default=None)
        if linked is None:
            linked = set()
        for other in [*known.values(), set(partitions)]:
            if other is not linked:
                linked |= other
                self._set_of.update(dict.fromkeys(other, linked))

    def sets(self) -> list[frozenset[TopicPartition]]:
        """Return the sets."""
        return [frozenset(each) for each in {id(each): each for each in self._set_of.values()}.values()]
