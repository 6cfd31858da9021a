"""The client's assignors: tables, and what must hold for every group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kafkalake.client.consuming.assignors import ASSIGNORS, Assigned, Assignor, GroupMember, settle_claims
from kafkalake.topic_partition import TopicPartition, by_topic
from kafkalake.wire.consumer_protocol import Subscription, decode_assignment, encode_assignment

STICKY = ("sticky", "cooperative-sticky")


def member(
    assignor: Assignor, topics: Sequence[str], owned: Sequence[TopicPartition] = (), generation: int = -1
) -> GroupMember:
    """A member as its own client describes it: what it had, of which generation."""
    kept = tuple(owned) if assignor.rebalance_protocol == "cooperative" else ()
    user_data = assignor.encode_user_data(owned, generation)
    return GroupMember(Subscription(tuple(topics), user_data, kept, generation))


def rebalance(
    assignor: Assignor, topics: Mapping[str, Sequence[str]], counts: Mapping[str, int], before: Assigned | None = None
) -> Assigned:
    """The assignment of a group whose members had `before`. A cooperative one joins again until nothing is withheld."""
    owned = dict(before or {})
    for generation in range(1, 4):
        members = {each: member(assignor, topics[each], owned.get(each, ()), generation) for each in topics}
        owned = dict(assignor.assign(members, counts))
    return owned


def test_round_robin_deals_the_partitions_of_all_topics_in_turn() -> None:
    assigned = rebalance(ASSIGNORS["roundrobin"], {"a": ["t", "u"], "b": ["t", "u"]}, {"t": 3, "u": 3})
    assert assigned == {"a": [("t", 0), ("t", 2), ("u", 1)], "b": [("t", 1), ("u", 0), ("u", 2)]}
    uneven = rebalance(ASSIGNORS["roundrobin"], {"a": ["t"], "b": ["t", "u"]}, {"t": 2, "u": 2, "v": 9})
    assert uneven == {"a": [("t", 0)], "b": [("t", 1), ("u", 0), ("u", 1)]}


def test_a_partition_is_withheld_until_its_owner_has_revoked_it() -> None:
    assignor = ASSIGNORS["cooperative-sticky"]
    four = [("t", number) for number in range(4)]
    members = {"a": member(assignor, ["t"], four, 1), "b": member(assignor, ["t"])}
    first = assignor.assign(members, {"t": 4})
    assert (len(first["a"]), first["b"]) == (2, [])
    second = assignor.assign(
        {"a": member(assignor, ["t"], first["a"], 2), "b": member(assignor, ["t"], (), 2)}, {"t": 4}
    )
    assert second["a"] == first["a"] and sorted((*second["a"], *second["b"])) == four


def test_of_two_claims_the_later_generation_counts_and_of_equal_ones_none() -> None:
    claims = {"a": ([("t", 0), ("t", 1)], 3), "b": ([("t", 0)], 4), "c": ([("t", 1), ("t", 2)], 3)}
    assert settle_claims(claims) == {"a": frozenset(), "b": {("t", 0)}, "c": {("t", 2)}}


topics = st.sampled_from("tuv")
groups = st.dictionaries(st.sampled_from("abcdef"), st.lists(topics, unique=True), min_size=1)
counts = st.dictionaries(topics, st.integers(0, 7))


def read_partitions(group: Mapping[str, Sequence[str]], counts: Mapping[str, int]) -> list[TopicPartition]:
    read = {topic for subscribed in group.values() for topic in subscribed}
    return sorted((topic, number) for topic in read for number in range(counts.get(topic, 0)))


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@examples(100)
@given(groups, counts, groups, counts)
def test_every_partition_that_is_read_has_one_reader_whatever_was_before(
    name: str,
    earlier: dict[str, list[str]],
    fewer: dict[str, int],
    group: dict[str, list[str]],
    counts: dict[str, int],
) -> None:
    assignor = ASSIGNORS[name]
    assigned = rebalance(assignor, group, counts, rebalance(assignor, earlier, fewer))
    assert assigned.keys() == group.keys()
    assert all(topic in group[each] for each, found in assigned.items() for topic, _ in found)
    assert sorted(one for found in assigned.values() for one in found) == read_partitions(group, counts)
    for found in assigned.values():
        assert decode_assignment(encode_assignment(by_topic(found))) == tuple(sorted(found))


@examples(100)
@given(groups, counts, groups)
def test_assignments_are_as_even_as_subscriptions_allow(
    group: dict[str, list[str]], counts: dict[str, int], earlier: dict[str, list[str]]
) -> None:
    for name in STICKY:
        assigned = rebalance(ASSIGNORS[name], group, counts, rebalance(ASSIGNORS[name], earlier, counts))
        for each, found in assigned.items():
            for topic, _ in found:  # none could move to a member that reads its topic and has two fewer
                assert all(len(found) <= len(assigned[other]) + 1 for other in group if topic in group[other]), each
    ranges = rebalance(ASSIGNORS["range"], group, counts)
    for topic in counts:
        sizes = [sum(one[0] == topic for one in ranges[each]) for each in group if topic in group[each]]
        assert not sizes or max(sizes) - min(sizes) <= 1
    turns = rebalance(ASSIGNORS["roundrobin"], dict.fromkeys(group, ("t", "u", "v")), counts)
    sizes = [len(found) for found in turns.values()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("name", STICKY)
@examples(100)
@given(groups, counts, st.sampled_from("abcdefgh"))
def test_sticky_is_balanced_stays_and_moves_only_what_a_change_of_members_needs(
    name: str, group: dict[str, list[str]], counts: dict[str, int], newcomer: str
) -> None:
    assignor = ASSIGNORS[name]
    same = {each: ["t", "u"] for each in group}
    before = rebalance(assignor, same, counts)
    sizes = [len(found) for found in before.values()]
    assert max(sizes) - min(sizes) <= 1
    assert rebalance(assignor, same, counts, before) == before
    after = rebalance(assignor, {**same, newcomer: ["t", "u"]}, counts, before)
    for each, found in before.items():
        assert each == newcomer or set(after[each]) <= set(found)  # nothing moves between those that stay
    left = {each: same[each] for each in list(same)[1:]}
    if left:
        kept = rebalance(assignor, left, counts, before)
        assert all(set(before[each]) <= set(kept[each]) for each in left)
