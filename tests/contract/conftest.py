"""A raw connection to each broker in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract.wire_client import WireClient
from kafka_reference import BrokerProcess


@pytest.fixture
def client(any_broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(any_broker.bootstrap_servers) as client:
        yield client
