"""The tiers of the tests: what a test needs, as a marker, so that `-m unit` is an inner loop.

    tier      needs                                                     found by
    unit      this process                                              nothing of the below
    process   processes of ours: brokers, the command line              a fixture that starts one, the file's marker or directory
    peer      Apache Kafka's broker or Java clients                     a fixture that starts one, or the file's marker
    spark     a Spark session                                           the fixture `spark`, or the file's marker

A file says its tier (`pytestmark = pytest.mark.process`) where no fixture tells it. A unit test that starts a process fails, so the
tier of a test cannot be wrong unnoticed. Unit tests that take a tenth of a second or more, because they try every
byte, or hundreds of examples, or start a node in this process, or commit to Delta tables, are also `exhaustive`:
`scripts/test --fast` leaves them out.
"""

from __future__ import annotations

import contextlib
import multiprocessing.process
import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

TIERS = ("unit", "process", "peer", "spark")
"""From the cheapest to the costliest."""

_TIER_OF_FIXTURE = {
    "spark": "spark",
    "kafka_reference": "peer",
    "three_brokers": "peer",
    "_shared_kafkalake": "process",
    "kafkalake_broker": "process",
    "process": "process",
}
_TIER_OF_DIRECTORY = {"contract": "process", "interop": "process", "faults": "process"}
_MARKS_OF_FILE = re.compile(r"^pytestmark = (.*)$", re.MULTILINE)
_MARK = re.compile(r"\bpytest\.mark\.(\w+)\b")
_unit_test: str | None = None


def fixtures_of(item: pytest.Item) -> set[str]:
    """Return the names of the fixtures that a test uses, those included that `any_broker` asks for when the test runs."""
    fixtures = set(getattr(item, "fixturenames", ()))
    if "any_broker" in fixtures:
        kind = item.callspec.params["any_broker"]  # type: ignore[attr-defined]
        fixtures.add("kafka_reference" if kind == "apache-kafka" else "_shared_kafkalake")
    return fixtures


@cache
def tier_of(item: pytest.Item) -> str:
    """Return the costliest tier that the test's fixtures need or that it is marked with."""
    needed = {_TIER_OF_FIXTURE[name] for name in fixtures_of(item) if name in _TIER_OF_FIXTURE}
    needed |= {mark.name for mark in item.iter_markers() if mark.name in TIERS}
    needed.add(tier_of_file(item.path))
    return max(needed, key=TIERS.index, default="unit")


@cache
def tier_of_file(path: Path) -> str:
    """Return the cheapest tier that a test of this file can be of: what its directory or its own marker says."""
    of_directory = _TIER_OF_DIRECTORY.get(path.parent.name, "unit")
    return max([of_directory, *(mark for mark in marks_of_file(path) if mark in TIERS)], key=TIERS.index)


@cache
def marks_of_file(path: Path) -> frozenset[str]:
    """Return the markers that a file gives all its tests."""
    found = _MARKS_OF_FILE.search(path.read_text())
    return frozenset(_MARK.findall(found[1]) if found else ())


def may_have_tests(path: Path, markers: str) -> bool:
    """Return whether the expression of `-m` may select a test of that file; otherwise it need not be imported."""
    if not markers:
        return True
    selects = Expression.compile(markers).evaluate
    tiers = TIERS[TIERS.index(tier_of_file(path)) :]
    known = marks_of_file(path) - set(TIERS)
    return any(
        selects(lambda name, tier=tier, others=others, **_: name in {tier, *known} or (name not in TIERS and others))
        for tier, others in product(tiers, (False, True))
    )


@contextlib.contextmanager
def without_processes(item: pytest.Item) -> Iterator[None]:
    """Have whatever starts a process raise while a unit test runs."""
    global _unit_test
    _unit_test = item.nodeid if tier_of(item) == "unit" else None
    try:
        yield
    finally:
        _unit_test = None


def _refuse(event: str, *_: object) -> None:
    if _unit_test is not None and event in {"subprocess.Popen", "os.fork", "os.posix_spawn", "multiprocessing"}:
        raise AssertionError(f"{_unit_test} starts a process ({event}): it is no unit test, mark its tier")


_start = multiprocessing.process.BaseProcess.start


def _start_or_refuse(process: multiprocessing.process.BaseProcess) -> None:
    _refuse("multiprocessing")  # its own way to start a process raises no audit event
    _start(process)


sys.addaudithook(_refuse)
multiprocessing.process.BaseProcess.start = _start_or_refuse  # type: ignore[method-assign]
