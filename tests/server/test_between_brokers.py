"""What brokers ask of the controller, through a broker's own server: the values arrive as they were sent, and so do the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import pytest
from contract.wire_client import WireClient
from node_in_thread import NodeInThread

from kafkalake.broker.controller.membership import Membership
from kafkalake.broker.controller.protocol import Heartbeat, HeartbeatAnswer
from kafkalake.client.address import Address
from kafkalake.client.peers import ConnectedPeers
from kafkalake.client.requests import UPDATE_IMAGE
from kafkalake.cluster.controller_election import Vote
from kafkalake.cluster.image import BrokerRegistration, Endpoint
from kafkalake.cluster.partition_changes import IsrChange, IsrState, Replica
from kafkalake.config.layers import Settings
from kafkalake.errors import (
    ClusterAuthorizationError,
    DuplicateBrokerRegistrationError,
    InconsistentClusterIdError,
    InvalidRequestError,
    KafkaError,
    NotControllerError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    UnknownTopicIdError,
)
from kafkalake.server.authorizer import AllowEverything, Operation, Resource
from kafkalake.server.connected_brokers import ConnectedBrokers
from kafkalake.server.remote_controller import RemoteController
from kafkalake.wire.messages.membership import UpdateImageRequest

pytestmark = pytest.mark.process

TOPICS = UUID(int=8), UUID(int=9)
MEMBER = BrokerRegistration(
    7,
    -1,
    UUID(int=70),
    (Endpoint("INSIDE", "::1", 65_535, "SASL_SSL"), Endpoint("OUTSIDE", "example.org", 9092)),
    "rack-1",
    "a machine",
    "a boot",
)
CHANGES = (
    IsrChange((TOPICS[1], 3), 5, 6, (Replica(7, 70), Replica(8, -1)), is_recovering=True),
    IsrChange((TOPICS[0], 0), 1, 2, (Replica(7, 70),)),
    IsrChange((TOPICS[1], 1), 3, 4, ()),
)


class ScriptedController:
    """Notes its calls, and returns what it is given, or raises it."""

    is_active = True

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.answer: Any = None

    def _answer(self, *call: Any) -> Any:
        self.calls.append(call)
        if isinstance(self.answer, KafkaError):
            raise self.answer
        return self.answer

    async def register(self, broker: BrokerRegistration, *, previous_epoch: int, is_cut: bool) -> int:
        return int(self._answer(broker, previous_epoch, is_cut))

    async def heartbeat(self, heartbeat: Heartbeat) -> HeartbeatAnswer:
        answer: HeartbeatAnswer = self._answer(heartbeat)
        return answer

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        ids: range = self._answer(broker_id, broker_epoch)
        return ids

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> list[IsrState | KafkaError]:
        answer = self._answer(broker_id, broker_epoch, *changes)
        return [answer[change.partition] for change in changes]

    async def follow(self, version: int, timeout_ms: int) -> None:
        self._answer(version, timeout_ms)

    async def vote(self, controller_epoch: int) -> Vote | None:
        vote: Vote | None = self._answer(controller_epoch)
        return vote


class Served:
    """A broker with a scripted controller, and what another broker has of it."""

    def __init__(self, node: NodeInThread) -> None:
        self.node = node
        self.broker = node.node.broker
        assert self.broker is not None
        self.controller = self.broker.controller = ScriptedController()
        self.broker.membership = self.controller
        host, port = node.servers.rsplit(":", 1)
        self._address = Address(host, int(port))

    def call(self, work: Callable[[RemoteController, ConnectedPeers], Coroutine[Any, Any, Any]], **image: Any) -> Any:
        async def run() -> Any:
            assert self.broker is not None
            known = replace(self.broker.cluster, **image)
            peers = ConnectedPeers(lambda _: self._address, client_id="7", request_timeout_ms=lambda: 5_000)
            try:
                return await work(RemoteController(peers, lambda: known, timeout_ms=lambda: 5_000), peers)
            finally:
                peers.stop()

        return asyncio.run(asyncio.wait_for(run(), 20))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInThread]:
    with NodeInThread(tmp_path_factory.mktemp("between") / "lake") as node:
        yield node


@pytest.fixture
def served(node: NodeInThread) -> Iterator[Served]:
    controller, membership = node.broker.controller, node.broker.membership
    yield Served(node)
    node.broker.controller, node.broker.membership = controller, membership


def register(controller: RemoteController, _: ConnectedPeers) -> Coroutine[Any, Any, int]:
    return controller.register(MEMBER, previous_epoch=12, is_cut=True)


def beat(controller: RemoteController, _: ConnectedPeers) -> Coroutine[Any, Any, HeartbeatAnswer]:
    return controller.heartbeat(Heartbeat(7, 70, 5))


def allocate(controller: RemoteController, _: ConnectedPeers) -> Coroutine[Any, Any, range]:
    return controller.allocate_producer_ids(7, 70)


def alter(controller: RemoteController, _: ConnectedPeers) -> Coroutine[Any, Any, Any]:
    return controller.alter_partition(7, 70, CHANGES)


def test_a_broker_registers(served: Served) -> None:
    served.controller.answer = 42
    assert served.call(register) == 42
    assert served.controller.calls == [(MEMBER, 12, True)]
    with pytest.raises(InconsistentClusterIdError):
        served.call(register, cluster_id="another")
    assert len(served.controller.calls) == 1


@pytest.mark.parametrize(
    "listeners",
    [
        [],
        [{"name": "A", "host": "h", "port": 1, "security_protocol": 0}] * 2,
        [{"name": "A", "host": "h", "port": 1, "security_protocol": 4}],
        [{"name": "A", "host": "h", "port": 1, "security_protocol": -1}],
        [{"name": str(number), "host": "h", "port": 1, "security_protocol": 0} for number in range(101)],
    ],
    ids=["none", "twice", "unknown protocol", "negative protocol", "too many"],
)
def test_a_registration_that_is_none_is_refused(served: Served, listeners: list[dict[str, Any]]) -> None:
    assert served.broker is not None
    asked = {"broker_id": 7, "incarnation_id": UUID(int=1), "listeners": listeners}
    with WireClient(served.node.servers) as client:
        answer = client.call("BrokerRegistration", 4, cluster_id=served.broker.cluster.cluster_id, **asked)
    assert answer.error_code == InvalidRequestError.code
    assert served.controller.calls == []


def test_a_heartbeat_and_what_the_broker_may_do(served: Served) -> None:
    for answer in (HeartbeatAnswer(True, False, True), HeartbeatAnswer(False, True, False)):
        served.controller.answer = answer
        assert served.call(beat) == answer
    offline = frozenset({(TOPICS[0], 0), (TOPICS[0], 7), (TOPICS[1], 2)})
    cut = frozenset({(TOPICS[0], 7)})
    full = Heartbeat(7, 70, 9, wants_fence=True, wants_shutdown=True, offline=offline, cut=cut)
    served.call(lambda controller, _: controller.heartbeat(full))
    assert served.controller.calls == [(Heartbeat(7, 70, 5),)] * 2 + [(full,)]


def test_producer_ids_are_allocated(served: Served) -> None:
    served.controller.answer = range(5_000_000_000, 5_000_001_000)
    assert served.call(allocate) == served.controller.answer
    assert served.controller.calls == [(7, 70)]


def test_each_change_of_an_isr_has_its_outcome(served: Served) -> None:
    outcomes = {
        CHANGES[0].partition: IsrState(7, 5, 7, (7, 8), is_recovering=True),
        CHANGES[1].partition: UnknownTopicIdError(),
        CHANGES[2].partition: IsrState(8, 4, 9, (8,)),
    }
    served.controller.answer = outcomes
    found = served.call(alter)
    assert [found[0], found[2]] == [outcomes[CHANGES[0].partition], outcomes[CHANGES[2].partition]]
    assert isinstance(found[1], UnknownTopicIdError)
    broker_id, epoch, *changes = served.controller.calls[0]
    assert (broker_id, epoch, set(changes)) == (7, 70, set(CHANGES))


def test_an_isr_without_epochs(served: Served) -> None:
    served.controller.answer = {(TOPICS[0], 1): IsrState(7, 1, 2, ())}
    partition = {"partition_index": 1, "leader_epoch": 2, "new_isr": [7, 8], "partition_epoch": 3}
    with WireClient(served.node.servers) as client:
        topics = [{"topic_id": TOPICS[0], "partitions": [partition]}]
        client.call("AlterPartition", 2, broker_id=7, broker_epoch=70, topics=topics)
    assert served.controller.calls == [(7, 70, IsrChange((TOPICS[0], 1), 2, 3, (Replica(7, -1), Replica(8, -1))))]


@pytest.mark.parametrize("call", [register, beat, allocate, alter])
@pytest.mark.parametrize("error", [NotControllerError, StaleBrokerEpochError, DuplicateBrokerRegistrationError])
def test_errors_arrive_as_they_are(served: Served, call: Any, error: type[KafkaError]) -> None:
    for _ in range(2):
        served.controller.answer = error()
        with pytest.raises(error):
            served.call(call)


@pytest.mark.parametrize("call", [register, beat, allocate, alter])
def test_without_a_controller_nothing_is_asked(served: Served, call: Any) -> None:
    with pytest.raises(NotControllerError):
        served.call(call, controller_id=-1)
    assert served.controller.calls == []


def test_an_image_is_answered_when_it_is_applied(served: Served) -> None:
    assert served.broker is not None
    broker, version = served.broker, served.broker.cluster.version

    async def update(peers: ConnectedPeers, asked: int) -> tuple[int, int]:
        answer = await peers.ask(0, UPDATE_IMAGE, UpdateImageRequest(version=asked, timeout=20))
        return answer.error_code, answer.version

    assert served.call(lambda _, peers: update(peers, version)) == (0, version)
    assert served.call(lambda _, peers: update(peers, version + 1)) == (RequestTimedOutError.code, version)

    async def follow(asked: int, timeout_ms: int) -> None:
        assert (asked, timeout_ms) == (version + 1, 20)
        broker.topics.apply(replace(broker.cluster, version=version + 1))

    served.controller.follow = follow  # type: ignore[method-assign]
    assert served.call(lambda _, peers: update(peers, version + 1)) == (0, version + 1)


@pytest.mark.parametrize("vote", [Vote.REACHES, Vote.MISSES, None])
def test_a_broker_votes_on_the_controller_of_an_epoch(served: Served, vote: Vote | None) -> None:
    async def ask(controller: RemoteController, peers: ConnectedPeers) -> Vote | None:
        async def look_at_lock(_: int) -> tuple[bool, str]:
            return True, ""

        brokers = ConnectedBrokers(
            cast(Membership, served.controller), peers, lambda: Settings({}).broker, look_at_lock
        )
        return await brokers.ask_vote(0, 3, 5_000)

    served.controller.answer = vote
    assert served.call(ask) is vote
    assert served.controller.calls == [(3,)]
    served.controller.answer = InvalidRequestError()
    assert served.call(ask) is None


def test_all_of_it_is_a_matter_of_the_cluster(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    denied: list[Any] = []

    def allows(_: object, *asked: Any) -> bool:
        denied.append(asked[1:])
        return False

    monkeypatch.setattr(AllowEverything, "allows", allows)
    for call in (register, beat, allocate, alter):
        with pytest.raises(ClusterAuthorizationError):
            served.call(call)
    update = served.call(lambda _, peers: peers.ask(0, UPDATE_IMAGE, UpdateImageRequest(version=0, timeout=0)))
    assert update.error_code == ClusterAuthorizationError.code
    assert denied == [(Operation.CLUSTER_ACTION, Resource.CLUSTER, "kafka-cluster")] * 5
    assert served.controller.calls == []


def test_clients_are_not_shown_what_is_between_brokers(served: Served) -> None:
    def keys(version: int, **about: str) -> set[int]:
        with WireClient(served.node.servers) as client:
            return {each.api_key for each in client.call("ApiVersions", version, **about).api_keys}

    between = {56, 58, 62, 63, 67, 70, *range(10_002, 10_011)}
    software = {"client_software_name": "kafkalake", "client_software_version": "1"}
    assert keys(3, **software) - keys(0) == between
    assert keys(3, **{**software, "client_software_name": "apache-kafka-java"}) & between == set()
