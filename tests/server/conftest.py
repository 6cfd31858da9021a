"""Fixtures of the server's tests: a connection to the broker of a test's file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract.wire_client import WireClient
from kafka_reference import Kafkalake


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafkalake]:
    """The broker that the tests of a file share."""
    with Kafkalake() as broker:
        yield broker


@pytest.fixture
def client(broker: Kafkalake) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap_servers, timeout_s=60) as client:
        yield client
