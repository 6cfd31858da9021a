"""Requests of the controller sent to another broker: two brokers in this process, or one and a scripted controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from contract.wire_client import WireClient, create_topic
from kafka_reference import free_port
from node_in_thread import NodeInThread
from waiting import wait_until
from wire.message_codec import as_message, message_class, read_header

from kafkalake.broker.admin.topic_plans import NewTopic
from kafkalake.broker.broker import Broker
from kafkalake.client.address import Address
from kafkalake.client.peers import Channel, ConnectedPeers
from kafkalake.config.broker import BrokerConfig
from kafkalake.errors import (
    BrokerIdNotRegisteredError,
    BrokerRefusedError,
    BrokerUnavailableError,
    ClusterAuthorizationError,
    ConnectionLostError,
    InvalidRequestError,
    KafkaError,
    LeaderNotAvailableError,
    NotControllerError,
    RequestTimedOutError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from kafkalake.made_array import MadeArray
from kafkalake.server import forwarding
from kafkalake.server.authorizer import AllowEverything, Operation, Principal, Resource
from kafkalake.server.forwarding import is_no_controllers
from kafkalake.server.registry import APIS
from kafkalake.wire.messages.codec import encode_request, encode_response
from kafkalake.wire.messages.controller import ElectLeadersResponse, UnregisterBrokerResponse
from kafkalake.wire.messages.membership import EnvelopeRequest, EnvelopeResponse
from kafkalake.wire.messages.topics import CreatableTopicResult, CreateTopicsResponse

pytestmark = pytest.mark.process

Values = dict[str, Any]


def new_topic(name: str) -> Values:
    return {"name": name, "num_partitions": 2, "replication_factor": 1}


REQUESTS: dict[str, Values] = {
    "CreateTopics": {"topics": [new_topic("made"), new_topic("bad/name")], "timeout": 10_000},
    "DeleteTopics": {"topics": [{"name": "gone"}], "topic_names": ["gone"], "timeout": 10_000},
    "CreatePartitions": {"topics": [{"name": "kept", "count": 1, "assignments": None}], "timeout": 10_000},
    "AlterConfigs": {"resources": [{"resource_type": 2, "resource_name": "kept"}, {"resource_type": 4}]},
    "IncrementalAlterConfigs": {"resources": [{"resource_type": 2, "resource_name": "nowhere"}]},
    "ElectLeaders": {"topic_partitions": [{"topic": "kept", "partitions": (0, 9)}], "timeout": 10_000},
    "AlterPartitionReassignments": {
        "topics": [{"name": "kept", "partitions": [{"partition_index": 0, "replicas": (0,)}]}],
        "timeout": 10_000,
    },
    "ListPartitionReassignments": {"topics": None, "timeout": 10_000},
    "DescribeQuorum": {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 1}]}]},
    "UpdateFeatures": {"feature_updates": [{"feature": "nothing", "max_version_level": 1}], "timeout": 10_000},
    "UnregisterBroker": {"broker_id": 99},
    "AlterClientQuotas": {
        "entries": [
            {
                "entity": [{"entity_type": "client-id", "entity_name": "c"}],
                "ops": [{"key": "producer_byte_rate", "value": -1.0}],
            }
        ]
    },
    "AlterUserScramCredentials": {"deletions": [{"name": "nobody", "mechanism": 1}]},
    "AddRaftVoter": {"cluster_id": "another", "voter_id": 99},
    "RemoveRaftVoter": {"cluster_id": "another", "voter_id": 99},
}


def asked(api: str, version: int) -> Values:
    """The fields of a request that a version has."""
    values = dict(REQUESTS[api])
    if api == "DeleteTopics":
        del values["topic_names" if version >= 6 else "topics"]
    return values


def versions(api: str) -> Iterator[tuple[str, int]]:
    row = next(each for each in APIS.values() if each.name == api)
    yield from dict.fromkeys([(api, row.lowest), (api, row.highest)])


class Member:
    """A broker that is not the controller. `ask` is how it asks others."""

    def __init__(self, node: NodeInThread) -> None:
        assert node.node.broker is not None
        assert node.node.acceptor is not None
        self.node = node
        self.broker = node.node.broker
        self.context = node.node.acceptor._context
        self.broker.controller = SimpleNamespace(is_active=False)  # type: ignore[assignment]

    def connect(self, peers: Any) -> None:
        self.context.peers = peers

    def client(self) -> WireClient:
        return WireClient(self.node.servers)


class ScriptedController:
    """Peers of which the asked one does what the next step says: raise an error, or answer."""

    def __init__(self, *steps: Exception | EnvelopeResponse | Callable[[EnvelopeRequest], EnvelopeResponse]) -> None:
        self.steps = list(steps)
        self.asked: list[EnvelopeRequest] = []

    async def ask(
        self, broker_id: int, api: Any, message: Any, *, timeout_ms: int | None = None, channel: Any = None
    ) -> Any:
        assert channel is Channel.FORWARDED
        assert timeout_ms is not None
        self.asked.append(message)
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if isinstance(step, Exception):
            raise type(step)(*step.args)
        return step if isinstance(step, EnvelopeResponse) else step(message)


def answering(response: Any) -> Callable[[EnvelopeRequest], EnvelopeResponse]:
    def answer(envelope: EnvelopeRequest) -> EnvelopeResponse:
        header = read_header(envelope.request_data)
        frame = encode_response(header.api_key, header.version, header.correlation_id, response)
        return EnvelopeResponse(response_data=bytes(frame[4:]))

    return answer


def created(*codes: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=f"t{number}", error_code=code) for number, code in enumerate(codes)]
    )


@pytest.fixture(scope="module")
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInThread]:
    with NodeInThread(tmp_path_factory.mktemp("controller") / "lake") as node:
        with WireClient(node.servers) as client:
            for name in ("kept", "gone"):
                create_topic(client, name, 2)
        yield node


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeInThread]:
    with NodeInThread(tmp_path_factory.mktemp("member") / "lake") as node:
        yield node


@pytest.fixture
def member(other: NodeInThread) -> Member:
    return Member(other)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let brokers of this process wait 60 ms for the controller."""

    def config(broker: Broker) -> BrokerConfig:
        return replace(broker.settings.current.broker, request_timeout_ms=60)

    monkeypatch.setattr(Broker, "config", property(config))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once."""
    monkeypatch.setattr(forwarding, "FIRST_PAUSE_S", 0.002)


@pytest.fixture
def connected(member: Member, controller: NodeInThread) -> Iterator[Member]:
    host, port = controller.servers.rsplit(":", 1)
    peers = ConnectedPeers(lambda _: Address(host, int(port)), client_id="b", request_timeout_ms=lambda: 5_000)
    member.connect(peers)
    yield member
    member.node.on_loop(peers.stop)


OF_COORDINATORS = {
    *("OffsetCommit", "OffsetFetch", "OffsetDelete", "LowestOffsets"),
    *("Heartbeat", "LeaveGroup", "DescribeGroups", "DeleteGroups", "ConsumerGroupHeartbeat", "ConsumerGroupDescribe"),
    *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn"),
    *("DescribeTransactions", "KnownTransactions"),
}


def test_all_apis_of_the_controller_are_here() -> None:
    assert {api.name for api in APIS.values() if api.is_controllers} == set(REQUESTS)


def test_others_go_to_their_handlers_and_nowhere_else() -> None:
    """So that forwarding, and the doubt of a coordinator whether it is deposed, cost Produce and Fetch nothing."""
    for api in APIS.values():
        is_forwarded = api.is_controllers and "AlterConfigs" not in api.name
        assert hasattr(api.handle, "__wrapped__") == (is_forwarded or api.name in OF_COORDINATORS), api.name


@pytest.mark.parametrize(("api", "version"), [each for api in REQUESTS for each in versions(api)])
def test_the_controller_s_response_is_the_client_s(
    connected: Member, controller: NodeInThread, api: str, version: int
) -> None:
    with connected.client() as client, WireClient(controller.servers) as direct:
        for _ in range(2):
            found = client.call(api, version, **asked(api, version))
        expected = direct.call(api, version, **asked(api, version))
        if api == "DescribeQuorum":
            assert found.topics == expected.topics
            assert [each.node_id for each in found.nodes] == [each.node_id for each in expected.nodes]
        else:
            assert found == expected
    assert not [topic.name for topic in connected.broker.topics]


def test_a_large_request_is_forwarded(connected: Member) -> None:
    topics = [new_topic(f"{'n' * 200}/{number}") for number in range(1_000)]
    with connected.client() as client:
        answer = client.call("CreateTopics", 7, topics=topics, timeout=1, validate_only=True)
        assert [each.name for each in answer.topics] == [each["name"] for each in topics]
        assert {each.error_code for each in answer.topics} == {17}


def test_settings_of_this_broker_and_of_the_cluster_in_one_request(connected: Member, controller: NodeInThread) -> None:
    setting = {"name": "retention.ms", "value": "77000", "config_operation": 0}
    wrong = {"name": "retention.ms", "value": "x", "config_operation": 0}
    own = {"name": "kafkalake.server.connection", "value": "INFO", "config_operation": 0}
    with connected.client() as client:
        for _ in range(2):
            answer = client.call(
                "IncrementalAlterConfigs",
                1,
                resources=[
                    {"resource_type": 8, "resource_name": "0", "configs": [own]},
                    {"resource_type": 2, "resource_name": "kept", "configs": [setting]},
                    {"resource_type": 32, "resource_name": "g", "configs": []},
                    {"resource_type": 2, "resource_name": "nowhere", "configs": [wrong]},
                ],
                validate_only=False,
            )
            found = [(each.resource_type, each.resource_name, each.error_code) for each in answer.responses]
            assert found == [
                (8, "0", 0),
                (2, "kept", 0),
                (32, "g", 0),
                (2, "nowhere", UnknownTopicOrPartitionError.code),
            ]
    broker = controller.node.broker
    assert broker is not None
    topic = broker.topics.find("kept")
    assert topic is not None
    assert topic.config.retention_ms == 77_000


@pytest.mark.parametrize(("api", "version"), [each for api in REQUESTS for each in versions(api)])
@pytest.mark.usefixtures("impatient")
def test_without_a_controller_the_request_times_out(member: Member, api: str, version: int) -> None:
    peers = ScriptedController(BrokerRefusedError("refused"))
    member.connect(peers)
    with member.client() as client:
        answer = client.call(api, version, **asked(api, version))
    assert len(peers.asked) >= 2
    refused = set(forwarding._codes_of_elements(answer)) | {getattr(answer, "error_code", 0)} - {0}
    has_no_error = api == "UpdateFeatures" and version == 0  # before version 2 its errors were those of features
    assert has_no_error or RequestTimedOutError.code in refused
    assert refused <= {RequestTimedOutError.code}


def test_every_failure_is_followed_by_another_attempt(member: Member) -> None:
    refusals = [NotControllerError.code, NotControllerError.code]
    peers = ScriptedController(
        BrokerUnavailableError("no address"),
        ConnectionLostError("lost"),
        EnvelopeResponse(error_code=NotControllerError.code),
        answering(created(*refusals)),
        answering(created(0, NotControllerError.code)),
    )
    member.connect(peers)
    with member.client() as client:
        for _ in range(2):
            answer = client.call("CreateTopics", 7, topics=[new_topic("t0"), new_topic("t1")], timeout=1)
            assert [each.error_code for each in answer.topics] == [0, NotControllerError.code]
    assert len(peers.asked) == 5 + 1


def test_the_next_controller_is_asked_as_soon_as_it_is_known(member: Member, controller: NodeInThread) -> None:
    """The one that is known has ended: its port refuses."""
    host, port = controller.servers.rsplit(":", 1)
    addresses = {member.broker.cluster.controller_id: Address("127.0.0.1", free_port()), 6: Address(host, int(port))}
    looked_up: list[int] = []

    def address(broker_id: int) -> Address | None:
        looked_up.append(broker_id)
        return addresses.get(broker_id)

    peers = ConnectedPeers(address, client_id="b", request_timeout_ms=lambda: 5_000)
    member.connect(peers)
    with member.client() as client:
        sent = client.send("UnregisterBroker", 0, broker_id=99)
        wait_until(lambda: len(looked_up) >= 3)
        elected = member.broker.membership.controller.change(
            lambda image: replace(image, version=image.version + 1, controller_id=6), []
        )
        asyncio.run_coroutine_threadsafe(elected, member.node.loop).result(20)
        answer = client.receive("UnregisterBroker", 0, sent)
    assert answer.error_code == BrokerIdNotRegisteredError.code
    member.node.on_loop(peers.stop)


def test_a_controller_that_finds_another_in_its_place_forwards_the_request(member: Member) -> None:
    """It was stopped for longer than its session: the first commit that it tries tells it."""

    class Deposed:
        is_active = True

        async def unregister(self, broker_id: int) -> None:
            self.is_active = False
            raise NotControllerError()

    for _ in range(2):
        member.broker.controller = Deposed()  # type: ignore[assignment]
        peers = ScriptedController(
            EnvelopeResponse(error_code=NotControllerError.code), answering(UnregisterBrokerResponse())
        )
        member.connect(peers)
        with member.client() as client:
            assert client.call("UnregisterBroker", 0, broker_id=99).error_code == 0
        assert len(peers.asked) == 2


def test_an_unexpected_refusal_closes_the_connection_and_the_next_request_is_served(member: Member) -> None:
    for code in (InvalidRequestError.code, KafkaError.code):
        member.connect(ScriptedController(EnvelopeResponse(error_code=code)))
        with member.client() as client:
            client.send("UnregisterBroker", 0, broker_id=1)
            assert client.is_closed()
    member.connect(ScriptedController(answering(UnregisterBrokerResponse())))
    with member.client() as client:
        assert client.call("UnregisterBroker", 0, broker_id=1).error_code == 0


def test_nothing_is_forwarded_for_a_client_that_has_gone(member: Member) -> None:
    peers = ScriptedController(BrokerUnavailableError("nobody"))
    member.connect(peers)
    with member.client() as client:
        client.send("UnregisterBroker", 0, broker_id=1)
        wait_until(lambda: bool(peers.asked))
    wait_until(lambda: not member.context.tasks)


def test_what_counts_as_not_the_controller_s() -> None:
    code = NotControllerError.code
    assert is_no_controllers(UnregisterBrokerResponse(error_code=code))
    assert is_no_controllers(created(code, code))
    assert not is_no_controllers(created(code, 0))
    assert not is_no_controllers(created())
    assert not is_no_controllers(ElectLeadersResponse())
    made = MadeArray(lambda _: CreatableTopicResult(name="t", error_code=code), range(2))
    assert is_no_controllers(CreateTopicsResponse(topics=made))


# The controller's side.


def envelope(api: str, version: int, values: Values, **changes: Any) -> Values:
    key = next(each.key for each in APIS.values() if each.name == api)
    message = as_message(message_class(api, "Request"), values)
    frame = encode_request(key, version, 5, "a client", message)
    return {
        "request_data": frame[4:],
        "request_principal": b"User:alice",
        "client_host_address": bytes((10, 0, 0, 7)),
        **changes,
    }


UNREGISTER = envelope("UnregisterBroker", 0, {"broker_id": 99})


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({**UNREGISTER, "request_principal": None}, InvalidRequestError),
        ({**UNREGISTER, "request_principal": b"alice"}, InvalidRequestError),
        ({**UNREGISTER, "request_principal": b"\xff:\xff"}, InvalidRequestError),
        ({**UNREGISTER, "client_host_address": b"abc"}, InvalidRequestError),
        ({**UNREGISTER, "request_data": b""}, InvalidRequestError),
        ({**UNREGISTER, "request_data": UNREGISTER["request_data"][:-3]}, InvalidRequestError),
        ({**UNREGISTER, "request_data": b"\0\x40\0\7" + UNREGISTER["request_data"][4:]}, InvalidRequestError),
        (envelope("Metadata", 12, {"topics": None}), InvalidRequestError),
        (envelope("Envelope", 0, UNREGISTER), InvalidRequestError),
    ],
)
def test_an_envelope_that_is_none_is_refused(controller: NodeInThread, values: Values, error: type[KafkaError]) -> None:
    with WireClient(controller.servers) as client:
        for _ in range(2):
            assert client.call("Envelope", 0, **values).error_code == error.code
        answer = client.call("Envelope", 0, **UNREGISTER)
        assert (answer.error_code, bytes(answer.response_data[:4])) == (0, (5).to_bytes(4, "big"))


def test_only_the_controller_opens_an_envelope(member: Member) -> None:
    peers = ScriptedController(BrokerUnavailableError("nobody"))
    member.connect(peers)
    with member.client() as client:
        assert client.call("Envelope", 0, **UNREGISTER).error_code == NotControllerError.code
    assert peers.asked == []


def test_who_forwards_and_for_whom(
    connected: Member, controller: NodeInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed: dict[str, Callable[..., bool]] = {"now": lambda *_: True}
    seen: list[tuple[str, Operation]] = []

    def allows(_: object, principal: Principal, operation: Operation, resource: Resource, name: str) -> bool:
        seen.append((str(principal), operation))
        return allowed["now"](principal, operation)

    monkeypatch.setattr(AllowEverything, "allows", allows)
    create = envelope("CreateTopics", 7, {"topics": [new_topic("hers")], "timeout": 1, "validate_only": True})
    with WireClient(controller.servers) as client:
        allowed["now"] = lambda principal, operation: operation is Operation.CLUSTER_ACTION
        frame = client.call("Envelope", 0, **create).response_data
        assert TopicAuthorizationError.code.to_bytes(2, "big") in bytes(frame)
        assert seen == [
            ("User:ANONYMOUS", Operation.CLUSTER_ACTION),
            ("User:alice", Operation.CREATE),
            ("User:alice", Operation.CREATE),
        ]
        allowed["now"] = lambda principal, operation: operation is not Operation.CLUSTER_ACTION
        assert client.call("Envelope", 0, **create).error_code == ClusterAuthorizationError.code
    seen.clear()
    allowed["now"] = lambda *_: True
    with connected.client() as client:
        client.call("UnregisterBroker", 0, broker_id=99)
    assert seen == [("User:ANONYMOUS", Operation.CLUSTER_ACTION), ("User:ANONYMOUS", Operation.ALTER)]


# Automatic creation.


def test_a_topic_is_created_by_the_controller_when_a_client_asks_for_it(
    connected: Member, controller: NodeInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, follows = connected, list[int]()

    async def late(version: int, timeout_ms: int) -> None:
        follows.append(version - member.broker.cluster.version)

    async def in_time(version: int, timeout_ms: int) -> None:
        await member.broker.topic_admin.create(NewTopic("asked-for"), timeout_ms=10_000)

    def metadata(follow: Callable[[int, int], Awaitable[None]]) -> tuple[int, Sequence[Any]]:
        monkeypatch.setattr(member.broker, "membership", SimpleNamespace(follow=follow))
        with member.client() as client:
            topic = client.call("Metadata", 12, topics=[{"name": "asked-for"}], allow_auto_topic_creation=True).topics[
                0
            ]
        return topic.error_code, topic.partitions

    for _ in range(2):  # the second time it is there already
        assert metadata(late) == (LeaderNotAvailableError.code, [])
    assert follows == [1, 1]
    broker = controller.node.broker
    assert broker is not None
    assert broker.topics.find("asked-for") is not None
    code, partitions = metadata(in_time)
    assert (code, len(partitions)) == (0, 1)


def test_a_topic_that_the_controller_refuses_is_not_created(member: Member, request: pytest.FixtureRequest) -> None:
    refused = CreateTopicsResponse(topics=[CreatableTopicResult(name="x", error_code=44)])
    member.connect(ScriptedController(answering(refused)))
    with member.client() as client:
        for _ in range(2):
            answer = client.call("Metadata", 12, topics=[{"name": "x"}], allow_auto_topic_creation=True)
            assert answer.topics[0].error_code == 44
    member.connect(ScriptedController(BrokerUnavailableError("nobody")))
    request.getfixturevalue("impatient")
    with member.client() as client:
        answer = client.call("Metadata", 12, topics=[{"name": "x"}], allow_auto_topic_creation=True)
        assert answer.topics[0].error_code == RequestTimedOutError.code
