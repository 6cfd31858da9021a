"""A member of a consumer group that reads one topic, by the classic protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).

The assignor is `range`, as in Kafka's clients: members get ranges of each topic's partitions in the order of their ids. A
group leader assigns the topics of all members' subscriptions, also topics that it does not read itself.

Uses no threads: call `is_due` and `heartbeat` in the loop that reads. A loop that stalls for longer than the session timeout
loses its partitions, as in Kafka. Source: Kafka protocol guide; the embedded protocol "consumer".
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from kafkalake.assignment import Subscriber, assign_range
from kafkalake.client.cluster import Cluster
from kafkalake.client.coordinators import GROUP, ask_coordinator, raise_error
from kafkalake.client.group_admin import commit_offsets
from kafkalake.client.requests import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, A, ClientApi, Q
from kafkalake.errors import (
    IllegalGenerationError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from kafkalake.topic_partition import by_topic
from kafkalake.wire.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafkalake.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 20_000
"""Less than the request timeout: JoinGroup is answered when all members have joined, or after this time."""
HEARTBEAT_INTERVAL_MS = 3_000
_JOIN_TIMEOUT_MS = 120_000
_PROTOCOL_TYPE, _ASSIGNOR = "consumer", "range"


class GroupMember:
    """This process as a member of `group_id`. `join` first and `leave` at the end. Methods raise the coordinator's errors."""

    def __init__(self, cluster: Cluster, group_id: str, topic: str) -> None:
        self.group_id = group_id
        self.topic = topic
        self._cluster = cluster
        self._member_id = ""
        self._generation = -1
        self._heartbeat_at = 0.0

    def join(self) -> list[int]:
        """Join or rejoin. Return the partitions of the topic assigned to this member until `heartbeat` returns False."""
        deadline = time.monotonic() + _JOIN_TIMEOUT_MS / 1000
        while True:
            try:
                assigned = self._join_once()
            except (MemberIdRequiredError, RebalanceInProgressError, IllegalGenerationError):
                if time.monotonic() >= deadline:
                    raise
            except UnknownMemberIdError:
                self._member_id = ""
                if time.monotonic() >= deadline:
                    raise
            else:
                self._heartbeat_at = time.monotonic()
                return assigned

    def is_due(self) -> bool:
        """Return whether a heartbeat is due."""
        return time.monotonic() - self._heartbeat_at >= HEARTBEAT_INTERVAL_MS / 1000

    def heartbeat(self) -> bool:
        """Return whether the partitions are still this member's. If not, commit and `join` again."""
        values = HeartbeatRequest(group_id=self.group_id, generation_id=self._generation, member_id=self._member_id)
        try:
            self._ask(HEARTBEAT, values)
        except (RebalanceInProgressError, IllegalGenerationError):
            return False
        except UnknownMemberIdError:
            self._member_id = ""
            return False
        self._heartbeat_at = time.monotonic()
        return True

    def commit(self, offsets: Mapping[int, int]) -> bool:
        """Commit the next offset of partitions. Return False if the group rebalances, since others may own the partitions now."""
        places = {(self.topic, partition): offset for partition, offset in offsets.items()}
        try:
            commit_offsets(self._cluster, self.group_id, places, generation=self._generation, member_id=self._member_id)
        except (IllegalGenerationError, UnknownMemberIdError, RebalanceInProgressError):
            return False
        return True

    def leave(self) -> None:
        """Leave the group, which frees the partitions at once."""
        if self._member_id:
            self._ask(LEAVE_GROUP, LeaveGroupRequest(group_id=self.group_id, member_id=self._member_id))
            self._member_id = ""

    def _join_once(self) -> list[int]:
        values = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout=SESSION_TIMEOUT_MS,
            rebalance_timeout=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=_ASSIGNOR, metadata=encode_subscription(Subscription((self.topic,))))
            ],
        )

        def check(answer: JoinGroupResponse) -> None:
            # Set also on MEMBER_ID_REQUIRED: the retry must carry the id assigned by the broker.
            self._member_id = answer.member_id or self._member_id
            raise_error(answer.error_code, f"group '{self.group_id}'")

        joined = ask_coordinator(self._cluster, GROUP, self.group_id, JOIN_GROUP, values, check)
        self._generation = joined.generation_id
        assignments = []
        if joined.leader == self._member_id:
            subscriptions = {
                member.member_id: decode_subscription(bytes(member.metadata)).topics for member in joined.members
            }
            assigned = assign_ranges(subscriptions, self._partition_counts(subscriptions.values()))
            assignments = [
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(partitions))
                for member_id, partitions in assigned.items()
            ]
        synced = self._ask(
            SYNC_GROUP,
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self._generation,
                member_id=self._member_id,
                assignments=assignments,
            ),
        )
        return [number for topic, number in decode_assignment(bytes(synced.assignment)) if topic == self.topic]

    def _ask(self, api: ClientApi[Q, A], message: Q) -> A:
        return ask_coordinator(self._cluster, GROUP, self.group_id, api, message)

    def _partition_counts(self, subscriptions: Iterable[Sequence[str]]) -> dict[str, int]:
        counts = {}
        for topic in sorted({topic for topics in subscriptions for topic in topics}):
            try:
                counts[topic] = len(self._cluster.topic(topic).partitions)
            except UnknownTopicOrPartitionError:
                continue
        return counts


def assign_ranges(subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, int]) -> dict[str, Assignment]:
    """Return each member's partitions: a range of every topic. The first members get one more if the count does not divide evenly.

    `partitions`: number of partitions by topic. Three partitions for a and b: a gets 0 and 1, b gets 2.
    """
    members = {member: Subscriber(frozenset(topics)) for member, topics in subscriptions.items()}
    return {member: by_topic(found) for member, found in assign_range(members, partitions).items()}
