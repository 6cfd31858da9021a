"""Load that remembers what was acknowledged, and the check of it afterwards."""

from __future__ import annotations

import threading
import time
from typing import Any

import confluent_kafka
from watermarks import watermarks

SEND_TIMEOUT_MS = 120_000


class RecordingProducer:
    """An idempotent librdkafka producer (acks=all) in a thread of its own that writes numbered values until told to stop.

    `acknowledged[partition]` maps offset -> value of every delivery report without an error; `failed` holds those with one, and
    `placeless[partition]` the values that were acknowledged without an offset: librdkafka concludes from a later answer of the
    broker that it has them, if their own was lost.
    Values are `partition:number`, numbers without gaps in send order.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        partitions: int,
        value_bytes: int = 100,
        pause_s: float = 0.0005,
        *,
        in_flight: int = 5,
    ) -> None:
        """`in_flight`: requests at a time. With several, librdkafka begins a new epoch where one is refused behind one that has
        failed, and sends in it again what may be in the logs of other partitions.
        """
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "max.in.flight.requests.per.connection": in_flight,
                "message.timeout.ms": SEND_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "topic.metadata.refresh.interval.ms": 1000,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._partitions = partitions
        self._padding = b"." * value_bytes
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.acknowledged: list[dict[int, bytes]] = [{} for _ in range(partitions)]
        self.placeless: list[list[bytes]] = [[] for _ in range(partitions)]
        self.failed: list[Any] = []
        self.sent = 0

    def start(self) -> RecordingProducer:
        self._thread.start()
        return self

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append((error, message.value()))
            return
        if message.offset() is None:
            self.placeless[message.partition()].append(message.value())
            return
        partition = self.acknowledged[message.partition()]
        assert message.offset() not in partition, f"offset {message.offset()} was acknowledged twice"
        partition[message.offset()] = message.value()

    def _run(self) -> None:
        while not self._stop.is_set():
            partition = self.sent % self._partitions
            value = b"%d:%d:" % (partition, self.sent // self._partitions) + self._padding
            try:
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                self.sent += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)
            if self.sent % 20 == 0:
                time.sleep(self._pause_s)

    def wait_for_acknowledged(self, more: int, timeout_s: float) -> None:
        """Until `more` further records are acknowledged."""
        target = self.count() + more
        deadline = time.monotonic() + timeout_s
        while self.count() < target:
            assert time.monotonic() < deadline, (
                f"{self.count()} of {target} acknowledged in {timeout_s} s; {self.failed[:1]}"
            )
            time.sleep(0.005)

    def count(self) -> int:
        return sum(len(partition) for partition in self.acknowledged)

    def stop(self, timeout_s: float = 60.0) -> None:
        """Stop sending, wait for what is on its way."""
        self._stop.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive()
        left = self._producer.flush(timeout_s)
        assert left == 0, f"{left} records were neither acknowledged nor refused"


def read_all(servers: str, topic: str, partition: int, timeout_s: float = 60.0) -> dict[int, bytes]:
    """Every record of a partition up to its high watermark: offset -> value."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "check", "enable.auto.commit": False, "check.crcs": True}
    )
    low, high = watermarks(consumer, topic, partition, timeout_s)
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, low)])
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + timeout_s
    while (not found or max(found) + 1 < high) and high > low:
        assert time.monotonic() < deadline, f"read {len(found)} of {high - low} in {timeout_s} s"
        left = high - max(found, default=low - 1) - 1
        for message in consumer.consume(min(left, 10_000), 0.5):  # it waits for as many, or for so long
            assert not message.error(), message.error()
            assert message.offset() not in found
            found[message.offset()] = message.value()
    consumer.close()
    return found


def check_nothing_lost_nothing_twice(servers: str, topic: str, producer: RecordingProducer) -> None:
    """Invariants 1, 2, 3 and 5: acknowledged records are there, at their offsets, once, in send order, without a gap."""
    for partition, acknowledged in enumerate(producer.acknowledged):
        found = read_all(servers, topic, partition)
        lost = {offset: value for offset, value in acknowledged.items() if found.get(offset) != value}
        assert not lost, (
            f"partition {partition}: {len(lost)} acknowledged records are not at their offsets: {sorted(lost)[:5]}"
        )
        gone = set(producer.placeless[partition]) - set(found.values())
        assert not gone, f"partition {partition}: {len(gone)} acknowledged records are not there: {sorted(gone)[:5]}"
        numbers = [int(value.split(b":")[1]) for _, value in sorted(found.items())]
        odd = [(n, number) for n, number in enumerate(numbers) if n != number]
        assert not odd, f"partition {partition}: records twice, missing or out of order: (offset, number) {odd[:5]}"
        assert sorted(found) == list(range(len(found)))
