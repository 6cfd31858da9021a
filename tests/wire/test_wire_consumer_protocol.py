"""Subscriptions and assignments of the embedded consumer protocol, which the broker reads as their writers meant them."""

from __future__ import annotations

import pytest

from kafkalake.broker.groups import subscription
from kafkalake.wire.consumer_protocol import (
    Subscription,
    decode_assignment,
    decode_generation,
    decode_sticky,
    decode_subscription,
    encode_assignment,
    encode_generation,
    encode_sticky,
    encode_subscription,
)

SUBSCRIPTIONS = [
    Subscription(()),
    Subscription(("a",)),
    Subscription(("b", "größer", "a"), b"data", (("a", 0), ("a", 2), ("b", 1)), 7, "rack"),
]


@pytest.mark.parametrize("subscription", SUBSCRIPTIONS)
def test_subscriptions_are_read_as_they_were_written(subscription: Subscription) -> None:
    assert decode_subscription(encode_subscription(subscription)) == subscription


def test_subscriptions_of_older_clients_are_read() -> None:
    newest = encode_subscription(SUBSCRIPTIONS[-1])
    assert decode_subscription(b"\0\0" + newest[2:]) == Subscription(("b", "größer", "a"), b"data")
    owned = (("a", 0), ("a", 2), ("b", 1))
    assert decode_subscription(b"\0\1" + newest[2:]) == Subscription(("b", "größer", "a"), b"data", owned)
    assert decode_subscription(b"\0\2" + newest[2:]) == Subscription(("b", "größer", "a"), b"data", owned, 7)


def test_user_data_of_assignors_is_javas() -> None:
    owned = (("a", 0), ("a", 2), ("b", 1))
    sticky = bytes.fromhex("00000002 0001 61 00000002 00000000 00000002 0001 62 00000001 00000001 00000005")
    assert encode_sticky(owned, 5) == sticky
    assert decode_sticky(sticky) == (owned, 5)
    assert decode_sticky(sticky[:-4]) == (owned, -1)
    assert decode_sticky(sticky[:9]) == ((), -1)
    assert (encode_generation(3), decode_generation(b"\0\0\0\3"), decode_generation(b"")) == (b"\0\0\0\3", 3, -1)


@pytest.mark.parametrize("length", range(2, 16))
def test_a_subscription_that_is_cut_names_nothing(length: int) -> None:
    written = encode_subscription(Subscription(("abcde", "f")))[: min(length, 15)]
    assert decode_subscription(written) == Subscription(())


def test_assignments_are_read_as_they_were_written() -> None:
    assert decode_assignment(encode_assignment({"b": [2, 0], "a": [1]})) == (("a", 1), ("b", 0), ("b", 2))
    assert decode_assignment(encode_assignment({})) == ()


@pytest.mark.parametrize("length", range(2, 22))
def test_an_assignment_that_is_cut_names_nothing(length: int) -> None:
    assert decode_assignment(encode_assignment({"abcde": [1, 2]})[:length]) == ()


def test_the_broker_and_the_members_mean_the_same() -> None:
    topics, assignment = ["b", "größer"], {"b": [2, 0], "a": [1]}
    assert subscription.read_subscription(encode_subscription(Subscription(tuple(topics)))).topics == tuple(topics)
    whole = SUBSCRIPTIONS[-1]
    read = subscription.read_subscription(encode_subscription(whole))
    assert (read.owned, read.rack_id, read.user_data) == (frozenset(whole.owned), whole.rack_id, whole.user_data)
    assert subscription.read_assignment(encode_assignment(assignment)).partitions == {("a", 1), ("b", 0), ("b", 2)}
    assert decode_assignment(subscription.encode_assignment(3, assignment)) == (("a", 1), ("b", 0), ("b", 2))
