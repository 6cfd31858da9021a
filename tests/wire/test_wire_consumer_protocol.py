"""Subscriptions and assignments of the embedded consumer protocol, which the broker reads as their writers meant them."""

from __future__ import annotations

import pytest

from kafkalake.broker.groups import subscription
from kafkalake.wire.consumer_protocol import (
    decode_assignment,
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


@pytest.mark.parametrize("length", range(2, 22))
def test_an_assignment_that_is_cut_names_nothing(length: int) -> None:
    assert decode_assignment(encode_assignment({"abcde": [1, 2]})[:length]) == ()


def test_the_broker_and_the_members_mean_the_same() -> None:
    topics, assignment = ["b", "größer"], {"b": [2, 0], "a": [1]}
    assert subscription.read_subscription(encode_subscription(topics)).topics == tuple(topics)
    assert subscription.read_assignment(encode_assignment(assignment)).partitions == {("a", 1), ("b", 0), ("b", 2)}
    assert decode_assignment(subscription.encode_assignment(3, assignment)) == (("a", 1), ("b", 0), ("b", 2))
