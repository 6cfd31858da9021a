"""A member of a group of the consumer protocol (KIP-848): one request, ConsumerGroupHeartbeat, as a pure state machine.

The coordinator answers a heartbeat with the member's target assignment. The member gives up what it has beyond it, takes the
rest, and says so in its next heartbeat, at once. A field is sent when it has changed, and all of them when the member joins or a
response was lost. A member that is fenced has lost its partitions and joins again with epoch 0.

The names and ids of its topics a member keeps: metadata that lacks one for a while takes nothing from it, and does not have it say
that it has given partitions up.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol
from uuid import UUID

from kafkalake.client.consuming.membership import COORDINATOR_MOVED, Change, GroupRequest, Identity
from kafkalake.client.consuming.settings import ConsumerSettings
from kafkalake.client.consuming.subscriptions import Subscriptions
from kafkalake.client.requests import CONSUMER_GROUP_HEARTBEAT, error_name
from kafkalake.errors import (
    FencedMemberEpochError,
    KafkaError,
    KafkaLakeError,
    UnknownMemberIdError,
    UnsupportedVersionError,
    as_value,
    error_for_code,
)
from kafkalake.topic_partition import TopicPartition, by_topic
from kafkalake.wire.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kafkalake.wire.messages.message import Message

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2


class TopicIds(Protocol):
    """The topics of the cluster by id and by name."""

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, None if it is not known yet."""
        ...

    def topic_id(self, name: str) -> UUID | None:
        """Return the id of a topic, None if it is not known."""
        ...

    def request_update(self) -> None:
        """Have the metadata refreshed."""
        ...


class ConsumerMembership:
    """See the module and `Membership`."""

    def __init__(
        self, settings: ConsumerSettings, member_id: str, subscriptions: Subscriptions, topic_ids: TopicIds
    ) -> None:
        """member_id: a new id, which this member has for its whole life."""
        self._settings = settings
        self._member_id = member_id
        self._subscriptions = subscriptions
        self._topic_ids = topic_ids
        self._epoch = JOIN_EPOCH
        self._interval_ms = settings.heartbeat_interval_ms
        self._target: frozenset[tuple[UUID, int]] | None = None
        self._names: dict[UUID, str] = {}
        self._change: Change | None = None
        self._error: KafkaError | None = None
        self._sent: ConsumerGroupHeartbeatRequest | None = None
        self._asked: GroupRequest | None = None
        self._must_beat = True
        self._is_away = True
        self._is_fenced = False
        self._beaten_ms = 0
        self._retry_at_ms = 0
        self._polled_ms: int | None = None

    @property
    def identity(self) -> Identity:
        """The member's id and epoch."""
        return Identity(self._member_id, self._epoch, self._settings.group_instance_id)

    @property
    def is_stable(self) -> bool:
        """Return whether the member has its whole target assignment."""
        return self._epoch > JOIN_EPOCH and self._change is None and not self._is_fenced and self._is_reconciled()

    @property
    def has_place(self) -> bool:
        """See `Membership`."""
        return self._epoch > JOIN_EPOCH and self._error is None

    @property
    def change(self) -> Change | None:
        """See `Membership`."""
        return self._change

    @property
    def topics_needed(self) -> frozenset[str]:
        """None: the coordinator assigns topics that are subscribed to."""
        return frozenset()

    # Events

    def poll(self, now_ms: int) -> None:
        """See `Membership`. Join, or find what the target assignment changes."""
        self._polled_ms = now_ms
        if self._error is not None:
            raise self._error
        if self._change is not None:
            return
        if self._is_fenced:
            self._is_fenced = False
            owned = frozenset(self._subscriptions.partitions)
            if owned:
                self._change = Change(frozenset(), lost=owned)
                return
        if self._is_away:
            self._is_away, self._must_beat = False, True
        self._reconcile()

    def subscription_changed(self) -> None:
        """Send the topics at once."""
        self._must_beat = True

    def metadata_changed(self) -> None:
        """See `Membership`. The coordinator notices by itself."""

    def changed(self, now_ms: int) -> None:
        """See `Membership`. Say so at once."""
        self._change = None
        self._must_beat = True

    def requests(self, now_ms: int) -> list[GroupRequest]:
        """See `Membership`."""
        if self._error is not None or self._asked is not None or self._is_away or self._is_fenced:
            return []
        if self._polled_ms is not None and now_ms - self._polled_ms >= self._settings.max_poll_interval_ms:
            request = self._leave_request()
            self._fence()
            return [request]
        if now_ms < self._retry_at_ms or (not self._must_beat and now_ms < self._beaten_ms + self._interval_ms):
            return []
        self._must_beat, self._beaten_ms = False, now_ms
        self._asked = GroupRequest(CONSUMER_GROUP_HEARTBEAT, self._heartbeat())
        return [self._asked]

    def take(self, request: GroupRequest, response: Message, now_ms: int) -> bool:
        """See `Membership`."""
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if request is not self._asked:  # one of a membership that was left
            return True
        self._asked = None
        if response.error_code:
            return self._refused(response, now_ms)
        if self._is_away or self._is_fenced:
            return True
        self._epoch = response.member_epoch
        if response.heartbeat_interval > 0:
            self._interval_ms = response.heartbeat_interval
        if response.assignment is not None:
            self._target = frozenset(
                (topic.topic_id, number)
                for topic in response.assignment.topic_partitions
                if topic.topic_id is not None
                for number in topic.partitions
            )
        return True

    def failed(self, request: GroupRequest, error: KafkaLakeError, now_ms: int) -> None:
        """See `Membership`. The next heartbeat has all fields."""
        if request is self._asked:
            self._asked = None
            self._repeat(now_ms)
            if isinstance(error, UnsupportedVersionError):  # a broker without this protocol
                self._error = as_value(error)

    def commit_refused(self, code: int) -> None:
        """See `Membership`."""
        if code in (UnknownMemberIdError.code, FencedMemberEpochError.code):
            self._fence()

    def leave(self, now_ms: int) -> GroupRequest | None:
        """See `Membership`. A static member says that it may come back."""
        is_known = self._epoch > JOIN_EPOCH or self._asked is not None  # it may have joined
        was_member = is_known and not self._is_away
        request = self._leave_request() if was_member else None
        self._fence()
        self._is_fenced, self._asked, self._error = False, None, None
        return request

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """See `Membership`."""
        if self._is_away or self._asked is not None or self._is_fenced or self._error is not None:
            return None
        due_ms = now_ms if self._must_beat else self._beaten_ms + self._interval_ms
        return max(due_ms, self._retry_at_ms)

    def is_silent(self, now_ms: int) -> bool:
        """Return False: a lost response is noticed by its own timeout."""
        return False

    def begin_session(self, now_ms: int) -> None:
        """Do nothing."""

    # Reconciliation

    def _reconcile(self) -> None:
        if self._target is None or self._epoch <= JOIN_EPOCH:
            return
        owned = frozenset(self._subscriptions.partitions)
        self._keep_names({topic for topic, _ in self._target}, {name for name, _ in owned})
        target = frozenset((self._names[topic], number) for topic, number in self._target if topic in self._names)
        if len(target) < len(self._target):
            self._topic_ids.request_update()
        if target != owned:
            self._change = Change(target, added=target - owned, revoked=owned - target, is_complete=True)

    def _keep_names(self, target: Collection[UUID], owned: Collection[str]) -> None:
        kept = {topic: name for topic, name in self._names.items() if topic in target or name in owned}
        found = {topic: name for topic in target if (name := self._topic_ids.topic_name(topic)) is not None}
        self._names = kept | found

    def _is_reconciled(self) -> bool:
        wanted = self._target or frozenset()
        return len(wanted) == len(self._subscriptions.partitions) and all(
            (self._names.get(topic), number) in self._subscriptions.partitions for topic, number in wanted
        )

    # Requests

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat, without the fields that were the same in the last one."""
        settings, before = self._settings, self._sent
        whole = ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id or "",
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=settings.group_instance_id,
            rack_id=settings.client_rack or None,
            rebalance_timeout=settings.max_poll_interval_ms,
            subscribed_topic_names=sorted(self._subscriptions.topics),
            server_assignor=settings.group_remote_assignor,
            topic_partitions=self._owned(self._subscriptions.partitions if self._epoch > JOIN_EPOCH else ()),
        )
        self._sent = whole
        if before is None or self._epoch == JOIN_EPOCH:
            return whole
        names, partitions = whole.subscribed_topic_names, whole.topic_partitions
        return ConsumerGroupHeartbeatRequest(
            group_id=whole.group_id,
            member_id=whole.member_id,
            member_epoch=whole.member_epoch,
            instance_id=whole.instance_id,
            subscribed_topic_names=None if names == before.subscribed_topic_names else names,
            topic_partitions=None if partitions == before.topic_partitions else partitions,
        )

    def _owned(self, partitions: Collection[TopicPartition]) -> list[TopicPartitions]:
        kept = {name: topic for topic, name in self._names.items()}
        return [
            TopicPartitions(topic_id=topic_id, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
            if (topic_id := self._topic_ids.topic_id(topic) or kept.get(topic)) is not None
        ]

    def _leave_request(self) -> GroupRequest:
        instance = self._settings.group_instance_id
        message = ConsumerGroupHeartbeatRequest(
            group_id=self._settings.group_id or "",
            member_id=self._member_id,
            member_epoch=LEAVE_EPOCH if instance is None else LEAVE_STATIC_EPOCH,
            instance_id=instance,
            topic_partitions=None,
        )
        return GroupRequest(CONSUMER_GROUP_HEARTBEAT, message)

    # Errors

    def _refused(self, response: ConsumerGroupHeartbeatResponse, now_ms: int) -> bool:
        code = response.error_code
        if code in COORDINATOR_MOVED:
            self._repeat(now_ms)
            return False
        if code in (UnknownMemberIdError.code, FencedMemberEpochError.code):
            self._fence()
            return True
        reason = response.error_message or error_name(code)
        error = error_for_code(code, f"group '{self._settings.group_id}': {reason}")
        if error.retriable:
            self._repeat(now_ms)
        else:
            self._error = error
        return True

    def _repeat(self, now_ms: int) -> None:
        self._sent, self._must_beat = None, True
        self._retry_at_ms = now_ms + self._settings.retry_backoff_ms

    def _fence(self) -> None:
        """Join anew when the application polls. Its partitions are lost, which it hears first."""
        self._epoch, self._target, self._sent = JOIN_EPOCH, None, None
        self._change = None
        self._is_away = self._is_fenced = True
