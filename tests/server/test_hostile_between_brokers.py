"""Whoever sends one wrong message of those between brokers does no harm that outlives it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import UUID

import pytest
from contract.wire_client import WireClient, batch, code, create_topic, produce
from generated_frames import Frames
from node_in_thread import NodeInThread
from server.test_fuzzed_frames import Fuzz, on_loop, until_idle
from waiting import wait_until

from kafkalake.broker.delayed.hand_overs import hand_over_producer_id
from kafkalake.errors import InvalidProducerIdMappingError, InvalidRecordError, InvalidRequestError, NotControllerError
from kafkalake.internal_topics import DELAYED_JOURNAL

pytestmark = pytest.mark.exhaustive  # a node in this process

LISTENER = {"name": "PLAINTEXT", "host": "other", "port": 1, "security_protocol": 0}
NEVER = 2**31 - 1
BETWEEN = {27, 56, 58, 62, 63, 67, 70, *range(10_002, 10_011)}
FRAMES = int(os.environ.get("FUZZ_FRAMES", "200000")) // 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInThread]:
    with NodeInThread(tmp_path_factory.mktemp("hostile") / "lake") as node:
        yield node


@pytest.fixture
def client(node: NodeInThread) -> Iterator[WireClient]:
    with WireClient(node.servers) as client:
        yield client


def registered(node: NodeInThread) -> dict[int, str]:
    broker = node.node.broker
    assert broker is not None
    return {each.broker_id: each.endpoints[0].host for each in broker.cluster.brokers.values()}


@pytest.mark.parametrize("step", range(4))
def test_reports_for_a_controller_that_nobody_has_elected_are_refused(
    node: NodeInThread, client: WireClient, step: int
) -> None:
    answer = client.call("ReportChanges", 0, controller_epoch=NEVER, step=step)
    assert code(answer.error_code) == NotControllerError.code
    epoch = node.node.broker.cluster.controller_epoch  # type: ignore[union-attr]
    answer = client.call("ReportChanges", 0, controller_epoch=epoch, published=[], kept=[])
    assert code(answer.error_code) == 0, "the real one is answered"


@pytest.mark.parametrize("change", [{"rack": "r" * 256}, {"boot_id": "b" * 30_000}, {"host": "h" * 256}])
def test_a_registration_has_a_bounded_size(node: NodeInThread, client: WireClient, change: dict[str, str]) -> None:
    before = registered(node)
    host = change.pop("host", "h")
    values = {"broker_id": 5, "incarnation_id": UUID(int=1), "listeners": [{**LISTENER, "host": host}], **change}
    cluster_id = node.node.broker.cluster.cluster_id  # type: ignore[union-attr]
    answer = client.call("BrokerRegistration", 4, cluster_id=cluster_id, **values)
    assert code(answer.error_code) == InvalidRequestError.code
    assert registered(node) == before


def test_nobody_becomes_a_controller_in_place_of_a_broker_that_lives(node: NodeInThread, client: WireClient) -> None:
    asked = {"controller_id": 0, "incarnation_id": UUID(int=1), "listeners": [LISTENER]}
    assert code(client.call("ControllerRegistration", 0, **asked).error_code) != 0
    image = node.node.broker.cluster  # type: ignore[union-attr]
    assert 0 in image.brokers and not image.controllers


def test_another_controller_may_register_and_be_unregistered(node: NodeInThread, client: WireClient) -> None:
    asked = {"controller_id": 9, "incarnation_id": UUID(int=1), "listeners": [LISTENER]}
    for _ in range(2):
        assert code(client.call("ControllerRegistration", 0, **asked).error_code) == 0
    broker = node.node.broker
    assert broker is not None and list(broker.cluster.controllers) == [9]
    version = broker.cluster.version
    assert code(client.call("ControllerRegistration", 0, **asked).error_code) == 0
    assert broker.cluster.version == version, "it says nothing new"
    assert code(client.call("UnregisterBroker", 0, broker_id=9).error_code) == 0
    assert not broker.cluster.controllers


def test_only_journals_of_delayed_records_deliver_and_not_to_internal_topics(
    node: NodeInThread, client: WireClient
) -> None:
    """Logs remember the producers of delayed records for ever, and coordinators read what internal topics have."""
    broker = node.node.broker
    assert broker is not None
    on_loop(node, broker.delayed.make_ready())
    journal = broker.topics.topic(DELAYED_JOURNAL)
    own = hand_over_producer_id((journal.topic_id, 0))
    orders = create_topic(client, "orders", 1)

    def deliver(topic_id: UUID, producer_id: int, sequence: int = 0) -> int:
        records = batch([(b"k", b"v")], producer_id=producer_id, epoch=0, sequence=sequence)
        asked = {"topic_id": topic_id, "partition_index": 0, "records": records}
        (result,) = client.call("DeliverRecords", 0, batches=[asked]).results
        return code(result.error_code)

    for producer_id in (-1, 7, 2**62 + 7, 2**63 - 1):
        assert deliver(orders, producer_id) == InvalidProducerIdMappingError.code
    assert deliver(journal.topic_id, own) == InvalidRecordError.code
    assert deliver(orders, own) == 0
    assert [producer_id for producer_id, _ in broker.topics.leader("orders", 0).log.producers()] == [own]


def test_only_what_waits_is_handed_in(node: NodeInThread, client: WireClient) -> None:
    broker = node.node.broker
    assert broker is not None
    on_loop(node, broker.delayed.make_ready())
    asked = {"journal_partition": 0, "transactional_id": None, "records": batch([(None, b"v")])}
    (result,) = client.call("DelayRecords", 0, batches=[asked]).results
    assert code(result.error_code) == InvalidRecordError.code


def test_frames_of_these_apis_leave_a_broker_that_leads_and_publishes(node: NodeInThread, client: WireClient) -> None:
    topic_id = create_topic(client, "clicks", 1)
    frames = Frames(int(os.environ.get("FUZZ_SEED", "1")), [topic_id], BETWEEN)
    fuzz = Fuzz(node, frames)
    on_loop(node, fuzz.run(FRAMES))
    on_loop(node, fuzz.end())
    until_idle(fuzz)
    broker = node.node.broker
    assert broker is not None and broker.controller.is_active
    assert broker.cluster.brokers[0].is_active and broker.cluster.controller_id == 0
    answer = produce(client, "clicks", batch([(b"k", b"v")]))
    assert code(answer.error_code) == 0
    end = answer.base_offset + 1  # DeliverRecords appends too
    wait_until(lambda: [row.high_watermark for row in broker.store.load_partitions() if row.topic == "clicks"] == [end])
