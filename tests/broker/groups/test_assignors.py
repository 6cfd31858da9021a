"""The server-side assignors: tables, and what must hold for every input."""

from __future__ import annotations

import uuid

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from steps import run_steps

from kafkalake.assignment import assign_range, assign_uniform
from kafkalake.broker.groups.assignors import (
    ASSIGNORS,
    NOTHING,
    Assignment,
    Subscriber,
)

T, U, V = (uuid.UUID(int=number) for number in (1, 2, 3))
BOTH = frozenset({T, U})


def parts(topic: uuid.UUID, *partitions: int) -> Assignment:
    return frozenset((topic, partition) for partition in partitions)


RANGE_CASES: dict[str, tuple[dict[str, Subscriber], dict[uuid.UUID, int], dict[str, Assignment]]] = {
    "nobody": ({}, {T: 3}, {}),
    "no topic": ({"a": Subscriber(frozenset({T}))}, {}, {"a": NOTHING}),
    "first ones get one more": (
        {"a": Subscriber(BOTH), "b": Subscriber(BOTH)},
        {T: 3, U: 3},
        {"a": parts(T, 0, 1) | parts(U, 0, 1), "b": parts(T, 2) | parts(U, 2)},
    ),
    "more members than partitions": (
        {"a": Subscriber(frozenset({T})), "b": Subscriber(frozenset({T})), "c": Subscriber(frozenset({T}))},
        {T: 2},
        {"a": parts(T, 0), "b": parts(T, 1), "c": NOTHING},
    ),
    "static members first, by instance": (
        {
            "a": Subscriber(frozenset({T})),
            "z": Subscriber(frozenset({T}), NOTHING, "2"),
            "y": Subscriber(frozenset({T}), NOTHING, "1"),
        },
        {T: 3},
        {"y": parts(T, 0), "z": parts(T, 1), "a": parts(T, 2)},
    ),
    "different subscriptions": (
        {"a": Subscriber(BOTH), "b": Subscriber(frozenset({U}))},
        {T: 2, U: 2},
        {"a": parts(T, 0, 1) | parts(U, 0), "b": parts(U, 1)},
    ),
}


@pytest.mark.parametrize("case", RANGE_CASES)
def test_range(case: str) -> None:
    members, partitions, expected = RANGE_CASES[case]
    assert assign_range(members, partitions) == expected


def test_uniform_keeps_what_it_can() -> None:
    before = {
        "a": Subscriber(frozenset({T}), parts(T, 0, 1, 2)),
        "b": Subscriber(frozenset({T}), parts(T, 3, 4, 5)),
        "c": Subscriber(frozenset({T})),
    }
    after = assign_uniform(before, {T: 6})
    assert after["a"] < before["a"].owned and after["b"] < before["b"].owned
    assert [len(after[member]) for member in "abc"] == [2, 2, 2]


def test_uniform_gives_away_only_what_somebody_lacks() -> None:
    before = {"a": Subscriber(frozenset({T}), parts(T, 0, 1)), "b": Subscriber(frozenset({T}), parts(T, 2))}
    assert assign_uniform(before, {T: 3}) == {"a": parts(T, 0, 1), "b": parts(T, 2)}
    assert assign_uniform(before, {T: 4}) == {"a": parts(T, 0, 1), "b": parts(T, 2, 3)}
    assert assign_uniform({"a": before["a"]}, {T: 3}) == {"a": parts(T, 0, 1, 2)}


def test_uniform_is_as_even_as_subscriptions_allow() -> None:
    members = {
        "a": Subscriber(frozenset({T, U})),
        "b": Subscriber(frozenset({U})),
        "c": Subscriber(frozenset({U, V}), parts(U, 0, 1, 2, 3)),
    }
    after = assign_uniform(members, {T: 4, U: 4, V: 1})
    assert [len(after[member]) for member in "abc"] == [4, 3, 2] or [len(after[member]) for member in "abc"] == [
        4,
        2,
        3,
    ]


topics = st.sampled_from([T, U, V])
groups = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Subscriber,
        st.frozensets(topics),
        st.frozensets(st.tuples(topics, st.integers(0, 7)), max_size=6),
        st.one_of(st.none(), st.sampled_from("ij")),
    ),
)


@pytest.mark.parametrize("name", ASSIGNORS)
@examples(200)
@given(groups, st.dictionaries(topics, st.integers(0, 7)))
def test_every_partition_that_is_read_has_one_reader(
    name: str, members: dict[str, Subscriber], partitions: dict[uuid.UUID, int]
) -> None:
    after = run_steps(ASSIGNORS[name](members, partitions))
    assert after.keys() == members.keys()
    assert all(topic in members[member].topics for member in members for topic, _ in after[member])
    given_out = sorted(one for found in after.values() for one in found)
    read = {topic for one in members.values() for topic in one.topics}
    assert given_out == sorted((topic, index) for topic in read for index in range(partitions.get(topic, 0)))
    backwards = dict(reversed(members.items()))
    assert run_steps(ASSIGNORS[name](backwards, dict(reversed(partitions.items())))) == after


@examples(200)
@given(groups, st.dictionaries(topics, st.integers(0, 7)))
def test_uniform_is_balanced_and_repeating_it_changes_nothing(
    members: dict[str, Subscriber], partitions: dict[uuid.UUID, int]
) -> None:
    after = assign_uniform(members, partitions)
    for found in after.values():
        for topic, _ in found:
            for other, subscriber in members.items():
                assert topic not in subscriber.topics or len(found) <= len(after[other]) + 1
    again = {one: Subscriber(value.topics, after[one], value.group_instance_id) for one, value in members.items()}
    assert assign_uniform(again, partitions) == after


class Looked(str):
    """The name of a member that counts how often it is looked up."""

    count = 0

    def __hash__(self) -> int:
        Looked.count += 1
        return super().__hash__()


MEMBERS, PARTITIONS, TOPICS = 300, 50, 20


@pytest.mark.parametrize("owned", [False, True], ids=["none owned", "all owned by one"])
def test_members_with_different_subscriptions_are_not_all_looked_at_for_each_partition(owned: bool) -> None:
    """It took seconds for 1,000 members and 10,000 partitions, in which the broker answered nobody."""
    topics = [uuid.UUID(int=number) for number in range(TOPICS)]
    members = {Looked(f"member-{n}"): Subscriber(frozenset(topics[n % 10 :])) for n in range(MEMBERS)}
    if owned:
        everything = frozenset((topic, partition) for topic in topics for partition in range(PARTITIONS))
        members[Looked("member-0")] = Subscriber(frozenset(topics), everything)
    Looked.count = 0
    after = assign_uniform(members, dict.fromkeys(topics, PARTITIONS))
    assert Looked.count < 40 * (MEMBERS + TOPICS * PARTITIONS)
    sizes = {len(found) for found in after.values()}
    assert max(sizes) <= min(sizes) + 1
