"""Decides what is fetched from which broker, keeps what came, and hands it out in order. Pure: requests and responses are values.

One request at a time is on its way to a broker. Records are fetched ahead: while the application has those of one response, the
next are asked for, until `fetch.max.bytes` are held in all or two responses of one partition. What was fetched for a position
that has moved since is dropped (`PartitionState.version`), and what is paused if nothing else is held and others have no room.
A partition is fetched from its leader, or from the replica that the leader names (KIP-392).

A little more than 400 lines: requests, their responses, and what the application takes of them are one state.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

import pyarrow as pa

from kafkalake.buffers import Buffer
from kafkalake.client.consuming.fetch_messages import fetch_request, parts_of
from kafkalake.client.consuming.fetch_sessions import FetchSession, WantedPartition
from kafkalake.client.consuming.fetched import FetchedRecords, RawRecord
from kafkalake.client.consuming.settings import ConsumerSettings
from kafkalake.client.consuming.subscriptions import PartitionState, Step, Subscriptions
from kafkalake.client.requests import error_name
from kafkalake.errors import (
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    InconsistentTopicIdError,
    InvalidFetchSessionEpochError,
    KafkaError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    ReplicaNotAvailableError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    as_value,
    error_for_code,
)
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.records import FetchRequest, FetchResponse, PartitionData

STALE = frozenset(
    error.code
    for error in (
        NotLeaderOrFollowerError,
        ReplicaNotAvailableError,
        KafkaStorageError,
        FencedLeaderEpochError,
        OffsetNotAvailableError,
        UnknownTopicOrPartitionError,
        UnknownTopicIdError,
        InconsistentTopicIdError,
        UnknownLeaderEpochError,
    )
)
"""Errors of a partition after which it is asked for again, with newer metadata."""

_SESSION_ERRORS = frozenset({FetchSessionIdNotFoundError.code, InvalidFetchSessionEpochError.code})
"""Errors after which a new session is begun at once."""

_RESPONSES_AHEAD = 2


class Leaders(Protocol):
    """The cluster as the fetcher sees it."""

    def leader_of(self, partition: TopicPartition) -> tuple[int, int] | None:
        """Return (node id, leader epoch) of a partition's leader, None if none is known."""
        ...

    def has_node(self, node_id: int) -> bool:
        """Return whether a broker is part of the cluster now."""
        ...

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic, None if it is not known."""
        ...


class Asked(NamedTuple):
    """A request under way: which state of each partition asked for which offset."""

    node_id: int
    request: FetchRequest
    partitions: Mapping[TopicPartition, tuple[int, int]]
    """(version, offset) by partition."""
    names: Mapping[UUID, str]
    """Topics by id, none if the request has their names."""


@dataclass(slots=True)
class FetchOutcome:
    """The parts of a response beside its records.

    is_stale: metadata may be outdated. leaders: (node, epoch) by partition, as the response names them.
    """

    is_stale: bool = False
    leaders: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)


class Fetcher:
    """See the module."""

    def __init__(self, settings: ConsumerSettings, subscriptions: Subscriptions, leaders: Leaders) -> None:
        self._settings = settings
        self._subscriptions = subscriptions
        self._leaders = leaders
        self._sessions: dict[int, FetchSession] = {}
        self._asked: dict[int, Asked] = {}
        self._fetched: deque[FetchedRecords] = deque()
        self._held_bytes = 0
        self._errors: dict[TopicPartition, tuple[int, KafkaError]] = {}
        """The newest error of partitions, with the version of the state that it is about, until the application hears of it."""
        self._fetched_bytes = 0
        self._responses = 0
        self._from_followers = 0
        self.may_request = True
        """Whether anything has happened since the last `requests` for which there may be one."""

    # Requests

    def requests(self, now_ms: int, can_send: Callable[[int], bool], takes_ids: Callable[[int], bool]) -> list[Asked]:
        """Return the requests to be sent now, at most one to each node without one that `can_send`.

        takes_ids: whether a node knows topics by their ids.
        """
        self._forget_dropped()
        self.may_request = False
        by_node = self._wanted(now_ms)
        if by_node and self._held_bytes >= max(self._settings.fetch_max_bytes, 1):
            if any(map(self._is_takeable, self._fetched)):
                return []
            for partition in {each.partition for each in self._fetched}:  # paused, while others wait
                self._drop(partition)
        made = []
        for node_id, wanted in by_node.items():
            if node_id not in self._asked and can_send(node_id):
                asked = self._asked[node_id] = self._request(node_id, wanted, takes_ids=takes_ids(node_id))
                made.append(asked)
        return made

    def _wanted(self, now_ms: int) -> dict[int, list[TopicPartition]]:
        by_node: dict[int, list[TopicPartition]] = {}
        held = Counter(each.partition for each in self._fetched)
        for partition, state in self._subscriptions.partitions.items():
            if not _is_fetchable(state, now_ms) or held[partition] >= _RESPONSES_AHEAD:
                continue
            node_id = self._node(partition, state, now_ms)
            if node_id is not None:
                by_node.setdefault(node_id, []).append(partition)
        return by_node

    def _node(self, partition: TopicPartition, state: PartitionState, now_ms: int) -> int | None:
        replica = state.read_replica
        if replica >= 0:
            if now_ms < state.read_replica_until_ms and self._leaders.has_node(replica):
                return replica
            state.leave_replica()
        leader = self._leaders.leader_of(partition)
        return None if leader is None else leader[0]

    def lacks_leader(self, now_ms: int) -> bool:
        """Return whether a partition has records to be fetched and no known leader."""
        return any(
            _is_fetchable(state, now_ms) and self._node(partition, state, now_ms) is None
            for partition, state in self._subscriptions.partitions.items()
        )

    def _request(self, node_id: int, partitions: list[TopicPartition], *, takes_ids: bool) -> Asked:
        wanted: dict[TopicPartition, WantedPartition] = {}
        states: dict[TopicPartition, tuple[int, int]] = {}
        for partition in partitions:
            state = self._subscriptions.partitions[partition]
            leader = self._leaders.leader_of(partition)
            epoch = -1 if leader is None else leader[1]
            wanted[partition] = WantedPartition(state.fetch_offset, epoch, self._settings.max_partition_fetch_bytes)
            states[partition] = (state.version, state.fetch_offset)
        session = self._sessions.setdefault(node_id, FetchSession())
        asked = session.request(wanted, self._topic_ids(partitions) if takes_ids else {})
        names = {topic_id: topic for topic, topic_id in asked.topic_ids.items()}
        return Asked(node_id, fetch_request(self._settings, asked), states, names)

    def _topic_ids(self, partitions: list[TopicPartition]) -> dict[str, UUID]:
        """Return the ids of the partitions' topics, none unless all are known."""
        found = {topic: self._leaders.topic_id(topic) for topic, _ in partitions}
        known = {topic: topic_id for topic, topic_id in found.items() if topic_id is not None}
        return known if len(known) == len(found) else {}

    def final_requests(self) -> list[tuple[int, FetchRequest]]:
        """Return (node id, request) for each session, which ends it at once instead of when the broker needs the room."""
        return [
            (node_id, fetch_request(self._settings, final))
            for node_id, session in self._sessions.items()
            if (final := session.final_request()) is not None
        ]

    # Responses

    def failed(self, asked: Asked, now_ms: int) -> None:
        """Take the news that no response to a request comes."""
        if self._asked.get(asked.node_id) is asked:
            del self._asked[asked.node_id]
        self._sessions[asked.node_id].failed()
        for partition in asked.partitions:
            state = self._subscriptions.partitions.get(partition)
            if state is not None and state.read_replica == asked.node_id:
                state.leave_replica()
        self._delay(asked.partitions, now_ms)

    def take(self, asked: Asked, response: FetchResponse, now_ms: int) -> FetchOutcome:
        """Take a response."""
        del self._asked[asked.node_id]
        self.may_request = True
        self._sessions[asked.node_id].answered(response.error_code, response.session_id)
        outcome = FetchOutcome()
        self._responses += 1
        if response.error_code:
            if response.error_code not in _SESSION_ERRORS:
                outcome.is_stale = True
                self._delay(asked.partitions, now_ms)
            return outcome
        parts = parts_of(response, asked.names)
        is_shared = sum(bool(data.records) for _, data in parts) > 1
        for partition, data in parts:
            state = self._subscriptions.partitions.get(partition)
            if state is not None and asked.partitions.get(partition) == (state.version, state.fetch_offset):
                # A view would keep the whole response, of which other partitions may be done with their part long before.
                records = bytes(data.records) if is_shared and data.records else data.records
                self._from_followers += bool(records) and state.read_replica == asked.node_id
                self._take_partition(partition, state, data, records, outcome, now_ms)
        return outcome

    def _take_partition(
        self,
        partition: TopicPartition,
        state: PartitionState,
        data: PartitionData,
        records: Buffer | None,
        outcome: FetchOutcome,
        now_ms: int,
    ) -> None:
        if data.error_code:
            self._refused(partition, state, data, outcome, now_ms)
            return
        state.take_offsets(data.high_watermark, data.last_stable_offset, data.log_start_offset)
        if data.preferred_read_replica >= 0:
            state.read_from(data.preferred_read_replica, now_ms + self._settings.metadata_max_age_ms)
        if not records:
            return
        aborted = (data.aborted_transactions or ()) if self._settings.is_read_committed else None
        fetched = FetchedRecords(partition, state.version, state.fetch_offset, records, aborted)
        if fetched.end_offset > state.fetch_offset:
            state.fetched_up_to(fetched.end_offset)
            self._fetched.append(fetched)
            self._held_bytes += fetched.size_bytes
            self._fetched_bytes += fetched.size_bytes
        else:
            where = f"partition {partition[0]}-{partition[1]} at offset {state.fetch_offset}"
            self._note(partition, state, KafkaError(f"{where}: the response has no whole record batch"))
            self._delay([partition], now_ms)

    def _refused(
        self, partition: TopicPartition, state: PartitionState, data: PartitionData, outcome: FetchOutcome, now_ms: int
    ) -> None:
        code = data.error_code
        self._delay([partition], now_ms)
        if code in STALE:
            outcome.is_stale = True
            state.leave_replica()
            if data.current_leader is not None and data.current_leader.leader_id >= 0:
                outcome.leaders[partition] = (data.current_leader.leader_id, data.current_leader.leader_epoch)
        elif code == OffsetOutOfRangeError.code:
            self._out_of_range(partition, state)
        else:
            place = f"partition {partition[0]}-{partition[1]} at offset {state.fetch_offset}"
            self._note(partition, state, error_for_code(code, f"{place}: {error_name(code)}"))

    def _out_of_range(self, partition: TopicPartition, state: PartitionState) -> None:
        """Reset a position that is not in the log. A follower may lack what its leader has: then the leader is asked."""
        if state.read_replica >= 0:
            state.leave_replica()
        elif state.fetch_offset != state.position:
            state.fetched_up_to(state.position or 0)
            self._drop(partition)
        elif self._subscriptions.reset is not None:
            self._subscriptions.seek_to_timestamp(partition, self._subscriptions.reset)
        else:
            place = f"partition {partition[0]}-{partition[1]}"
            self._note(partition, state, OffsetOutOfRangeError(f"{place} has no offset {state.position}"))

    def _note(self, partition: TopicPartition, state: PartitionState, error: KafkaError) -> None:
        self._errors[partition] = state.version, error

    def _delay(self, partitions: Mapping[TopicPartition, object] | list[TopicPartition], now_ms: int) -> None:
        self._subscriptions.delay(partitions, now_ms + self._settings.retry_backoff_ms)

    # What the application takes

    def metrics(self) -> dict[str, float]:
        """Return numbers by name: responses and bytes so far, parts of responses with records of followers, bytes that are held."""
        return {
            "fetch-total": self._responses,
            "fetch-from-followers-total": self._from_followers,
            "bytes-fetched-total": self._fetched_bytes,
            "bytes-held": self._held_bytes,
        }

    @property
    def has_records(self) -> bool:
        """Return whether `take_records` would return records or raise, as far as it is known before they are decoded."""
        self._forget_errors()
        return bool(self._errors) or any(self._is_takeable(each) for each in self._fetched)

    def take_records(self, limit: int) -> list[RawRecord]:
        """Return up to `limit` records of one partition, in order, and move its position. [] if there are none.

        Raise the error of a response, or of invalid bytes: then the position stays at them.
        """
        while (fetched := self._next()) is not None:
            try:
                found = fetched.take_records(limit)
            except KafkaError:
                self._drop(fetched.partition)
                raise
            self._took(fetched)
            if found:
                return found
        self._raise_error()
        return []

    def take_arrow(self) -> pa.RecordBatch | None:
        """Return the next batch of one partition as Arrow columns, and move its position. None if there is none.

        Raise as `take_records` does.
        """
        while (fetched := self._next()) is not None:
            try:
                found = fetched.take_arrow()
            except KafkaError:
                self._drop(fetched.partition)
                raise
            self._took(fetched)
            if found is not None:
                return found
        self._raise_error()
        return None

    def return_to(self, partition: TopicPartition, offset: int) -> None:
        """Move a position back to a record that was taken, and fetch it again."""
        state = self._subscriptions.partitions.get(partition)
        if state is not None:
            self._subscriptions.begin_at(partition, state.version, offset)

    def _raise_error(self) -> None:
        self._forget_errors()
        if self._errors:
            raise as_value(self._errors.pop(next(iter(self._errors)))[1])

    def _forget_errors(self) -> None:
        """Forget the errors of positions that have moved since, and of partitions that are given up."""
        states = self._subscriptions.partitions
        for partition, (version, _) in list(self._errors.items()):
            if partition not in states or states[partition].version != version:
                del self._errors[partition]

    def _next(self) -> FetchedRecords | None:
        return next((each for each in self._fetched if self._is_takeable(each)), None)

    def _is_takeable(self, fetched: FetchedRecords) -> bool:
        state = self._subscriptions.partitions.get(fetched.partition)
        return (
            state is not None
            and state.version == fetched.version
            and not (state.paused or state.revoking)
            and state.step is Step.FETCHING
        )

    def _forget_dropped(self) -> None:
        """Drop what was fetched for positions that have moved since."""
        for fetched in list(self._fetched):
            state = self._subscriptions.partitions.get(fetched.partition)
            if state is None or state.version != fetched.version:
                self._release(fetched)

    def _took(self, fetched: FetchedRecords) -> None:
        state = self._subscriptions.partitions[fetched.partition]
        state.advance(fetched.next_offset, fetched.epoch)
        if fetched.is_drained:
            self._release(fetched)

    def _drop(self, partition: TopicPartition) -> None:
        """Drop what was fetched of a partition, to fetch it again from its position."""
        for fetched in list(self._fetched):
            if fetched.partition == partition:
                self._release(fetched)
        state = self._subscriptions.partitions.get(partition)
        if state is not None and state.position is not None:
            state.fetched_up_to(state.position)

    def _release(self, fetched: FetchedRecords) -> None:
        self._fetched.remove(fetched)
        self._held_bytes -= fetched.size_bytes
        self.may_request = True


def _is_fetchable(state: PartitionState, now_ms: int) -> bool:
    return state.step is Step.FETCHING and not state.paused and not state.revoking and state.retry_at_ms <= now_ms
