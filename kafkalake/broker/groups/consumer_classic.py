"""Classic members in a group of the consumer protocol, during a rolling upgrade of an application (KIP-848,
"Online migration").

Such a member joins, syncs and sends heartbeats as usual, and converges to its target like the others. Its generation is its member
epoch. The subscription of its next join tells what it revoked. An assignment is ready as soon as it has joined, so there is no
join barrier and no leader. Whenever its next step needs a join, its heartbeat is answered RebalanceInProgress.
Source: KIP-848; Apache Kafka 4.1.1, `classicGroupJoinToConsumerGroup` and its neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kafkalake.broker.coordination.decisions import CancelTimer, SetTimer
from kafkalake.broker.groups.assignors import NOTHING, Assignment
from kafkalake.broker.groups.consumer_records import (
    ClassicMember,
    ConsumerRecord,
    MemberState,
    Subscription,
    SubscriptionRecord,
)
from kafkalake.broker.groups.consumer_requests import HeartbeatRequest
from kafkalake.broker.groups.consumer_sessions import MemberSessions, join_timer, sync_timer
from kafkalake.broker.groups.records import GroupRecord, MemberRecord
from kafkalake.broker.groups.requests import JoinRequest, SyncRequest, SyncResult
from kafkalake.broker.groups.subscription import (
    CONSUMER_PROTOCOL_TYPE,
    encode_assignment,
    read_subscription,
    read_version,
)
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kafkalake.topic_partition import by_topic

DOWNGRADES = ("bidirectional", "downgrade")
UPGRADES = ("bidirectional", "upgrade")
"""Values of `group.consumer.migration.policy` that allow a group with members to become a classic one, or a consumer one."""


class ClassicMembers(MemberSessions):
    """The part of a group that serves classic members."""

    # Joining

    def classic_join(self, request: JoinRequest, member_id: str) -> HeartbeatRequest:
        """Return a join as the equivalent heartbeat. Raise `InconsistentGroupProtocolError` or `JournalFormatError`."""
        self._check_protocols(request)
        subscription = read_subscription(request.protocols[0].metadata)
        topics = self._topics()
        owned = frozenset(
            (topics[name].topic_id, partition) for name, partition in subscription.owned if name in topics
        )
        protocols = tuple((protocol.name, protocol.metadata) for protocol in request.protocols)
        return HeartbeatRequest(
            member_id,
            0,
            request.client_id,
            request.client_host,
            request.group_instance_id,
            subscription.rack_id,
            request.rebalance_timeout_ms,
            subscription.topics,
            "",
            None,
            owned,
            ClassicMember(request.session_timeout_ms, protocols),
            rejoins=bool(request.member_id),
        )

    def _check_protocols(self, request: JoinRequest) -> None:
        """Require an assignor common to all classic members, though unused here: the group may become classic again."""
        others = [
            one.classic
            for member_id, one in self.state.subscriptions.items()
            if one.classic is not None and member_id != request.member_id
        ]
        support = Counter(name for one in others for name in {name for name, _ in one.protocols})
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not any(
            support[protocol.name] == len(others) for protocol in request.protocols
        ):
            raise InconsistentGroupProtocolError

    def _admitted_classic(self, request: HeartbeatRequest) -> str | None:
        """Return the member id that a joining member replaces (a static member that returned with another id), or None.

        Raise `UnknownMemberIdError` or `FencedInstanceIdError`.
        """
        if request.group_instance_id is None:
            return None
        holder = self.state.static_member_id(request.group_instance_id)
        if holder == request.member_id:
            return None
        if request.rejoins:
            raise UnknownMemberIdError if holder is None else FencedInstanceIdError
        return holder

    def _expect_sync(self, member_id: str) -> None:
        subscription = self.state.subscriptions[member_id]
        self._joins_awaited.discard(member_id)
        self.decisions += [
            CancelTimer(join_timer(member_id)),
            SetTimer(sync_timer(member_id), max(subscription.rebalance_timeout_ms, 0)),
        ]

    def _expect_join(self, member_id: str) -> None:
        if member_id not in self._joins_awaited:
            self._joins_awaited.add(member_id)
            delay_ms = max(self.state.subscriptions[member_id].rebalance_timeout_ms, 0)
            self.decisions.append(SetTimer(join_timer(member_id), delay_ms))

    # Staying

    def classic_sync(self, request: SyncRequest) -> SyncResult:
        """Return the assignment of a member that has joined. Raise as `classic_heartbeat`."""
        classic = self._checked_classic(request.member_id, request.generation_id, request.group_instance_id)
        name, metadata = classic.protocols[0]
        if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or request.protocol_name not in (None, name):
            raise InconsistentGroupProtocolError
        current = self.state.current(request.member_id)
        if self.state.epoch > current.epoch and current.state is not MemberState.UNREVOKED_PARTITIONS:
            self._expect_join(request.member_id)
            raise RebalanceInProgressError
        self.decisions.append(CancelTimer(sync_timer(request.member_id)))
        self._expect_heartbeat(request.member_id)
        return SyncResult(None, CONSUMER_PROTOCOL_TYPE, name, self._encoded(current.assigned, metadata))

    def classic_heartbeat(self, member_id: str, generation_id: int, group_instance_id: str | None) -> None:
        """Record a heartbeat.

        Raise `CoordinatorNotAvailableError`, `UnknownMemberIdError`, `FencedInstanceIdError`, `IllegalGenerationError`, or
        `RebalanceInProgressError` if the member has to rejoin for its next step.
        """
        self._checked_classic(member_id, generation_id, group_instance_id)
        self._expect_heartbeat(member_id)
        if self._has_to_rejoin(member_id):
            self._expect_join(member_id)
            raise RebalanceInProgressError

    def _checked_classic(self, member_id: str, generation_id: int, group_instance_id: str | None) -> ClassicMember:
        if self.dead:
            raise CoordinatorNotAvailableError
        if group_instance_id is not None:
            holder = self.state.static_member_id(group_instance_id)
            if holder is None:
                raise UnknownMemberIdError
            if holder != member_id:
                raise FencedInstanceIdError
        subscription = self.state.subscriptions.get(member_id)
        if subscription is None or subscription.classic is None:
            raise UnknownMemberIdError
        if generation_id != self.state.current(member_id).epoch:
            raise IllegalGenerationError
        return subscription.classic

    def _has_to_rejoin(self, member_id: str) -> bool:
        """Return whether there is a later epoch, something to revoke, or a partition of the target that became free."""
        state, current = self.state, self.state.current(member_id)
        if current.epoch < state.epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
            return True
        if current.state is MemberState.STABLE:
            return False
        lacking = state.targets.get(member_id, NOTHING) - current.assigned
        return all(state.owner(partition) is None for partition in lacking)

    def _encoded(self, assigned: Assignment, metadata: bytes) -> bytes:
        """Encode the partitions of existing topics in the member's version."""
        names = {topic.topic_id: name for name, topic in self._topics().items()}
        partitions = {names[topic_id]: indexes for topic_id, indexes in by_topic(assigned).items() if topic_id in names}
        return encode_assignment(read_version(metadata), partitions)

    # Leaving

    def classic_record(self, records: Iterable[ConsumerRecord], now_ms: int) -> GroupRecord | None:
        """Return the classic group that remains if `records` remove the last consumer protocol member, else None."""
        gone = {one.member_id for one in records if isinstance(one, SubscriptionRecord) and one.value is None}
        if not gone:
            return None
        come = {one.member_id for one in records if isinstance(one, SubscriptionRecord) and one.value is not None}
        subscriptions = self.state.subscriptions
        left = {member_id: one for member_id, one in subscriptions.items() if member_id not in gone}
        if (
            not left
            or come
            or all(subscriptions[member_id].classic is not None for member_id in gone if member_id in subscriptions)
            or any(one.classic is None for one in left.values())
            or self._config.group_consumer_migration_policy not in DOWNGRADES
            or len(left) > self._config.group_max_size
        ):
            return None
        name = self._common_protocol(left.values())
        members = tuple(self._member_record(member_id, one, name) for member_id, one in left.items())
        return GroupRecord(
            self.group_id, CONSUMER_PROTOCOL_TYPE, self.state.epoch, name, next(iter(left)), now_ms, members
        )

    @staticmethod
    def _common_protocol(subscriptions: Iterable[Subscription]) -> str:
        known = [[name for name, _ in one.classic.protocols] for one in subscriptions if one.classic is not None]
        return next((name for name in known[0] if all(name in names for names in known)), known[0][0])

    def _member_record(self, member_id: str, one: Subscription, protocol: str) -> MemberRecord:
        assert one.classic is not None
        metadata = dict(one.classic.protocols).get(protocol, b"")
        return MemberRecord(
            member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            one.rebalance_timeout_ms,
            one.classic.session_timeout_ms,
            metadata,
            self._encoded(self.state.current(member_id).assigned, one.classic.protocols[0][1]),
        )
