"""A group member's parts that are pure: subscriptions, assignments, ranges."""

from __future__ import annotations

import pytest

from kafkalake.client.group_admin import decode_assignment
from kafkalake.client.group_member import (
    assign_ranges,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)


@pytest.mark.parametrize("topics", [[], ["a"], ["b", "größer", "a"]])
def test_subscriptions_are_read_as_they_were_written(topics: list[str]) -> None:
    assert decode_subscription(encode_subscription(topics)) == topics


@pytest.mark.parametrize("length", range(2, 16))
def test_a_subscription_that_is_cut_names_nothing(length: int) -> None:
    assert decode_subscription(encode_subscription(["abcde", "f"])[: min(length, 15)]) == []


def test_assignments_are_read_as_they_were_written() -> None:
    assert decode_assignment(encode_assignment({"b": [2, 0], "a": [1]})) == (("a", 1), ("b", 0), ("b", 2))
    assert decode_assignment(encode_assignment({})) == ()


def test_ranges_follow_the_ids_of_the_members_that_read_a_topic() -> None:
    subscriptions = {"m2": ["t", "u"], "m1": ["t"], "m3": ["t", "gone"]}
    assert assign_ranges(subscriptions, {"t": 7, "u": 2}) == {
        "m1": {"t": [0, 1, 2]},
        "m2": {"t": [3, 4], "u": [0, 1]},
        "m3": {"t": [5, 6]},
    }
    assert assign_ranges({"m1": ["t"], "m2": ["t"]}, {"t": 1}) == {"m1": {"t": [0]}, "m2": {}}
