"""A simulated network for clients' machines: brokers are functions from a request to a response, time moves when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from wire.message_codec import read_header

from kafkalake.client.address import Address
from kafkalake.client.network.machine import Connect, Disconnect, Machine, Write
from kafkalake.client.requests import API_VERSIONS, METADATA, ClientApi
from kafkalake.errors import BrokerRefusedError, ConnectionLostError
from kafkalake.wire.column_feature import FEATURE
from kafkalake.wire.messages.cluster import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    MetadataResponse,
    NodeEndpoint,
    PartitionMetadata,
    SupportedFeatureKey,
    TopicMetadata,
)
from kafkalake.wire.messages.codec import decode_request, encode_response
from kafkalake.wire.messages.message import Message

Handler = Callable[[Any], Message | None]
"""Returns the response to a request; None for none, ever."""


def feed(machine: Machine, node_id: int, data: bytes, now_ms: int) -> None:
    """Let a machine receive bytes."""
    while data:
        buffer = machine.buffer(node_id)
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        machine.received(node_id, count, now_ms)
        data = data[count:]


@dataclass
class SimulatedBroker:
    """A broker. `handlers` by API; `requests`: those that came, in order. Without `is_up` nothing listens."""

    node_id: int
    handlers: dict[ClientApi[Any, Any], Handler] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    takes_columns: bool = False
    is_up: bool = True
    requests: list[Message] = field(default_factory=list)

    def answer(self, frame: bytes) -> bytes:
        """Return the response frame of a request frame with its size, b"" for none."""
        header = read_header(frame[4:])
        if header.api_key == API_VERSIONS.key:
            return self._encode(header, self._versions())
        api, handler = next(each for each in self.handlers.items() if each[0].key == header.api_key)
        request = decode_request(api.request, api.key, header.version, frame[4:])[1]
        self.requests.append(request)
        response = handler(request)
        return b"" if response is None else self._encode(header, response)

    def _encode(self, header: Any, response: Message) -> bytes:
        return bytes(encode_response(header.api_key, header.version, header.correlation_id, response))

    def _versions(self) -> ApiVersionsResponse:
        keys = [ApiVersion(api_key=api.key, min_version=api.lowest, max_version=api.highest) for api in self.handlers]
        features = [FinalizedFeatureKey(name=name, max_version_level=level) for name, level in self.features.items()]
        return ApiVersionsResponse(
            api_keys=[*keys, ApiVersion(api_key=18, min_version=0, max_version=3)],
            finalized_features_epoch=0,
            finalized_features=features,
            supported_features=[SupportedFeatureKey(name=FEATURE, min_version=1, max_version=1)] * self.takes_columns,
        )


class SimulatedNetwork:
    """Drives a machine. Brokers listen at `b<node id>:9092`."""

    def __init__(self, machine: Machine, brokers: list[SimulatedBroker], start_ms: int = 1_000) -> None:
        self.machine = machine
        self.brokers = {f"b{broker.node_id}": broker for broker in brokers}
        self.now_ms = start_ms
        self.is_answering = True
        self.refused: set[int] = set()
        """Connections that brokers do not take."""
        self._links: dict[int, SimulatedBroker] = {}
        self._stalled: dict[int, list[bytes]] = {}
        self._held: list[tuple[int, bytes]] = []

    def run(self, milliseconds: int = 0) -> None:
        """Let time pass, from one deadline of the machine to the next, and everything happen until then."""
        end_ms = self.now_ms + milliseconds
        while True:
            self.settle()
            deadline_ms = self.machine.next_deadline_ms(self.now_ms)
            if deadline_ms is None or deadline_ms > end_ms:
                self.now_ms = end_ms
                self.settle()
                return
            self.now_ms = max(deadline_ms, self.now_ms + 1)

    def settle(self) -> None:
        """Carry out actions until there are none."""
        for _ in range(1_000):
            actions = self.machine.poll(self.now_ms)
            if not actions:
                return
            for action in actions:
                self._act(action)
        raise AssertionError("the machine does not come to rest")

    def hold_answers(self) -> None:
        """Keep answers back until `deliver`."""
        self.is_answering = False

    def deliver(self) -> None:
        """Deliver the answers that were held, and all later ones at once."""
        self.is_answering = True
        held, self._held = self._held, []
        for node_id, data in held:
            if node_id in self._links:
                feed(self.machine, node_id, data, self.now_ms)
        self.settle()

    def stall(self, node_id: int) -> None:
        """Keep the requests on a connection from the broker until `go_on`."""
        self._stalled.setdefault(node_id, [])

    def go_on(self, node_id: int) -> None:
        """Let the broker have the requests that were kept, and all later ones at once."""
        for frame in self._stalled.pop(node_id, ()):
            if node_id in self._links:
                self._ask(node_id, frame)
        self.settle()

    def connections_to(self, broker: SimulatedBroker) -> list[int]:
        """The ids of the connections to a broker that are open."""
        return [each for each, linked in self._links.items() if linked is broker]

    def cut(self, broker: SimulatedBroker) -> None:
        """End all connections to a broker. Answers that were held are lost."""
        for node_id in self.connections_to(broker):
            self.cut_connection(node_id)

    def cut_connection(self, node_id: int) -> None:
        """End a connection, if it is open. Answers that were held are lost, and requests that were kept."""
        if self._links.pop(node_id, None) is None:
            return
        self._held = [held for held in self._held if held[0] != node_id]
        self._stalled.pop(node_id, None)
        self.machine.disconnected(node_id, ConnectionLostError("cut"), self.now_ms)

    def _act(self, action: Connect | Write | Disconnect) -> None:
        if isinstance(action, Connect):
            self._connect(action.node_id, action.address)
        elif isinstance(action, Disconnect):
            self._links.pop(action.node_id, None)
        elif action.node_id in self._links:
            frame = b"".join(action.parts)
            if action.node_id in self._stalled:
                self._stalled[action.node_id].append(frame)
            else:
                self._ask(action.node_id, frame)

    def _ask(self, node_id: int, frame: bytes) -> None:
        answer = self._links[node_id].answer(frame)
        if answer and not self.is_answering:
            self._held.append((node_id, answer))
        elif answer:
            middle = len(answer) // 2  # bytes are cut anywhere
            feed(self.machine, node_id, answer[:middle], self.now_ms)
            feed(self.machine, node_id, answer[middle:], self.now_ms)

    def _connect(self, node_id: int, address: Address) -> None:
        broker = self.brokers.get(address.host)
        if broker is None or not broker.is_up or node_id in self.refused:
            self.machine.disconnected(node_id, BrokerRefusedError(f"nothing listens at {address}"), self.now_ms)
            return
        self._links[node_id] = broker
        self.machine.connected(node_id, self.now_ms)


@dataclass
class SimulatedTopics:
    """The metadata of a cluster: leaders and epochs by topic. Its handler answers Metadata."""

    brokers: list[SimulatedBroker]
    leaders: dict[str, list[int]]
    epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    ids: dict[str, UUID] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for broker in self.brokers:
            broker.handlers[METADATA] = self.answer

    def move(self, topic: str, partition: int, leader: int) -> None:
        """Let another broker lead."""
        self.leaders[topic][partition] = leader
        self.epochs[topic, partition] = self.epochs.get((topic, partition), 0) + 1

    def answer(self, request: Any) -> MetadataResponse:
        wanted = self.leaders if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            brokers=[NodeEndpoint(node_id=each.node_id, host=f"b{each.node_id}", port=9092) for each in self.brokers],
            topics=[self._topic(name) for name in wanted],
            controller_id=self.brokers[0].node_id,
            cluster_id="simulated",
        )

    def _topic(self, name: str) -> TopicMetadata:
        if name not in self.leaders:
            return TopicMetadata(error_code=3, name=name)
        partitions = [
            PartitionMetadata(
                partition_index=index,
                leader_id=leader,
                leader_epoch=self.epochs.get((name, index), 0),
                replica_nodes=[leader],
                isr_nodes=[leader],
                error_code=5 if leader < 0 else 0,
            )
            for index, leader in enumerate(self.leaders[name])
        ]
        return TopicMetadata(name=name, topic_id=self.ids.get(name), partitions=partitions)
