"""Requests to a group of the consumer protocol (KIP-848) and their results, free of wire versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.groups.assignors import Assignment
from kafkalake.broker.groups.consumer_records import ClassicMember

LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
JOIN_EPOCH = 0


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """ConsumerGroupHeartbeat. None means not sent: unchanged since it was last sent.

    `member_epoch` 0 joins, -1 leaves, -2 leaves temporarily (static members). `owned` are the partitions the member has.
    `classic`: the request is a classic member's join, which `rejoins` with the id it has.
    """

    member_id: str
    member_epoch: int
    client_id: str = ""
    client_host: str = ""
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    classic: ClassicMember | None = None
    rejoins: bool = False


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The result. `assignment` None means unchanged. With an `error` only `message` is of value."""

    error: ErrorClass | None
    member_id: str = ""
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ConsumerMemberDescription:
    """A member as ConsumerGroupDescribe shows it."""

    member_id: str
    group_instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    regex: str | None
    assignment: Assignment
    target: Assignment
    is_classic: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A group as ConsumerGroupDescribe shows it. `state` is Kafka's name of it."""

    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: Sequence[ConsumerMemberDescription]
