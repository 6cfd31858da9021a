"""What a broker asks another one about transactions, over a connection, as that one answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kafka_reference import free_port
from record_batches import simple_batch

from kafkalake.broker.admin.topic_plans import NewTopic
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.coordination.waiting import wait_for_call
from kafkalake.broker.groups.offset_requests import CommitRequest, OffsetToCommit, PartitionErrors
from kafkalake.broker.partitions.partition import PendingAppend
from kafkalake.broker.transactions.decisions import Marker
from kafkalake.broker.transactions.requests import ProducerResult
from kafkalake.broker.transactions.transaction_peers import AdmissionRequest, MarkerRequest
from kafkalake.client.connection import Address
from kafkalake.client.peers import ConnectedPeers
from kafkalake.errors import (
    BrokerUnavailableError,
    InvalidProducerIdMappingError,
    OperationNotAttemptedError,
    ProducerFencedError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from kafkalake.process.node import Node
from kafkalake.server.transaction_peers import ConnectedTransactionPeers

pytestmark = pytest.mark.exhaustive

P0, P1, GONE = ("t", 0), ("t", 1), ("t", 9)
ID = "app"


class Asking:
    """A running broker, with both journals and the topic `t`, and the connection to it."""

    def __init__(self, node: Node, peers: ConnectedTransactionPeers) -> None:
        assert node.broker is not None
        self.broker = node.broker
        self.peers = peers

    async def producer(self) -> ProducerIdAndEpoch:
        coordinator = self.broker.transactions.coordinator
        made: ProducerResult = await wait_for_call(lambda reply: coordinator.init_producer_id(ID, 60_000, None, reply))
        assert made.error is None
        return ProducerIdAndEpoch(made.producer_id, made.epoch)

    async def check_admission(self) -> None:
        producer = await self.producer()
        older = ProducerIdAndEpoch(producer.producer_id, producer.epoch - 1)
        offsets = self.broker.groups.journal.key("group")
        results = await self.peers.admit(
            7,
            [
                AdmissionRequest(ID, producer, (P0, offsets), add=True),
                AdmissionRequest("nobody", producer, (P0,), add=True),
            ],
        )
        assert results == [{P0: None, offsets: None}, {P0: InvalidProducerIdMappingError}]
        transaction = self.broker.transactions.coordinator.describe(ID)
        assert transaction.partitions == tuple(sorted((P0, offsets)))
        entry = self.broker.transactions.coordinator.table.find(ID)
        assert entry is not None and entry.transaction.current is not None
        assert entry.transaction.current.client_version == 2
        (verified,) = await self.peers.admit(7, [AdmissionRequest(ID, producer, (P0, P1), add=False)])
        assert verified == {P0: None, P1: TransactionAbortableError}
        (refused,) = await self.peers.admit(7, [AdmissionRequest(ID, older, (P0,), add=False)])
        assert refused == {P0: ProducerFencedError}
        (missing,) = await self.peers.admit(7, [AdmissionRequest(ID, producer, (GONE, P1), add=True)])
        assert missing == {GONE: UnknownTopicOrPartitionError, P1: OperationNotAttemptedError}
        (internal,) = await self.peers.admit(
            7, [AdmissionRequest(ID, producer, (("__transaction_state", 0),), add=True)]
        )
        assert internal == {("__transaction_state", 0): TopicAuthorizationError}

    async def check_markers(self) -> None:
        """A producer whose coordinator is the asking broker has records and a group's offset here."""
        producer = ProducerIdAndEpoch(7_000, 0)
        batch = simple_batch([b"x"], producer_id=7_000, epoch=0, sequence=0, transactional=True)
        partition = self.broker.topics.leader(*P0)
        self.broker.append_queue.add(PendingAppend(partition, batch, None))
        commit = CommitRequest("group", [OffsetToCommit(*P0, 5)], producer=producer)
        committed: PartitionErrors = await wait_for_call(lambda reply: self.broker.groups.offsets.commit(commit, reply))
        assert committed == {P0: None}
        offsets = self.broker.groups.journal.key("group")
        marker = Marker(7_000, 0, committed=True)
        results = await self.peers.write_markers(7, [MarkerRequest(each, marker, 4) for each in (P0, offsets, GONE)])
        assert results == [None, None, UnknownTopicOrPartitionError]
        assert partition.log.last_stable_offset == 2
        found = self.broker.groups.offsets.fetch("group", [P0], require_stable=True)[P0]
        assert found is not None and not isinstance(found, type) and found.offset == 5
        late = await self.peers.write_markers(7, [MarkerRequest(P0, marker, 3), MarkerRequest(P0, marker, 5)])
        assert late == [TransactionCoordinatorFencedError, None]


def test_a_broker_answers_what_another_one_asks(tmp_path: Path) -> None:
    async def scenario() -> None:
        port = free_port()
        settings = {f"{name}.num.partitions": "2" for name in ("offsets.topic", "transaction.state.log")}
        node = Node(tmp_path / "lake", {"listeners": f"PLAINTEXT://127.0.0.1:{port}", **settings})
        peers = ConnectedPeers(
            lambda broker_id: Address("127.0.0.1", port) if broker_id == 7 else None,
            client_id="broker-8",
            request_timeout_ms=lambda: 10_000,
        )
        try:
            await node.start()
            asking = Asking(node, ConnectedTransactionPeers(peers))
            await asking.broker.topic_admin.create(NewTopic("t", 2), timeout_ms=20_000)
            await asking.broker.groups.journal.make_ready()
            await asking.broker.transactions.journal.make_ready()
            await asking.check_admission()
            await asking.check_markers()
            with pytest.raises(BrokerUnavailableError):
                await asking.peers.write_markers(9, [])
        finally:
            peers.stop()
            await node.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
