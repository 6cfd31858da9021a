"""A whole consumer without a socket, a clock or a thread: a `Machine` that an edge drives, and what a face calls.

A turn looks up positions, keeps the membership, commits, and fetches ahead. Faces (`consumer`, `aio`) call `begin_poll` in each
poll, carry out `change` with their rebalance listener, and take records. Everything here runs in one thread at a time.

A little more than 400 lines: it composes the parts of a consumer and has the calls of its faces, one function each.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from random import Random

from kafkalake.client.consuming.assignors import Assignor
from kafkalake.client.consuming.classic_membership import ClassicMembership
from kafkalake.client.consuming.cluster_view import ClusterView
from kafkalake.client.consuming.commits import Commits, Committed, Offsets
from kafkalake.client.consuming.consumer_membership import ConsumerMembership
from kafkalake.client.consuming.coordinator import Coordinator
from kafkalake.client.consuming.fetched import records_size
from kafkalake.client.consuming.fetcher import Asked, Fetcher
from kafkalake.client.consuming.membership import Change, GroupRequest, Identity, Membership
from kafkalake.client.consuming.offset_lookups import Found, OffsetLookups
from kafkalake.client.consuming.operation import Operation
from kafkalake.client.consuming.settings import ConsumerSettings
from kafkalake.client.consuming.starting_offsets import StartingOffsets
from kafkalake.client.consuming.subscriptions import Step, Subscriptions
from kafkalake.client.metrics import Metrics
from kafkalake.client.network.client import NetworkClient
from kafkalake.client.network.machine import Action
from kafkalake.client.network.pending_request import PendingRequest
from kafkalake.client.records import NO_EPOCH, OffsetAndMetadata
from kafkalake.client.requests import FETCH, FETCH_BY_ID
from kafkalake.errors import (
    BrokerUnavailableError,
    InvalidGroupIdError,
    InvalidTopicError,
    KafkaLakeError,
    TopicAuthorizationError,
    as_value,
)
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.records import FetchResponse

logger = logging.getLogger(__name__)

_CLASSIC = "classic"
_ERRORS_MAX = 100
_TURN_MS = 10
"""How long the network may wait while one poll after another returns records that are there already."""


class ConsumerCore:
    """See the module."""

    def __init__(
        self,
        settings: ConsumerSettings,
        assignors: Sequence[Assignor],
        member_id: str,
        random: Random,
        *,
        notes_commits: bool = False,
    ) -> None:
        """member_id: a new id, for the consumer protocol. notes_commits: whether `ended_commits` are collected."""
        self._settings = settings
        self._notes_commits = notes_commits
        self.ended_commits: deque[Offsets] = deque()
        """Offsets that were committed, automatically or not, of which interceptors have not heard."""
        self._network = NetworkClient(settings, random)
        self.metadata = self._network.metadata
        self.view = ClusterView(self.metadata)
        self.subscriptions = Subscriptions(settings.reset_timestamp)
        self.fetcher = Fetcher(settings, self.subscriptions, self.view)
        self._lookups = OffsetLookups(settings, self._network, self.subscriptions, self.view, self._report)
        self._membership: Membership | None = None
        self._coordinator: Coordinator | None = None
        self._commits: Commits | None = None
        if settings.group_id is not None:
            self._membership = self._new_membership(assignors, member_id)
            self._coordinator = Coordinator(settings.group_id, self._network, settings.retry_backoff_ms)
            self._commits = Commits(
                settings, self._network, self._coordinator, lambda: self.identity, self._commit_refused
            )
        self._errors: dict[str, KafkaLakeError] = {}
        self._missing: set[str] = set()
        self._starts = StartingOffsets(settings, self.subscriptions, self._commits, self._report)
        self._metadata_version = -1
        self._subscription_version = 0
        self._followed: frozenset[str] | None = None
        self._lists_topics = False
        self._asked_topics: frozenset[str] = frozenset()
        self._auto_commit_ms: int | None = None
        self._metrics: Metrics | None = None
        self._now_ms = 0
        self._turned_ms = 0

    def _new_membership(self, assignors: Sequence[Assignor], member_id: str) -> Membership:
        if self._settings.group_protocol == _CLASSIC:
            return ClassicMembership(self._settings, assignors, self.subscriptions, self.view.partition_counts)
        return ConsumerMembership(self._settings, member_id, self.subscriptions, self.view)

    def _commit_refused(self, code: int) -> None:
        if self._membership is not None and self._is_by_group:
            self._membership.commit_refused(code)

    # The machine

    def poll(self, now_ms: int) -> Sequence[Action]:
        """See `Machine`."""
        self._now_ms = self._turned_ms = now_ms
        self._metrics = self._metrics or Metrics(now_ms)
        self._turn(now_ms)
        return self._network.poll(now_ms)

    def is_due(self, now_ms: int) -> bool:
        """Return whether the network may have work although the application has records to go on with."""
        return self.fetcher.may_request or now_ms >= self._turned_ms + _TURN_MS

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """See `Machine`."""
        deadlines = [self._network.next_deadline_ms(now_ms), self._lookups.next_deadline_ms()]
        if self._commits is not None and self._coordinator is not None:
            deadlines.append(self._commits.next_deadline_ms())
            if self._needs_coordinator():
                deadlines.append(self._coordinator.next_deadline_ms())
            if self._membership is not None and self._is_by_group and self._coordinator.node_id is not None:
                deadlines.append(self._membership.next_deadline_ms(now_ms))
        deadlines += [
            state.retry_at_ms for state in self.subscriptions.partitions.values() if state.retry_at_ms > now_ms
        ]
        return min((each for each in deadlines if each is not None), default=None)

    def connected(self, node_id: int, now_ms: int) -> None:
        """See `Machine`."""
        self._now_ms = now_ms
        self._network.connected(node_id, now_ms)

    def buffer(self, node_id: int) -> memoryview:
        """See `Machine`."""
        return self._network.buffer(node_id)

    def received(self, node_id: int, count: int, now_ms: int) -> bool:
        """See `Machine`."""
        self._now_ms = now_ms
        return self._network.received(node_id, count, now_ms)

    def disconnected(self, node_id: int, error: BrokerUnavailableError, now_ms: int) -> None:
        """See `Machine`."""
        self._now_ms = now_ms
        self._network.disconnected(node_id, error, now_ms)

    # Turns

    @property
    def _is_by_group(self) -> bool:
        return self.subscriptions.is_by_group

    def _turn(self, now_ms: int) -> None:
        self._follow_topics()
        self._follow_metadata()
        if self._coordinator is not None and self._needs_coordinator():
            self._coordinator.turn(now_ms)
        self._membership_turn(now_ms)
        self._starts.turn(now_ms)
        if self._commits is not None:
            self._commits.turn(now_ms)
        self._lookups.turn(now_ms)
        self._fetch(now_ms)

    def _needs_coordinator(self) -> bool:
        is_asked = self._commits is not None and not self._commits.is_idle
        return self._is_by_group or is_asked or bool(self.subscriptions.waiting(Step.COMMITTED, self._now_ms))

    def _follow_topics(self) -> None:
        """Have the metadata follow what is read, assigned by this member, or asked about."""
        if self.subscriptions.pattern is not None or self._lists_topics:
            self.metadata.follow_all()
            self._followed = None
            return
        topics = self.subscriptions.topics | {topic for topic, _ in self.subscriptions.partitions}
        topics |= self._lookups.topics_needed | self._asked_topics
        if self._membership is not None:
            topics |= self._membership.topics_needed
        if topics != self._followed:
            self._followed = topics
            self.metadata.follow(topics)

    def _follow_metadata(self) -> None:
        """Take over newer metadata: leaders, topics that match the pattern, numbers of partitions."""
        changed = self._subscription_version != self.subscriptions.version
        if self.metadata.version == self._metadata_version and not changed:
            return
        self._metadata_version, self._subscription_version = self.metadata.version, self.subscriptions.version
        cluster = self.metadata.cluster
        if self.subscriptions.pattern is not None:
            changed = (
                self.subscriptions.match(name for name, info in cluster.topics.items() if not info.is_internal)
                or changed
            )
        if self._membership is not None and self._is_by_group:
            if changed:
                self._membership.subscription_changed()
            self._membership.metadata_changed()
        for partition in self.subscriptions.partitions:
            self._follow_leader(partition)
        for name, error in cluster.errors.items():
            if isinstance(error, InvalidTopicError | TopicAuthorizationError) and name in (self._followed or ()):
                self._report(error)
        missing = self.view.missing(self._followed or (), self.subscriptions.partitions)
        for text in sorted(missing - self._missing)[:_ERRORS_MAX]:
            logger.warning("%s", text)
        self._missing = missing

    def _follow_leader(self, partition: TopicPartition) -> None:
        info = self.view.partition(partition)
        if info is not None:
            self._starts.follow_leader(partition, self.view.topic_id(partition[0]), info.leader_epoch)

    def _membership_turn(self, now_ms: int) -> None:
        membership, coordinator = self._membership, self._coordinator
        if membership is None or coordinator is None or not self._is_by_group:
            return
        if coordinator.node_id is not None and membership.is_silent(now_ms):
            coordinator.lose(now_ms)
            membership.begin_session(now_ms)
        if coordinator.node_id is not None:
            for request in membership.requests(now_ms):
                self._send_to_coordinator(request, coordinator.node_id, now_ms)

    def _send_to_coordinator(self, request: GroupRequest, node_id: int, now_ms: int) -> PendingRequest[Message]:
        membership, coordinator = self._membership, self._coordinator
        assert membership is not None and coordinator is not None

        def done(pending: PendingRequest[Message]) -> None:
            if pending.error is not None:
                membership.failed(request, pending.error, self._now_ms)
                coordinator.lose(self._now_ms)
            elif not membership.take(request, pending.result(), self._now_ms):
                coordinator.lose(self._now_ms)

        return self._network.send(
            node_id, request.api, request.message, now_ms, timeout_ms=request.timeout_ms, done=done
        )

    def _fetch(self, now_ms: int) -> None:
        def can_send(node_id: int) -> bool:
            return self._network.can_send(node_id, now_ms)

        def takes_ids(node_id: int) -> bool:
            return self._network.offers(node_id, FETCH_BY_ID)

        for asked in self.fetcher.requests(now_ms, can_send, takes_ids):
            self._send_fetch(asked, now_ms)
        if self.fetcher.lacks_leader(now_ms):
            self.metadata.request_update()

    def _send_fetch(self, asked: Asked, now_ms: int) -> None:
        def done(pending: PendingRequest[FetchResponse]) -> None:
            if pending.response is None:
                self.fetcher.failed(asked, self._now_ms)
                self.metadata.request_update()
                return
            outcome = self.fetcher.take(asked, pending.response, self._now_ms)
            if self._metrics is not None:
                self._metrics.observe("fetch-latency", self._now_ms - now_ms, self._now_ms)
                self._metrics.count("bytes-consumed", records_size(pending.response), self._now_ms)
            if outcome.leaders:
                self.metadata.take_leaders(outcome.leaders, pending.response.node_endpoints)
            if outcome.is_stale:
                self.metadata.request_update()

        timeout_ms = self._settings.request_timeout_ms + self._settings.fetch_max_wait_ms
        api = FETCH_BY_ID if asked.names else FETCH
        self._network.send(asked.node_id, api, asked.request, now_ms, timeout_ms=timeout_ms, done=done)

    def _report(self, error: KafkaLakeError) -> None:
        if len(self._errors) < _ERRORS_MAX:
            self._errors[str(error)] = as_value(error)

    # What faces call

    def begin_poll(self, now_ms: int) -> None:
        """Take the news that the application polls: it is done with earlier records. Raise what it has to hear of."""
        self._now_ms = now_ms
        self.raise_errors(now_ms)
        if self._is_by_group and self._settings.group_id is None:
            raise InvalidGroupIdError("subscribing needs a group.id; without one, partitions are assigned by `assign`")
        if self._coordinator is not None and (group_error := self._coordinator.take_error()) is not None:
            raise group_error
        self._follow_topics()
        self._follow_metadata()
        if self._membership is not None and self._is_by_group and self._knows_topics:
            self._membership.poll(now_ms)
        self._commit_if_due(now_ms)

    def raise_errors(self, now_ms: int) -> None:
        """Raise what the application has to hear of."""
        self.raise_unreachable(now_ms)
        if self._errors:
            raise self._errors.pop(next(iter(self._errors)))

    def raise_unreachable(self, now_ms: int) -> None:
        """Raise `BrokerUnavailableError` if no broker was ever reached."""
        if (error := self._network.unreachable(now_ms)) is not None:
            raise error

    def list_topics(self, is_wanted: bool) -> None:
        """Have the metadata follow all topics, or no longer."""
        self._lists_topics = is_wanted

    def ask_about(self, topics: Collection[str]) -> None:
        """Have the metadata follow these topics too, in place of those that were asked about before."""
        self._asked_topics = frozenset(topics)

    @property
    def _knows_topics(self) -> bool:
        """Return whether the topics of a pattern are known: a group is not joined without."""
        return self.subscriptions.pattern is None or self._metadata_version > 0

    def assign(self, partitions: Collection[TopicPartition], now_ms: int) -> None:
        """Read exactly these partitions. What was read of others is committed, if that is automatic."""
        if self._commits_automatically and self.subscriptions.partitions:
            self.commit(self.positions(), now_ms + self._settings.default_api_timeout_ms, is_repeated=False)
        self.subscriptions.assign(partitions)
        for partition in self.subscriptions.partitions:
            self._follow_leader(partition)

    @property
    def needs_heartbeats(self) -> bool:
        """Return whether the consumer is to be a member of a group."""
        return self._membership is not None and self._is_by_group

    def metrics(self) -> dict[str, float]:
        """Return numbers by name."""
        states = tuple(self.subscriptions.partitions.values())  # other threads ask too
        lags = [lag for each in states if (lag := each.lag(self._settings.is_read_committed)) is not None]
        gauges = {"records-lag-max": max(lags, default=0), "assigned-partitions": len(states)}
        recent = {} if self._metrics is None else self._metrics.snapshot(self._now_ms)
        return {**self.fetcher.metrics(), **recent, **gauges}

    def count_records(self, number: int) -> None:
        """Count records that the application takes."""
        if self._metrics is not None:
            self._metrics.count("records-consumed", number, self._now_ms)

    @property
    def identity(self) -> Identity:
        """The consumer as a member of its group, for commits in a producer's transaction."""
        return Identity() if self._membership is None or not self._is_by_group else self._membership.identity

    @property
    def change(self) -> Change | None:
        """The change of the assignment that the application has to carry out."""
        return self._membership.change if self._membership is not None and self._is_by_group else None

    def begin_change(self, change: Change, now_ms: int) -> Operation[None] | None:
        """Return no more records of partitions that are given up. Return the automatic commit that comes first, if any."""
        self.subscriptions.mark_revoking(change.revoked | change.lost)
        if change.revoked and self._commits_automatically:
            deadline_ms = now_ms + min(self._settings.default_api_timeout_ms, self._settings.request_timeout_ms)
            return self.commit(self.positions(), deadline_ms, is_repeated=True)
        return None

    @property
    def last_change(self) -> Change:
        """The change with which the group is left: partitions are lost if the membership has ended already, else revoked."""
        partitions = frozenset(self.subscriptions.partitions)
        has_place = self._membership is not None and self._membership.has_place
        return Change(frozenset(), revoked=partitions) if has_place else Change(frozenset(), lost=partitions)

    def give_up(self, change: Change) -> None:
        """Give up the partitions of a change, once the listener has heard of it."""
        self.subscriptions.revoke(change.revoked | change.lost)

    def take_over(self, change: Change) -> None:
        """Take over the partitions of a change, before the listener hears of them."""
        self.subscriptions.assign_by_group(change.assigned)
        for partition in change.added:
            self._follow_leader(partition)

    def end_change(self, now_ms: int) -> None:
        """Go on after a change was carried out."""
        if self._membership is not None:
            self._membership.changed(now_ms)

    @property
    def _commits_automatically(self) -> bool:
        return self._settings.enable_auto_commit and self._commits is not None

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions as offsets to commit."""
        return {
            partition: OffsetAndMetadata(offset, None if epoch == NO_EPOCH else epoch)
            for partition, (offset, epoch) in self.subscriptions.positions().items()
        }

    def _commit_if_due(self, now_ms: int) -> None:
        if not self._commits_automatically:
            return
        interval_ms = self._settings.auto_commit_interval_ms
        if self._auto_commit_ms is None:
            self._auto_commit_ms = now_ms + interval_ms
        elif now_ms >= self._auto_commit_ms:
            self._auto_commit_ms = now_ms + interval_ms
            self.commit(self.positions(), now_ms + self._settings.default_api_timeout_ms, is_repeated=False)

    def commit(self, offsets: Offsets, deadline_ms: int, *, is_repeated: bool) -> Operation[None]:
        """Commit offsets. Raise `InvalidGroupIdError` without a group."""
        operation = self._group_commits().commit(offsets, deadline_ms, is_repeated=is_repeated)

        def ended() -> None:
            if operation.error is None:
                self.ended_commits.append(offsets)

        if offsets and self._notes_commits:
            operation.when_done(ended)
        return operation

    def committed(self, partitions: Collection[TopicPartition], deadline_ms: int) -> Operation[Committed]:
        """Find out what was committed. Raise `InvalidGroupIdError` without a group."""
        return self._group_commits().fetch(partitions, deadline_ms)

    def _group_commits(self) -> Commits:
        if self._commits is None:
            raise InvalidGroupIdError("offsets are committed by a group: the consumer needs a group.id")
        return self._commits

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int], deadline_ms: int) -> Operation[Found]:
        """Find the offsets of timestamps (ms, or `EARLIEST`, `LATEST`)."""
        return self._lookups.ask(timestamps, deadline_ms)

    def unsubscribe(self) -> None:
        """Forget topics and partitions."""
        self.subscriptions.unsubscribe()

    def leave(self, now_ms: int) -> PendingRequest[Message] | None:
        """Leave the group. Return the request under way that says so, if any."""
        if self._membership is None or self._coordinator is None or not self._is_by_group:
            return None
        request = self._membership.leave(now_ms)
        if request is None or self._coordinator.node_id is None:
            return None
        return self._send_to_coordinator(request, self._coordinator.node_id, now_ms)

    def begin_close(self, deadline_ms: int) -> Operation[None] | None:
        """Return the last automatic commit, if any."""
        return self.commit(self.positions(), deadline_ms, is_repeated=True) if self._commits_automatically else None

    def end_sessions(self, now_ms: int) -> None:
        """Tell brokers that nothing more is fetched, without waiting for their responses."""
        for node_id, request in self.fetcher.final_requests():
            self._network.send(node_id, FETCH, request, now_ms)

    def close(self) -> Sequence[Action]:
        """Fail what waits, and return what closes the connections."""
        return self._network.close()
