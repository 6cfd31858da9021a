"""A group coordinator on a journal in memory, with a manual clock and the broker's own timers."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from broker.groups.scenario import DELAY_MS, join_request
from manual_clock import ManualClock
from steps import run_steps

from kafkalake.broker.coordination.journal import Appended, JournalRecord, ProducerIdAndEpoch
from kafkalake.broker.coordination.table import Changes
from kafkalake.broker.groups.config import GroupConfig
from kafkalake.broker.groups.consumer_coordinator import ConsumerGroups
from kafkalake.broker.groups.consumer_requests import HeartbeatRequest, HeartbeatResult
from kafkalake.broker.groups.consumer_topics import TopicOfGroup
from kafkalake.broker.groups.coordinator import GroupCoordinator
from kafkalake.broker.groups.offset_removal import OffsetRemoval
from kafkalake.broker.groups.offset_requests import (
    CommitRequest,
    GroupErrors,
    OffsetRequests,
    OffsetToCommit,
    PartitionErrors,
)
from kafkalake.broker.groups.requests import (
    GroupSummary,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from kafkalake.broker.groups.table import ChangedOffset
from kafkalake.broker.partitions.purgatory import Timers
from kafkalake.errors import KafkaError
from kafkalake.record.build import ReadBatch

TOPICS = {"clicks": 4, "views": 2}


@dataclass(frozen=True)
class Batch:
    """One batch of the journal; `marker`: it ends the producer's transaction, committed or not."""

    position: int
    records: Sequence[JournalRecord]
    producer: ProducerIdAndEpoch | None = None
    marker: bool | None = None

    def as_read(self) -> ReadBatch:
        producer_id, epoch = (-1, -1) if self.producer is None else (self.producer.producer_id, self.producer.epoch)
        return ReadBatch(self.position, [(key, value) for key, value in self.records], producer_id, epoch, self.marker)


class MemoryJournal:
    """Appends are durable at once, or with `hold` when `release` is called; `fail_next` refuses the next one."""

    def __init__(self, partitions: int = 3) -> None:
        self._partitions = partitions
        self.batches: dict[int, list[Batch]] = {partition: [] for partition in range(partitions)}
        self.ends = dict.fromkeys(range(partitions), 0)
        self.hold = False
        self.fail_next: KafkaError | None = None
        self._held: list[Callable[[], None]] = []

    @property
    def partitions(self) -> int:
        return self._partitions

    def append(
        self,
        partition: int,
        records: Sequence[JournalRecord],
        timestamp_ms: int,
        producer: ProducerIdAndEpoch | None,
        done: Appended,
        *,
        is_limited: bool = True,
    ) -> None:
        assert records
        if self.hold:
            self._held.append(lambda: self._write(partition, records, producer, done))
        else:
            self._write(partition, records, producer, done)

    def release(self) -> None:
        """What was held is written now."""
        held, self._held = self._held, []
        for write in held:
            write()

    def marker(self, partition: int, producer: ProducerIdAndEpoch, *, committed: bool) -> int:
        """A transaction ends in a partition; the marker's position."""
        position = self.ends[partition]
        self.ends[partition] += 1
        self.batches[partition].append(Batch(position, (), producer, committed))
        return position

    def _write(
        self, partition: int, records: Sequence[JournalRecord], producer: ProducerIdAndEpoch | None, done: Appended
    ) -> None:
        error, self.fail_next = self.fail_next, None
        if error is not None:
            done(-1, error)
            return
        position = self.ends[partition]
        self.ends[partition] += len(records)
        self.batches[partition].append(Batch(position, records, producer))
        done(position, None)


class Cluster:
    """One coordinator; `restart` makes a new one from the journal (and from what was published)."""

    def __init__(self, **config: int) -> None:
        self.clock = ManualClock()
        self.journal = MemoryJournal()
        self.config = GroupConfig(**{"group_initial_rebalance_delay_ms": DELAY_MS, **config})
        self._numbers = itertools.count(1)
        self.topics = {
            name: TopicOfGroup(uuid.uuid5(uuid.NAMESPACE_DNS, name), count) for name, count in TOPICS.items()
        }
        self.start()

    def leave(self, group_id: str, *leaving: LeavingMember) -> list[list[LeaveResult]]:
        """Leave a group, and return a list that has the results once they are answered."""
        answers: list[list[LeaveResult]] = []
        self.coordinator.leave_group(group_id, leaving, answers.append)
        return answers

    def list_groups(self, states: Collection[str] = (), group_types: Collection[str] = ()) -> list[GroupSummary]:
        """The groups in one of these states and of one of these types."""
        return run_steps(self.coordinator.list_groups(states, group_types))

    def start(self, published: Changes[ChangedOffset] | None = None) -> None:
        """Load everything, from where `published` says."""
        self.timers = Timers(self.clock)
        self.coordinator = GroupCoordinator(
            self.config, self.clock, self.timers, self.journal, lambda: str(next(self._numbers)), lambda: self.topics
        )
        self.consumers = ConsumerGroups(self.coordinator)
        self.offsets = OffsetRequests(self.coordinator, lambda topic: self.topics.get(topic))
        self.removal = OffsetRemoval(self.coordinator, self.offsets)
        for partition, batches in self.journal.batches.items():
            begin = 0 if published is None else published.resume_at[partition]
            rows = () if published is None else published.rows
            journaled = self.coordinator.journaled
            journaled.begin_load(partition, begin, [row for row in rows if row.journal_partition == partition])
            for batch in batches:
                if batch.position + max(len(batch.records), 1) <= begin:
                    continue
                journaled.load(partition, batch.as_read())
            journaled.finish_load(partition)

    def advance(self, milliseconds: int, step_ms: int = 500) -> None:
        """Time passes in steps; timers that are due ring."""
        end = self.clock.monotonic_ms() + milliseconds
        while self.clock.monotonic_ms() < end:
            self.clock.advance(min(step_ms, end - self.clock.monotonic_ms()))
            self.timers.ring()

    def join(self, group_id: str, member_id: str = "", **changes: object) -> list[JoinResult]:
        """Send a join; the list holds the answer once it is there."""
        answers: list[JoinResult] = []
        self.coordinator.join_group(group_id, join_request(member_id, **changes), answers.append)
        return answers

    def sync(self, group_id: str, request: SyncRequest) -> list[SyncResult]:
        answers: list[SyncResult] = []
        self.coordinator.sync_group(group_id, request, answers.append)
        return answers

    def beat(self, group_id: str, member_id: str, epoch: int, **values: object) -> list[HeartbeatResult]:
        """Send a heartbeat of the consumer protocol; one that joins subscribes to "clicks"."""
        joining: dict[str, object] = {"rebalance_timeout_ms": 60_000, "topics": ("clicks",), "owned": frozenset()}
        request = HeartbeatRequest(member_id, epoch, **(joining if epoch == 0 else {}) | values)  # type: ignore[arg-type]
        answers: list[HeartbeatResult] = []
        self.consumers.heartbeat(group_id, request, answers.append)
        return answers

    def commit(
        self,
        group_id: str,
        *offsets: OffsetToCommit,
        member_id: str = "",
        generation_id: int = -1,
        retention_ms: int = -1,
        producer: ProducerIdAndEpoch | None = None,
    ) -> list[PartitionErrors]:
        answers: list[PartitionErrors] = []
        request = CommitRequest(group_id, offsets, member_id, None, generation_id, retention_ms, producer)
        self.offsets.commit(request, answers.append)
        return answers

    def end_transaction(self, group_id: str, producer: ProducerIdAndEpoch, *, committed: bool) -> None:
        """The marker is written to the group's journal partition, and the coordinator hears of it."""
        partition = self.coordinator.table.check(group_id)
        position = self.journal.marker(partition, producer, committed=committed)
        self.coordinator.table.end_transaction(partition, producer.producer_id, committed=committed, position=position)

    def delete_groups(self, *group_ids: str) -> list[GroupErrors]:
        answers: list[GroupErrors] = []
        self.offsets.delete_groups(group_ids, answers.append)
        return answers

    def fetched(
        self, group_id: str, *keys: tuple[str, int], require_stable: bool = False
    ) -> dict[tuple[str, int], object]:
        """The offsets of a group in these partitions (none: in all that have one): the number, or the error class."""
        found = self.offsets.fetch(group_id, keys or self.offsets.committed_in(group_id), require_stable=require_stable)
        return {
            key: value if value is None or isinstance(value, type) else value.offset for key, value in found.items()
        }

    def stable_member(self, group_id: str) -> JoinResult:
        """A group with one member that has its assignment; how it joined."""
        first = self.join(group_id)[0]
        joined = self.join(group_id, first.member_id)
        self.advance(DELAY_MS)
        request = SyncRequest(first.member_id, joined[0].generation_id, {first.member_id: b"all"})
        assert self.sync(group_id, request)[0].error is None
        return joined[0]
