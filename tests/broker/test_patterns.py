"""Regular expressions of clients: what they match, and that none takes long."""

from __future__ import annotations

import contextlib
import time

import pytest

from kafkalake.broker.coordination.patterns import PATTERN_BYTES_MAX, matching
from kafkalake.errors import InvalidRegularExpressionError

NAMES = ["a" * 26 + "!", "orders", "orders.eu", "payments-1"]

HOSTILE = {
    "nested repetition": "(a+)+",
    "nested, anchored": "^(a|a)*$",
    "counted repetition": "(a{1,100}){1,10}" * 15,
    "counted optional": "(a?a?){499}" * 22,
    "counted alternatives": "(a|a?){1000}" * 20,
    "within another": "((a{30}){30})" * 19,
    "classes of Unicode": r"[\pL\pN\pS]" * 300,
    "a class repeated": r"(\pL){100}" * 30,
    "a wide range repeated": r"[^b-d]{250}",
    "any and again": "(.*a){900}",
    "many anys": ".*a" * 1300,
    "a far lookback": ".*a.{200}",
    "long": "a" * 10_000_000,
    "unbalanced": "(" * 4000,
    "a count without an end": "a{99999999999999999999}",
}


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_expression_takes_long(hostile: str) -> None:
    names = [f"{'a' * 26}!{number}" for number in range(1000)]
    began = time.thread_time()
    with contextlib.suppress(InvalidRegularExpressionError):
        matching(HOSTILE[hostile], names)
    assert time.thread_time() - began < 0.1


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders.eu"}),
        (r"orders\.(eu|us)|payments-\d+", {"orders.eu", "payments-1"}),
        ("[a-z]{6}", {"orders"}),
        (r"\w{1,20}[-.]\w{1,20}", {"orders.eu", "payments-1"}),
        ("|".join(f"topic-{number}" for number in range(300)) + "|orders", {"orders"}),
        ("", set()),
    ],
)
def test_what_is_matched_as_a_whole(pattern: str, found: set[str]) -> None:
    assert matching(pattern, NAMES) == found


@pytest.mark.parametrize("pattern", ["(", "a)|(b", "*", "[", r"\p{Nope}", "a" * (PATTERN_BYTES_MAX + 1)])
def test_what_is_no_expression_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpressionError):
        matching(pattern, NAMES)
