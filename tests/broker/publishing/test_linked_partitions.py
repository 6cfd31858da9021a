"""The publish closure: no version shows half a transaction, and nothing is kept without a reason."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkalake.broker.transactions.linked_partitions import LinkedPartitions, publish_closure
from kafkalake.topic_partition import TopicPartition

_partitions = st.tuples(st.just("t"), st.integers(0, 7))
_links = st.lists(st.frozensets(_partitions, min_size=1, max_size=4), max_size=8)
_unfinished = st.frozensets(_partitions, max_size=3)


def reachable(begin: frozenset[TopicPartition], links: list[frozenset[TopicPartition]]) -> frozenset[TopicPartition]:
    """Return what links reach, step by step."""
    found = begin
    while True:
        further = found.union(*(link for link in links if link & found))
        if further == found:
            return found
        found = further


@given(unfinished=_unfinished, links=_links)
def test_each_transaction_is_published_in_all_its_partitions_or_in_none(
    unfinished: frozenset[TopicPartition], links: list[frozenset[TopicPartition]]
) -> None:
    kept = publish_closure(unfinished, links)
    assert unfinished <= kept
    assert all(link <= kept or not link & kept for link in links)


@given(unfinished=_unfinished, links=_links)
def test_nothing_else_is_kept(unfinished: frozenset[TopicPartition], links: list[frozenset[TopicPartition]]) -> None:
    assert publish_closure(unfinished, links) == reachable(unfinished, links)


@given(first=_links, then=_links, touched=_unfinished)
def test_linked_sets_are_disjoint_and_those_that_nothing_touches_are_forgotten(
    first: list[frozenset[TopicPartition]], then: list[frozenset[TopicPartition]], touched: frozenset[TopicPartition]
) -> None:
    linked = LinkedPartitions(first)
    linked.retain(touched)
    retained = linked.sets()
    assert all(each & touched for each in retained)
    for link in then:
        linked.link(link)
    sets = linked.sets()
    assert sum(map(len, sets)) == len(frozenset().union(*sets))
    assert all(any(link <= each for each in sets) for link in [*retained, *then])
