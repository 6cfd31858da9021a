"""Which tests run only in `scripts/soak`, where `LONG_RUNS` is set.

Cases like others, tests of minutes (`@pytest.mark.long`), and the clients' tests on Apache Kafka, which show that a test is right,
as `@pytest.mark.long("apache-kafka")` says of one elsewhere. What stays in a run of all tests has half an hour on two cores.
The other tests that compare both brokers (`tests/contract`, and what is in `tests/broker` as Kafka does it) always run on both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

ALL = bool(os.environ.get("LONG_RUNS"))
ON_KAFKALAKE = {"cli", "client", "interop"}
"""Directories whose tests run on Apache Kafka in the soak."""

T = TypeVar("T")


def first_of(cases: Sequence[T], count: int) -> Sequence[T]:
    """Return the first `count` cases, the telling ones, or all."""
    return cases if ALL else cases[:count]


def is_left_out(item: pytest.Item) -> bool:
    """Return whether a test does not run now."""
    if ALL:
        return False
    callspec = getattr(item, "callspec", None)
    broker = callspec.params.get("any_broker") if callspec is not None else None
    if broker == "apache-kafka" and item.path.parent.name in ON_KAFKALAKE:
        return True
    return any(not mark.args or broker in mark.args for mark in item.iter_markers("long"))
