"""A group of the consumer protocol (KIP-848): events in, decisions out.

Members only send heartbeats. The group decides. A change of members, subscriptions or topics makes a new group epoch. The next
heartbeat computes the target assignment of that epoch with the assignor that most members ask for. Each member then converges to
its target at its own pace (`groups.consumer_reconciliation`). A member that does not revoke in time, or sends no heartbeat for a
session, is removed.

One heartbeat is processed at a time. While its records are being written to the journal the others are queued, so the group's
state always equals the journal, and a failed write changes nothing. The queue is bounded by the number of the group's
connections. Source: KIP-848; answers of Apache Kafka 4.1.1.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from kafkalake.broker.coordination.decisions import Append, CancelTimer, Decision, ErrorClass, Reply, SetTimer
from kafkalake.broker.groups.assignors import NOTHING, Assignment
from kafkalake.broker.groups.consumer_checks import admitted, check_holder, check_regexes, check_request, updated
from kafkalake.broker.groups.consumer_classic import ClassicMembers
from kafkalake.broker.groups.consumer_reconciliation import reconciled
from kafkalake.broker.groups.consumer_records import (
    ConsumerRecord,
    Current,
    CurrentRecord,
    EpochRecord,
    GroupEpoch,
    MemberState,
    Subscription,
    SubscriptionRecord,
    TargetEpochRecord,
    TargetRecord,
)
from kafkalake.broker.groups.consumer_requests import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    HeartbeatRequest,
    HeartbeatResult,
)
from kafkalake.broker.groups.consumer_sessions import (
    STEPS_TIMER,
    Downgrade,
    Making,
    PendingWrite,
    Session,
    refusal,
    revocation_timer,
)
from kafkalake.broker.groups.consumer_state import ASSIGNED_BYTES, kept_bytes_of
from kafkalake.broker.groups.consumer_targets import compute_targets, find_topics, unite
from kafkalake.broker.groups.consumer_topics import metadata_hash
from kafkalake.broker.groups.records import GroupTombstone
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    KafkaError,
    UnknownMemberIdError,
)
from kafkalake.run_blocking import TURN_NS, Steps

logger = logging.getLogger(__name__)

RETRY_MS = 100
"""Delay before another attempt to remove a member whose timer expired during a change."""
FAILED_RETRY_MS = 1_000
"""The same after a removal that could not be written."""


class ConsumerGroup(ClassicMembers):
    """One group. Each event adds its decisions to `decisions`, for the coordinator to take and carry out in order.

    `topics` returns the current topics. `replaces_classic`: the journal has an empty classic group of that id, which the first
    records of this one replace. `subscribed_topics` are the topic names of all members' subscriptions.
    """

    # Heartbeats

    def heartbeat(self, request: HeartbeatRequest, waiter: object) -> None:
        """Queue a ConsumerGroupHeartbeat (join, stay or leave). Reply with a `HeartbeatResult`."""
        try:
            if request.classic is None:
                check_request(request)
        except KafkaError as error:
            self._reply(waiter, refusal(error))
            return
        self._line.append((request, waiter))
        self._work()

    def _work(self) -> None:
        """Process queued heartbeats until one has records to write, or a turn is over."""
        end_ns = self._clock.monotonic_ns() + TURN_NS
        while self._line and not self._is_changing:
            if self._clock.monotonic_ns() >= end_ns:
                self.decisions.append(SetTimer(STEPS_TIMER, 0))
                return
            request, waiter = self._line.popleft()
            if self.dead:
                self._reply(waiter, HeartbeatResult(CoordinatorNotAvailableError))
            elif request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                self._make(Making(self._leave(request, waiter), waiter))
            else:
                self._make(Making(self._beat(request, waiter), waiter))

    def _make(self, making: Making) -> None:
        """Find the records of a change and write them. What takes longer than a turn goes on after other work."""
        self._making = None
        try:
            change = making.go_on(self._clock)
        except Exception as error:
            if not isinstance(error, KafkaError):
                logger.exception("heartbeat not processed group=%s", self.group_id)
            self._reply(making.waiter, refusal(error))
            if making.timer is not None:
                self.decisions.append(SetTimer(making.timer, FAILED_RETRY_MS))
            return
        if change is None:
            self._making = making
            self.decisions.append(SetTimer(STEPS_TIMER, 0))
        else:
            self._commit(change)

    def _commit(self, change: PendingWrite) -> None:
        if not change.records:
            self._done(change)
            return
        self._change = change
        classic = self.classic_record(change.records, self._clock.now_ms())
        if classic is not None:
            self.decisions.append(Downgrade((*self.state.tombstones(), classic), change))
            return
        records: tuple[object, ...] = (*self._prelude, *change.records)
        if self._replaces_classic:
            records = (GroupTombstone(self.group_id), *records)
        self.decisions.append(Append(records, change))

    def _beat(self, request: HeartbeatRequest, waiter: object) -> Steps[PendingWrite]:
        """Handle a join or a heartbeat: the member's subscription, the group epoch, the target and the member's next step."""
        state = self.state
        if request.member_epoch != JOIN_EPOCH and not self.exists:
            raise GroupIdNotFoundError(f"Group {self.group_id} not found.")
        self._check_room(request.member_id)
        replaced = admitted(state, request) if request.classic is None else self._admitted_classic(request)
        known_as = replaced or request.member_id
        before = state.subscriptions.get(known_as)
        current = state.current(known_as)
        records: list[ConsumerRecord] = []
        if replaced is not None:
            current = replace(current, epoch=0, state=MemberState.STABLE)
            records += state.tombstones_of(replaced)
            records.append(TargetRecord(self.group_id, request.member_id, state.targets.get(replaced, NOTHING)))
            records.append(CurrentRecord(self.group_id, request.member_id, current))
        subscription = updated(before, request)
        self._check_size(before, subscription)
        check_regexes(state, before, subscription)
        subscriptions = state.subscriptions
        if subscription != before or replaced is not None:
            records.append(SubscriptionRecord(self.group_id, request.member_id, subscription))
            subscriptions = {one: value for one, value in subscriptions.items() if one != replaced}
            subscriptions[request.member_id] = subscription
        try:
            targets, target_epoch = yield from self._retarget(
                before, subscription, subscriptions, replaced, request.member_id, records
            )
        except Exception:
            self._metadata_is_stale = True  # what it has found of the topics is not written
            raise

        def is_free(partition: object) -> bool:
            owner = state.owner(partition)  # type: ignore[arg-type]
            return owner is None or owner == replaced

        after = reconciled(current, target_epoch, targets.get(request.member_id, NOTHING), request.owned, is_free)
        if after != current or (before is None and replaced is None):
            records.append(CurrentRecord(self.group_id, request.member_id, after))
        says_all = request.rebalance_timeout_ms != -1 and request.owned is not None
        says_all = says_all and (request.topics is not None or request.regex is not None)
        shown = request.member_epoch == JOIN_EPOCH or says_all or after.assigned != current.assigned
        interval_ms = self._timing.heartbeat_interval_ms(self.group_id)
        result = HeartbeatResult(None, request.member_id, after.epoch, interval_ms, after.assigned if shown else None)
        joined = None if request.classic is None else request.member_id
        return PendingWrite(tuple(records), waiter, result, request.member_id, joined)

    def _check_room(self, member_id: str) -> None:
        size = self._config.group_consumer_max_size
        if len(self.state) >= size and member_id not in self.state.subscriptions:
            raise GroupMaxSizeReachedError(f"The consumer group has reached its maximum capacity of {size} members.")

    def _check_size(self, before: Subscription | None, subscription: Subscription) -> None:
        """Enforce the limits of subscription bytes per group and for all groups of the broker."""
        grows = kept_bytes_of(subscription) - (0 if before is None else kept_bytes_of(before))
        if grows > 0 and self.state.bytes + grows > self._config.group_metadata_max_bytes:
            raise GroupMaxSizeReachedError("The members' subscriptions are too long (group.metadata.max.bytes).")
        self._check_memory(grows)

    def _check_memory(self, grows: int) -> None:
        if grows > 0 and self.state.memory.bytes + grows > self._config.group_coordinator_metadata_max_bytes:
            raise CoordinatorNotAvailableError("Too much of members (group.coordinator.metadata.max.bytes).")

    def _retarget(
        self,
        before: Subscription | None,
        subscription: Subscription,
        subscriptions: Mapping[str, Subscription],
        replaced: str | None,
        member_id: str,
        records: list[ConsumerRecord],
    ) -> Steps[tuple[Mapping[str, Assignment], int]]:
        """Make a new group epoch if something changed, and compute the targets of an epoch that has none yet."""
        state = self.state
        read_before = ((), None) if before is None else (before.topics, before.regex)
        changed = not self.exists or read_before != (subscription.topics, subscription.regex)
        epoch, topics = state.epoch, self._topics()
        read = None
        if changed or self._metadata_is_stale:
            self._metadata_is_stale = False  # unless topics change while the hash is computed
            read = yield from find_topics(subscriptions.values(), topics)
            digest = metadata_hash((yield from unite(read)), topics)
            if changed or digest != state.metadata_hash:
                epoch += 1
                records.append(EpochRecord(self.group_id, GroupEpoch(epoch, digest)))
        targets: Mapping[str, Assignment] = state.targets
        if replaced is not None:
            targets = {one: target for one, target in targets.items() if one != replaced}
            targets[member_id] = state.targets.get(replaced, NOTHING)
        if epoch <= state.target_epoch:
            return targets, state.target_epoch
        default = self._config.group_consumer_assignors[0]
        read = read or (yield from find_topics(subscriptions.values(), topics))
        new = yield from compute_targets(targets, subscriptions, read, topics, default)
        if changed:  # by the member: a group whose topics have grown goes on
            self._check_memory(ASSIGNED_BYTES * (sum(map(len, new.values())) - state.assigned))
        for one, target in new.items():
            if targets.get(one) != target:
                records.append(TargetRecord(self.group_id, one, target))
        records.append(TargetEpochRecord(self.group_id, epoch))
        return new, epoch

    # Leaving

    def _leave(self, request: HeartbeatRequest, waiter: object) -> Steps[PendingWrite]:
        """Remove a member for good, or mark a static member as temporarily away."""
        if not self.exists:
            raise GroupIdNotFoundError(f"Group {self.group_id} not found.")
        result = HeartbeatResult(None, request.member_id, request.member_epoch)
        if request.group_instance_id is not None:
            check_holder(request, self.state.static_member_id(request.group_instance_id))
        elif request.member_id not in self.state.subscriptions:
            raise UnknownMemberIdError(f"Member {request.member_id} is not a member of group {self.group_id}.")
        if request.member_epoch == LEAVE_STATIC_EPOCH:
            away = replace(self.state.current(request.member_id), epoch=LEAVE_STATIC_EPOCH, revoking=NOTHING)
            return PendingWrite((CurrentRecord(self.group_id, request.member_id, away),), waiter, result)
        return PendingWrite((yield from self._without(request.member_id)), waiter, result)

    def _without(self, member_id: str) -> Steps[tuple[ConsumerRecord, ...]]:
        """Return the records that remove a member. The remaining members get the next epoch."""
        topics = self._topics()
        left = [one for other, one in self.state.subscriptions.items() if other != member_id]
        digest = metadata_hash((yield from unite((yield from find_topics(left, topics)))), topics)
        epoch = EpochRecord(self.group_id, GroupEpoch(self.state.epoch + 1, digest))
        return (*self.state.tombstones_of(member_id), epoch)

    def _fence(self, member_id: str, timer: Hashable) -> None:
        """Remove a member that did not ask to leave, because of a timer."""

        def remove() -> Steps[PendingWrite]:
            return PendingWrite((yield from self._without(member_id)), None, HeartbeatResult(None), timer=timer)

        self._make(Making(remove(), None, timer))

    # Callbacks from the coordinator

    def appended(self, ticket: object, error: ErrorClass | None) -> None:
        """Continue after an `Append`: apply the change if it is durable, else fail its request with `error`."""
        if ticket is not self._change or self.dead:
            return
        assert isinstance(ticket, PendingWrite)
        self._change = None
        if error is None:
            self._replaces_classic = False
            self._prelude = ()
            self._done(ticket)
        else:
            self._metadata_is_stale = True  # the failed write may have contained the new topics
            self._reply(ticket.waiter, HeartbeatResult(error))
            if ticket.timer is not None:
                self.decisions.append(SetTimer(ticket.timer, FAILED_RETRY_MS))
        self._work()

    def _done(self, change: PendingWrite) -> None:
        changed = (one.member_id for one in change.records if isinstance(one, CurrentRecord))
        before = {member_id: self.state.currents.get(member_id) for member_id in changed}
        for record in change.records:
            self.state.follow(record)
        if change.records:
            self._after(change.records, before)
        if change.heard_from is not None:
            self._expect_heartbeat(change.heard_from)
        if change.joined is not None:
            self._expect_sync(change.joined)
        if change.waiter is not None:
            self._reply(change.waiter, change.result)

    def _after(self, records: Iterable[ConsumerRecord], before: Mapping[str, Current | None]) -> None:
        """Set or cancel the timers of changed members and update the subscribed topics."""
        for record in records:
            if isinstance(record, SubscriptionRecord):
                self._topics_read = None
                if record.value is None:
                    self._cancel_timers(record.member_id)
            elif isinstance(record, CurrentRecord) and record.value is not None:
                old = before.get(record.member_id)
                if record.value.state is not MemberState.UNREVOKED_PARTITIONS:
                    self.decisions.append(CancelTimer(revocation_timer(record.member_id)))
                elif old is None or (old.epoch, old.revoking) != (record.value.epoch, record.value.revoking):
                    self._expect_revocation(record.member_id)

    def topics_changed(self) -> None:
        """Note that topics were created, deleted or extended. The next heartbeat checks whether that concerns the group."""
        self._metadata_is_stale = True
        self._topics_read = None

    def timer_fired(self, name: Hashable) -> None:
        """Handle the expiry of the timer `name`."""
        if name == STEPS_TIMER:
            if self._making is not None:
                self._make(self._making)
            self._work()
            return
        assert isinstance(name, tuple)
        kind, member_id = name
        if self.dead or member_id not in self.state.subscriptions:
            return
        if kind == "revocation":
            late = self.state.current(member_id).state is MemberState.UNREVOKED_PARTITIONS
        elif kind in ("join", "sync"):
            late = True
        else:
            session = self._sessions.setdefault(member_id, Session(0))
            session.timer_due_at_ms = None
            late = session.ends_at_ms <= self._clock.monotonic_ms()
            if not late:
                self._watch(member_id, session)
        if late and not self._is_changing:
            self._fence(member_id, name)
        elif late:
            self.decisions.append(SetTimer(name, RETRY_MS))  # after the write in progress

    def downgraded(self) -> list[Decision]:
        """End this group after it became a classic one and return the replies to pending requests."""
        change, self._change = self._change, None
        if change is not None:
            self._reply(change.waiter, change.result)
        self.die(CoordinatorNotAvailableError)
        return [decision for decision in self.decisions if isinstance(decision, Reply)]

    def begin_as(self, records: Iterable[ConsumerRecord]) -> None:
        """Begin with the state of a former classic group. The first change that is written also writes `records`."""
        self._prelude = tuple(records)
        for record in self._prelude:
            self.state.follow(record)

    def follow(self, record: ConsumerRecord) -> None:
        """Apply one journal record during loading."""
        self.state.follow(record)

    def restored(self) -> None:
        """Restart timers after the journal has been read. Each member gets a whole session timeout."""
        self._metadata_is_stale = True
        self._topics_read = None
        for member_id, subscription in self.state.subscriptions.items():
            self._expect_heartbeat(member_id)
            if subscription.classic is not None and self._has_to_rejoin(member_id):
                self._expect_join(member_id)
            if self.state.current(member_id).state is MemberState.UNREVOKED_PARTITIONS:
                self._expect_revocation(member_id)

    def die(self, error: ErrorClass) -> None:
        """End the group (deleted, or no longer coordinated by this broker). Pending requests fail with `error`."""
        self.dead = True
        self.release()
        change, self._change, self._making = self._change or self._making, None, None
        if change is not None and change.waiter is not None:
            self._reply(change.waiter, HeartbeatResult(error))
        for _, waiter in self._line:
            self._reply(waiter, HeartbeatResult(error))
        self._line.clear()
        self.decisions.append(CancelTimer(STEPS_TIMER))
        for member_id in list(self.state.subscriptions):
            self._cancel_timers(member_id)

    def revive(self) -> None:
        """Undo `die` after a failed deletion."""
        assert self.dead and not len(self.state)
        self.dead = False
