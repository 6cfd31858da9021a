"""What a broker asks another one about transactions, over a connection, as that one answers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kafka_reference import free_port
from leaderships import sole_replica
from record_batches import simple_batch
from staged_jobs import numbered, stage

from kafkalake.broker.admin.topic_plans import NewTopic
from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.coordination.journal import ProducerIdAndEpoch
from kafkalake.broker.coordination.waiting import wait_for_call
from kafkalake.broker.groups.offset_requests import CommitRequest, OffsetToCommit, PartitionErrors
from kafkalake.broker.partitions.pending_append import PendingAppend
from kafkalake.broker.partitions.topics import Topic, Topics
from kafkalake.broker.staged.appending import StagedFileAppender, Target
from kafkalake.broker.staged.request import StagedFile
from kafkalake.broker.staged.service import StagedAppends
from kafkalake.broker.transactions.cut import UNKNOWN
from kafkalake.broker.transactions.decisions import Marker, error_of
from kafkalake.broker.transactions.ending import EndRequest
from kafkalake.broker.transactions.requests import ProducerResult
from kafkalake.broker.transactions.transaction_peers import AdmissionRequest, BatchRequest, MarkerRequest
from kafkalake.client.address import Address
from kafkalake.client.peers import ConnectedPeers
from kafkalake.client.staged_append import ask_once
from kafkalake.cluster.image import BrokerRegistration, ClusterImage, Endpoint
from kafkalake.errors import (
    BrokerUnavailableError,
    CoordinatorNotAvailableError,
    InvalidProducerIdMappingError,
    KafkaError,
    OperationNotAttemptedError,
    ProducerFencedError,
    TopicAuthorizationError,
    TransactionAbortableError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from kafkalake.offset_range import OffsetRange
from kafkalake.process.node import Node
from kafkalake.server.transaction_peers import ConnectedTransactionPeers
from kafkalake.storage.staging import staging_path

pytestmark = pytest.mark.exhaustive

P0, P1, GONE = ("t", 0), ("t", 1), ("t", 9)
ID, WRITER = "app", "writer"


class Asking:
    """A running broker, with both journals and the topic `t`, and the connection to it."""

    def __init__(self, node: Node, peers: ConnectedTransactionPeers) -> None:
        assert node.broker is not None
        self.broker = node.broker
        self.peers = peers

    async def producer(self, transactional_id: str) -> ProducerIdAndEpoch:
        coordinator = self.broker.transactions.coordinator
        made: ProducerResult = await wait_for_call(
            lambda reply: coordinator.init_producer_id(transactional_id, 60_000, None, reply)
        )
        assert made.error is None
        return ProducerIdAndEpoch(made.producer_id, made.epoch)

    async def check_admission(self) -> None:
        producer = await self.producer(ID)
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
        results = await self.peers.write_markers(7, [MarkerRequest(each, marker, 0) for each in (P0, offsets, GONE)])
        assert results[0] == OffsetRange(0, 0)
        assert list(map(error_of, results)) == [None, None, UnknownTopicOrPartitionError]
        assert partition.log.last_stable_offset == 2
        found = self.broker.groups.offsets.fetch("group", [P0], require_stable=True)[P0]
        assert found is not None and not isinstance(found, type) and found.offset == 5
        late = await self.peers.write_markers(7, [MarkerRequest(P0, marker, each) for each in (-1, 0, 99)])
        assert late[1] == OffsetRange(UNKNOWN, 2), "a marker that has ended nothing, after the records"
        errors = [TransactionCoordinatorFencedError, None, CoordinatorNotAvailableError]
        assert list(map(error_of, late)) == errors, "no coordinator has epoch 99"

    async def check_staged_files(self, lake: Path) -> None:
        """The asking broker coordinates a write, and this one leads its partitions."""
        producer = await self.producer(WRITER)
        coordinator = self.broker.transactions.coordinator
        added: ErrorClass | None = await wait_for_call(
            lambda reply: coordinator.add_partitions(WRITER, producer, [P0, P1], reply)
        )
        assert added is None
        topic = self.broker.topics.topic("t")
        described = {"name": "t", "id": "", "partitions": 2, "message_bytes_max": 4_000, "key_required": False}
        staged = stage(lake, {"topics": [described], "bytes_max": 1 << 20}, "job", [[numbered(0, 500)]])
        (file,) = staged["files"]
        begins = [each.log.log_end_offset for each in topic.replicas.values()]
        asking = Elsewhere(self, topic)
        targets = {(0, index): Target(asking.topic, index) for index in (0, 1)}
        appender = StagedFileAppender(asking, WRITER, producer, targets, lambda: None)
        await appender.append_file(staging_path(lake) / staged["directory"], StagedFile(*file))
        assert file[2] > 10 and asking.requests > 5, "several batches of each partition, one after the other"
        ended: ProducerResult = await wait_for_call(
            lambda reply: coordinator.end(WRITER, EndRequest(producer, committed=True, version_2=False), reply)
        )
        assert ended.error is None
        await wait_for_call(lambda call: coordinator.when_between_steps(WRITER, call))
        ends = [each.log.last_stable_offset for each in topic.replicas.values()]
        assert sum(ends) - sum(begins) == 500 + 2
        late = StagedFileAppender(asking, WRITER, producer, targets, lambda: None)
        with pytest.raises(TransactionAbortableError):  # nothing of an ended transaction opens another one
            await late.append_file(staging_path(lake) / staged["directory"], StagedFile(*file))
        asking.topics.remove(asking.topic)
        with pytest.raises(UnknownTopicOrPartitionError, match="was deleted"):
            await late.append_file(staging_path(lake) / staged["directory"], StagedFile(*file))


class Elsewhere:
    """What appending needs of a broker that leads no partition of a topic. Its first two requests are lost, and an answer."""

    def __init__(self, asking: Asking, topic: Topic) -> None:
        broker = asking.broker
        self.topics = Topics(ClusterImage(""))
        self.topic = Topic(topic.name, topic.topic_id, {}, topic.config, 0)
        self.topics.add(self.topic)
        self.topics.apply(self.topics.image.with_topics({topic.topic_id: (sole_replica(7, 0), sole_replica(7, 0))}))
        self.append_queue = broker.append_queue
        self.clock = broker.clock
        self.run_blocking = broker.run_blocking
        self.transaction_peers: Any = self
        self.requests = 0
        self._peers = asking.peers

    async def append(
        self, broker_id: int, transactional_id: str, batches: Sequence[BatchRequest]
    ) -> Sequence[KafkaError | None]:
        self.requests += 1
        if self.requests in (1, 3):
            raise BrokerUnavailableError("lost")
        answers = await self._peers.append(broker_id, transactional_id, batches)
        if self.requests == 2:
            raise BrokerUnavailableError("the answer is lost")
        return answers


def test_a_write_goes_to_the_broker_that_keeps_the_applications_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here that is the same one: it is asked again, and finds that itself is meant."""

    async def scenario() -> None:
        port = free_port()
        node = Node(tmp_path / "lake", {"listeners": f"PLAINTEXT://127.0.0.1:{port}"})
        leaders = iter([7, 7])
        monkeypatch.setattr(StagedAppends, "coordinator_elsewhere", lambda self, application: next(leaders, None))
        try:
            await node.start()
            assert node.broker is not None
            seven = BrokerRegistration(7, 1, uuid4(), (Endpoint("PLAINTEXT", "127.0.0.1", port),), is_fenced=False)
            node.broker.topics.apply(node.broker.cluster.with_broker(seven))
            asked = {"ask": "append", "application": "job", "version": 3, "directory": "d"}
            body = {**asked, "topics": [], "partitions": [], "files": []}
            answer = await asyncio.to_thread(ask_once, [("127.0.0.1", port)], body, 10.0)
            assert (answer["error"], answer["records"]) == (0, 0)
            assert next(leaders, None) is None, "it was refused once, with an address"
        finally:
            await node.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


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
            await asking.check_staged_files(tmp_path / "lake")
            with pytest.raises(BrokerUnavailableError):
                await asking.peers.write_markers(9, [])
        finally:
            peers.stop()
            await node.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))
