"""A producer on a simulated network, with brokers that check sequence numbers as Kafka's do and keep what is written."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from manual_clock import ManualClock
from simulated_network import SimulatedBroker, SimulatedNetwork, SimulatedTopics

from kafkalake.client.producing.batch import OnDelivery, RecordFuture
from kafkalake.client.producing.core import ProducerCore, ProducerParts
from kafkalake.client.requests import INIT_PRODUCER_ID, PRODUCE
from kafkalake.record import layout as at
from kafkalake.wire.batch_header import MAGIC, MAGIC_COLUMNS
from kafkalake.wire.messages.records import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafkalake.wire.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from kafkalake.wire.record_batch import decode_fetched, decode_produced

NOT_LEADER, OUT_OF_ORDER, UNKNOWN_PRODUCER, INVALID_EPOCH = 6, 45, 59, 47
REMEMBERED_BATCHES = 5

Fault = Callable[[str, int], int]
"""Returns the error code for a batch of a partition, 0 for none. The batch is not written then."""


@dataclass
class ModelLog:
    """One partition: its values in order, and per producer id the epoch and the newest batches (first sequence, count, offset).

    columns: of each batch that came, whether it was one of columns.
    """

    values: list[bytes] = field(default_factory=list)
    start_offset: int = 0
    columns: list[bool] = field(default_factory=list)
    producers: dict[int, tuple[int, deque[tuple[int, int, int]]]] = field(default_factory=dict)

    def append(self, data: bytes) -> tuple[int, int]:
        """Return (error code, base offset)."""
        self.columns.append(data[MAGIC] == MAGIC_COLUMNS)
        batch = decode_produced(data) if self.columns[-1] else next(decode_fetched(data))
        header = batch.header.tolist()
        values = batch.to_arrow().column("value").to_pylist()
        producer_id, epoch, sequence = header[at.PRODUCER_ID], header[at.PRODUCER_EPOCH], header[at.BASE_SEQUENCE]
        if producer_id >= 0:
            known_epoch, batches = self.producers.get(producer_id, (epoch, deque(maxlen=REMEMBERED_BATCHES)))
            if epoch < known_epoch:
                return INVALID_EPOCH, -1
            if epoch > known_epoch:
                batches = deque(maxlen=REMEMBERED_BATCHES)
            for first, count, offset in batches:
                if (first, count) == (sequence, len(values)):
                    return 0, offset
            expected = (
                batches[-1][0] + batches[-1][1] if batches else (0 if producer_id in self.producers else sequence)
            )
            if sequence != expected:
                return OUT_OF_ORDER, -1
            batches.append((sequence, len(values), len(self.values)))
            self.producers[producer_id] = epoch, batches
        self.values += values
        return 0, len(self.values) - len(values)


class SimulatedProducer:
    """A producer with brokers 0 and 1. Topic `t` has a partition on each."""

    def __init__(self, *, seed: int = 1, parts: dict[str, Any] | None = None, **settings: object) -> None:
        self.brokers = [SimulatedBroker(0), SimulatedBroker(1)]
        self.topics = SimulatedTopics(self.brokers, {"t": [0, 1]})
        self.logs = {("t", 0): ModelLog(), ("t", 1): ModelLog()}
        self.fault: Fault = lambda topic, partition: 0
        self.names_leaders = False
        self.requests: list[tuple[int, ProduceRequest]] = []
        self.next_producer_id = 100
        self.wake_ups = 0
        for broker in self.brokers:
            broker.handlers[PRODUCE] = lambda request, node_id=broker.node_id: self.produce(node_id, request)
            broker.handlers[INIT_PRODUCER_ID] = self.init_producer_id
        given = {"bootstrap.servers": "b0:9092", **settings}
        self.clock = ManualClock(1_000)
        self.core = ProducerCore(
            given,
            ProducerParts(clock=self.clock, random=Random(seed), **(parts or {})),
            woken=self._count_wake_up,
            check_wait=lambda: None,
        )
        self.network = SimulatedNetwork(self.core.sender, self.brokers, self.clock.monotonic_ms())

    def start(self) -> SimulatedProducer:
        """Let the producer learn of the topic."""
        self.core.sender.call(lambda: self.core.want_topic("t"))
        self.run(500)
        return self

    def run(self, milliseconds: int = 0) -> None:
        """Let time pass."""
        self.network.run(milliseconds)
        self.clock.advance(self.network.now_ms - self.clock.monotonic_ms())

    def send(
        self, value: bytes | None, partition: int | None = 0, key: bytes | None = None, done: OnDelivery | None = None
    ) -> RecordFuture:
        """Add a record."""
        queues = self.core.accumulator.topic("t")
        assert queues is not None
        future = self.core.try_append(queues, value, key, partition, (), None, done)
        assert isinstance(future, RecordFuture)
        return future

    def _count_wake_up(self) -> None:
        self.wake_ups += 1

    def produce(self, node_id: int, request: ProduceRequest) -> ProduceResponse | None:
        self.requests.append((node_id, request))
        responses = [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[self._write(node_id, topic.name, each) for each in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        return None if request.acks == 0 else ProduceResponse(responses=responses)

    def init_producer_id(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        self.next_producer_id += 1
        return InitProducerIdResponse(producer_id=self.next_producer_id, producer_epoch=0)

    def _write(self, node_id: int, topic: str, data: Any) -> PartitionProduceResponse:
        leader = self.topics.leaders[topic][data.index]
        code = NOT_LEADER if leader != node_id else self.fault(topic, data.index)
        log = self.logs[topic, data.index]
        offset = -1
        if not code:
            code, offset = log.append(bytes(data.records))
        current = None
        if code == NOT_LEADER and self.names_leaders:
            current = LeaderIdAndEpoch(leader_id=leader, leader_epoch=self.topics.epochs.get((topic, data.index), 0))
        return PartitionProduceResponse(
            index=data.index,
            error_code=code,
            base_offset=offset,
            log_append_time=-1,
            log_start_offset=log.start_offset,
            current_leader=current,
        )
