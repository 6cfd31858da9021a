"""Addresses of brokers as text."""

from __future__ import annotations

import pytest

from kafkalake.client.address import Address, parse_addresses


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", [Address("127.0.0.1", 9092)]),
        ("a:1, b:2 ,", [Address("a", 1), Address("b", 2)]),
        ("host", [Address("host", 9092)]),
        ("[::1]:9093", [Address("::1", 9093)]),
    ],
)
def test_addresses(text: str, expected: list[Address]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize("text", ["", ",", "host:", "host:port", "host:0", "host:65536", ":9092", "::1:9092"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_addresses(text)
