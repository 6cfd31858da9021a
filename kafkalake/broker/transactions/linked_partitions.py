"""Which partitions transactions link, and which of them have to be published together: pure, a union of sets.

transactions   {a, b}   {b, c}   {d, e}
linked         {a, b, c}         {d, e}
if a is kept as published before, so are b and c; d and e move on
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

    def __bool__(self) -> bool:
        return bool(self._set_of)

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

    def retain(self, touched: Collection[TopicPartition]) -> None:
        """Forget the sets that have none of these partitions."""
        kept = [each for each in self.sets() if not each.isdisjoint(touched)]
        self._set_of = {}
        for each in kept:
            self.link(each)


def publish_closure(
    unfinished: Iterable[TopicPartition], links: Iterable[Collection[TopicPartition]]
) -> frozenset[TopicPartition]:
    """Return the partitions whose last stable offset must stay as published, so that no version shows half a transaction.

    `unfinished`: partitions whose position may lack a marker, or is not known. `links`: the partitions of each transaction whose
    markers may have been written since the last publish.
    """
    linked = LinkedPartitions(links)
    linked.retain(set(unfinished))
    return frozenset(unfinished).union(*linked.sets())
