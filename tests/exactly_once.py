"""Consume, transform, produce under fire: copiers in a group, killed and frozen at random, on a broker that is killed at random.

What must come out (DESIGN's invariants 4 to 8): every record of the input once in the output, in order per partition, and the
group's offsets at the input's end. The seed replays the choices, not their timing.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
from group_processes import Speaker
from kafka_clients import create_topic
from kafka_reference import BrokerProcess
from recording_producer import RecordingProducer
from waiting import wait_until

PARTITIONS = 4
COPIERS = 3
SESSION_TIMEOUT_MS = 3_000
RECOVERY_TIMEOUT_S = 120
BROKER_SETTINGS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
}
PROTOCOLS = ("classic", "consumer")


class Copier(Speaker):
    """One process of `transactional_copier.py`."""

    def __init__(self, **options: Any) -> None:
        script = Path(__file__).with_name("transactional_copier.py")
        super().__init__([sys.executable, str(script), json.dumps({"abort_rate": 0.1, "seed": 0, **options})])

    @property
    def assigned(self) -> list[int]:
        return next((event["assigned"] for event in reversed(self.events) if "assigned" in event), [])

    @property
    def copied(self) -> int:
        return sum(event.get("copied", 0) for event in self.events)

    @property
    def aborted(self) -> int:
        return sum("aborted" in event for event in self.events)


class Fire:
    """An input that is written all the time, copiers that are always started again, and what hits them.

    The copiers' group is of the classic or of the consumer protocol (KIP-848), as the seed says where `protocol` does not.
    `counts` says what was done to them and what they said.
    """

    def __init__(
        self, broker: BrokerProcess, topic: str, seed: int, protocol: str | None = None, replicas: int = 1
    ) -> None:
        self.broker = broker
        self.input, self.output, self.group = f"{topic}-input", f"{topic}-output", f"{topic}-copiers"
        self.counts: Counter[str] = Counter()
        self._randomness = random.Random(seed)
        self.protocol = protocol or self._randomness.choice(PROTOCOLS)
        self._seed = seed
        for name in (self.input, self.output):
            create_topic(broker.bootstrap_servers, name, PARTITIONS, replicas=replicas)
        commit_beginning(broker.bootstrap_servers, self.group, self.input)
        self._feeder = RecordingProducer(broker.bootstrap_servers, self.input, PARTITIONS, value_bytes=20, pause_s=0.04)
        self._copiers: list[Copier] = []
        self._frozen: dict[int, float] = {}
        """Copier by number -> when it goes on."""

    def burn(self, duration_s: float) -> None:
        """Write, copy, and kill for so long; then wait until everything written is copied, and end all copiers."""
        self._copiers = [self._start(number) for number in range(COPIERS)]
        self._feeder.start()
        try:
            wait_until(lambda: any(copier.copied for copier in self._copiers), lambda: self._said())
            until = time.monotonic() + duration_s
            while time.monotonic() < until:
                self._hurt()
                pause_until = min(time.monotonic() + self._randomness.uniform(0.3, 2.5), until)
                while time.monotonic() < pause_until:
                    time.sleep(0.05)
                    self._revive()
            self._thaw(everything=True)
            self._feeder.stop()
            self._wait_until_copied()
        finally:
            for number in range(len(self._copiers)):
                self._end(number)

    def _start(self, number: int) -> Copier:
        self.counts["copiers started"] += 1
        return Copier(
            client="confluent-kafka",
            protocol=self.protocol,
            servers=self.broker.bootstrap_servers,
            group=self.group,
            input=self.input,
            output=self.output,
            transactional_id=f"{self.group}-{number}",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            seed=self._seed + self.counts["copiers started"],
        )

    def _hurt(self) -> None:
        choice = self._randomness.random()
        number = self._randomness.randrange(COPIERS)
        is_overdue = not self.counts["broker killed"] and self.counts["copier killed"] >= 3
        if choice < 0.2 or is_overdue:
            self.counts["broker killed"] += 1
            self.broker.kill()
            self.broker.start()
        elif choice < 0.35 and number not in self._frozen:
            # Longer than its session: it wakes as a zombie whose partitions others read.
            self.counts["copier frozen"] += 1
            self._copiers[number].process.send_signal(signal.SIGSTOP)
            self._frozen[number] = time.monotonic() + SESSION_TIMEOUT_MS / 1000 + self._randomness.uniform(0, 3)
        else:
            self.counts["copier killed"] += 1
            self._copiers[number].process.kill()
            self._frozen.pop(number, None)

    def _revive(self) -> None:
        """Start what has died again, under the same transactional id."""
        self._thaw()
        for number, copier in enumerate(self._copiers):
            if copier.process.poll() is not None:
                self._end(number)
                self._copiers[number] = self._start(number)

    def _thaw(self, everything: bool = False) -> None:
        for number, when in list(self._frozen.items()):
            if everything or time.monotonic() >= when:
                self._copiers[number].process.send_signal(signal.SIGCONT)
                del self._frozen[number]

    def _end(self, number: int) -> None:
        copier = self._copiers[number]
        copier.kill()
        self.counts["records copied"] += copier.copied
        self.counts["transactions aborted by copiers"] += copier.aborted
        self.counts["copiers that could not go on"] += sum("ended" in event for event in copier.events)

    def _wait_until_copied(self) -> None:
        ends = [len(partition) for partition in self._feeder.acknowledged]

        def copied() -> bool:
            self._revive()
            return committed_offsets(self.broker.bootstrap_servers, self.group, self.input) == ends

        wait_until(copied, lambda: f"{ends} were written; {self._said()}", RECOVERY_TIMEOUT_S)

    def _said(self) -> list[Any]:
        return [copier.events[-5:] for copier in self._copiers]

    def expected(self) -> list[list[bytes]]:
        """What each partition of the output must hold."""
        assert not self._feeder.failed, self._feeder.failed[0]
        return [
            [b"copied:" + partition[offset] for offset in sorted(partition)] for partition in self._feeder.acknowledged
        ]


def commit_beginning(servers: str, group: str, topic: str) -> None:
    """Commit offset 0 of each partition, so that no copier asks where a partition begins.

    librdkafka 2.16 may ask that again half a second later: where another position was set before the answer came, it takes the
    answer for outdated and goes back to the beginning, past what it has read and committed since ("outdated offset response").
    """
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    begin = [confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
    committed = consumer.commit(offsets=begin, asynchronous=False)
    consumer.close()
    assert committed is not None and not any(each.error for each in committed)


def committed_offsets(servers: str, group: str, topic: str) -> list[int]:
    """The group's offset in each partition, once no open transaction can change it (`require_stable`)."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": group, "isolation.level": "read_committed", "log_level": 0}
    )
    asked = [confluent_kafka.TopicPartition(topic, index) for index in range(PARTITIONS)]
    try:
        return [each.offset for each in consumer.committed(asked, timeout=30)]
    except confluent_kafka.KafkaException:
        return []  # not stable yet
    finally:
        consumer.close()


def read_committed(servers: str, topic: str, partitions: int, timeout_s: float = 60) -> list[list[bytes]]:
    """The values of each partition up to its last stable offset, as an application with `read_committed` gets them."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[list[bytes]] = [[] for _ in range(partitions)]
    ended: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while len(ended) < partitions:
        assert time.monotonic() < deadline, f"{topic}: {sorted(ended)} of {partitions} partitions read in {timeout_s} s"
        for message in consumer.consume(1, 0.2):
            if message.error() is None:
                found[message.partition()].append(message.value())
                ended.discard(message.partition())
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise AssertionError(message.error())
    consumer.close()
    return found


def check_exactly_once(found: Sequence[Sequence[bytes]], expected: Sequence[Sequence[bytes]], reader: str) -> None:
    """Each record once and in order in each partition; says what is missing, double or in the wrong place."""
    for partition, (values, wanted) in enumerate(zip(found, expected, strict=True)):
        if list(values) != list(wanted):
            double = [value for value, times in Counter(values).items() if times > 1]
            missing = sorted(set(wanted) - set(values))
            more = sorted(set(values) - set(wanted))
            raise AssertionError(
                f"{reader}, partition {partition}: {len(values)} records of {len(wanted)}; {len(missing)} missing "
                f"{missing[:3]}, {len(double)} double {double[:3]}, {len(more)} never written {more[:3]}"
            )
