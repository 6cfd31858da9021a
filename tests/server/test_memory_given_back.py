"""What a request took comes back when it is answered, without waiting for a collection of cycles.

Each test does many times what would leave a request's bytes behind, so that what stays is more than a broker may keep.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from contract.wire_client import WireClient, batch, code, create_topic, produce
from kafka_reference import Kafkalake
from worst_case import MIB, worst_case

pytestmark = pytest.mark.process

KEPT_BYTES = 96 * MIB
"""Free heap that the broker keeps for its next buffers, 64 MiB, and a few buffers."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafkalake]:
    with Kafkalake() as broker:
        yield broker


@pytest.fixture
def client(broker: Kafkalake) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap_servers) as client:
        yield client


def test_refused_batches(broker: Kafkalake, client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    too_large = batch([(None, b"x" * 20 * MIB)])
    with worst_case(broker) as cost:
        for _ in range(9):
            assert code(produce(client, topic, too_large).error_code) == 10
    cost.await_memory_back(KEPT_BYTES)


def test_batches_of_topics_that_are_not_there(broker: Kafkalake, client: WireClient, topic: str) -> None:
    large = batch([(None, b"x" * 20 * MIB)])
    with worst_case(broker) as cost:
        for _ in range(9):
            assert code(produce(client, topic, large).error_code) == 3
    cost.await_memory_back(KEPT_BYTES)
