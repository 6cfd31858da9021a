"""Heartbeats of the consumer protocol to our group and to an Apache Kafka; answers as plain tuples.

Assignments are sorted lists of (topic, partition). Our world carries decisions out at once, or holds appends back.
"""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Hashable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from broker.groups import worlds
from broker.groups.worlds import label
from manual_clock import ManualClock
from waiting import PAUSE_S

from kafkalake.broker.coordination.decisions import Append, CancelTimer, ErrorClass, Reply, SetTimer
from kafkalake.broker.groups.assignors import Assignment
from kafkalake.broker.groups.config import GroupConfig
from kafkalake.broker.groups.consumer import ConsumerGroup
from kafkalake.broker.groups.consumer_records import ConsumerRecord, decode, encode
from kafkalake.broker.groups.consumer_requests import HeartbeatRequest, HeartbeatResult
from kafkalake.broker.groups.consumer_topics import TopicOfGroup
from kafkalake.broker.groups.records import GroupTombstone

Partitions: TypeAlias = list[tuple[str, int]]
Beat: TypeAlias = tuple[str, int, Partitions | None]
REBALANCE_MS = 60_000
PATIENCE_S = 30.0


class World(Protocol):
    """Heartbeats to one group."""

    def beat(
        self,
        member: str,
        epoch: int,
        owned: Iterable[tuple[str, int]] | None = None,
        topics: Sequence[str] | None = None,
        *,
        instance: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        timeout_ms: int = -1,
    ) -> Beat: ...
    def describe(self) -> tuple[str, str, int, int, str, list[tuple[str, int, int, int]]]: ...
    def settle(self) -> None: ...


class OurGroup:
    """Our group on a manual clock; timers fire in `advance`. With `hold` appends wait for `durable` or `fail`."""

    def __init__(self, topics: dict[str, int], clock: ManualClock | None = None, **config: int) -> None:
        self.clock = clock or ManualClock()
        self.topics = {
            name: TopicOfGroup(uuid.uuid5(uuid.NAMESPACE_DNS, name), count) for name, count in topics.items()
        }
        self.config = GroupConfig(**config)  # type: ignore[arg-type]
        self.journal: list[tuple[bytes, bytes | None]] = []
        self.hold = False
        self.replies: dict[int, HeartbeatResult] = {}
        self._numbers = 0
        self.start()

    def start(self) -> None:
        """A new coordinator reads the journal."""
        self.timers: dict[Hashable, int] = {}
        self._held: list[Append] = []
        self.group = ConsumerGroup("g", self.config, self.clock, lambda: self.topics)
        for key, value in self.journal:
            record = decode(key, value)
            assert record is not None
            self.group.follow(record)
        self.group.restored()
        self.run()

    def run(self) -> None:
        """Carry out what the group has decided."""
        while self.group.decisions:
            decisions, self.group.decisions = self.group.decisions, []
            for decision in decisions:
                match decision:
                    case Reply(waiter, result):
                        assert isinstance(waiter, int) and isinstance(result, HeartbeatResult)
                        assert waiter not in self.replies, "answered twice"
                        self.replies[waiter] = result
                    case SetTimer(name, delay_ms):
                        self.timers[name] = self.clock.monotonic_ms() + delay_ms
                    case CancelTimer(name):
                        self.timers.pop(name, None)
                    case Append() as append:
                        self._held.append(append)
                        if not self.hold:
                            self.durable()

    def durable(self) -> None:
        """What was held is durable."""
        held, self._held = self._held, []
        for append in held:
            self.write(append.records)
            self.group.appended(append.ticket, None)
        self.run()

    def fail(self, error: ErrorClass) -> None:
        """What was held could not be written."""
        held, self._held = self._held, []
        for append in held:
            self.group.appended(append.ticket, error)
        self.run()

    def write(self, records: Iterable[object]) -> None:
        for record in records:
            if not isinstance(record, GroupTombstone):
                assert isinstance(record, ConsumerRecord)  # type: ignore[misc, arg-type]
                self.journal.append(encode(record))

    def advance(self, milliseconds: int) -> None:
        """Time passes; timers fire on the way, in order."""
        end = self.clock.monotonic_ms() + milliseconds
        while self.timers:
            name = min(self.timers, key=self.timers.__getitem__)
            if self.timers[name] > end:
                break
            self.clock.advance(max(self.timers.pop(name) - self.clock.monotonic_ms(), 0))
            self.group.timer_fired(name)
            self.run()
        self.clock.advance(max(end - self.clock.monotonic_ms(), 0))

    def send(self, request: HeartbeatRequest) -> int:
        """Send a heartbeat; returns the number of its answer."""
        self._numbers += 1
        self.group.heartbeat(request, self._numbers)
        self.run()
        return self._numbers

    def ids(self, partitions: Iterable[tuple[str, int]]) -> Assignment:
        return frozenset((self.topics[name].topic_id, partition) for name, partition in partitions)

    def names(self, partitions: Assignment) -> Partitions:
        known = {topic.topic_id: name for name, topic in self.topics.items()}
        return sorted((known.get(topic, "gone"), partition) for topic, partition in partitions)

    def beat(
        self,
        member: str,
        epoch: int,
        owned: Iterable[tuple[str, int]] | None = None,
        topics: Sequence[str] | None = None,
        *,
        instance: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        timeout_ms: int = -1,
    ) -> Beat:
        request = HeartbeatRequest(
            member,
            epoch,
            group_instance_id=instance,
            rebalance_timeout_ms=timeout_ms,
            topics=None if topics is None else tuple(topics),
            regex=regex,
            assignor=assignor,
            owned=None if owned is None else self.ids(owned),
        )
        result = self.replies[self.send(request)]
        if result.error is not None:
            return label(result.error), 0, None
        return "NONE", result.member_epoch, None if result.assignment is None else self.names(result.assignment)

    def describe(self) -> tuple[str, str, int, int, str, list[tuple[str, int, int, int]]]:
        if not self.group.exists:
            return "GROUP_ID_NOT_FOUND", "", 0, 0, "", []
        one = self.group.describe()
        members = [(each.member_id, each.member_epoch, len(each.assignment), len(each.target)) for each in one.members]
        return "NONE", one.state, one.epoch, one.assignment_epoch, one.assignor, sorted(members)

    def settle(self) -> None:
        """Nothing takes time here."""


class KafkaGroup:
    """A group of an Apache Kafka, of which the coordinator has these topics (name -> id)."""

    def __init__(self, bootstrap_servers: str, group: str, ids: Mapping[str, uuid.UUID]) -> None:
        self._kafka = worlds.KafkaWorld(bootstrap_servers)
        self._group = group
        self._ids = ids

    def settle(self) -> None:
        """The pause between two looks: a regular expression is matched in the background."""
        time.sleep(PAUSE_S)

    def beat(
        self,
        member: str,
        epoch: int,
        owned: Iterable[tuple[str, int]] | None = None,
        topics: Sequence[str] | None = None,
        *,
        instance: str | None = None,
        regex: str | None = None,
        assignor: str | None = None,
        timeout_ms: int = -1,
    ) -> Beat:
        module = import_module("kio.schema.consumer_group_heartbeat.v1.request")
        response = self._kafka.ask(
            "consumer_group_heartbeat",
            1,
            group_id=self._group,
            member_id=member,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=None,
            rebalance_timeout=datetime.timedelta(milliseconds=timeout_ms),
            subscribed_topic_names=None if topics is None else tuple(topics),
            subscribed_topic_regex=regex,
            server_assignor=assignor,
            topic_partitions=None if owned is None else self._owned(module, list(owned)),
        )
        error = label(int(response.error_code))
        if error != "NONE":
            return error, 0, None
        assignment = None if response.assignment is None else self._names(response.assignment.topic_partitions)
        return error, response.member_epoch, assignment

    def _owned(self, module: Any, owned: Partitions) -> tuple[Any, ...]:
        return tuple(
            module.TopicPartitions(
                topic_id=self._ids[name], partitions=tuple(partition for one, partition in owned if one == name)
            )
            for name in dict.fromkeys(name for name, _ in owned)
        )

    def _names(self, topics: Any) -> Partitions:
        known = {topic_id: name for name, topic_id in self._ids.items()}
        return sorted((known[one.topic_id], partition) for one in topics for partition in one.partitions)

    def describe(self) -> tuple[str, str, int, int, str, list[tuple[str, int, int, int]]]:
        response = self._kafka.ask(
            "consumer_group_describe", 1, group_ids=(self._group,), include_authorized_operations=False
        )
        one = response.groups[0]
        members = [
            (each.member_id, each.member_epoch, _size(each.assignment), _size(each.target_assignment))
            for each in one.members
        ]
        error = label(int(one.error_code))
        return error, one.group_state, one.group_epoch, one.assignment_epoch, one.assignor_name, sorted(members)


def _size(assignment: Any) -> int:
    return sum(len(topic.partitions) for topic in assignment.topic_partitions)
