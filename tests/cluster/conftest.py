"""What all tests of several brokers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_reference import Kafkalake


@pytest.fixture(autouse=True)
def start_killed_brokers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have brokers that a failed test has left dead run again, so that it is the only test that fails."""
    yield
    for name in {"brokers", "cluster"}.intersection(request.fixturenames):
        shared = request.getfixturevalue(name)
        for each in getattr(shared, "brokers", shared):
            if isinstance(each, Kafkalake) and not each.is_running():
                each.restart()
