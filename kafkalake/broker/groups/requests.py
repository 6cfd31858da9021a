"""Requests to a group of the classic protocol and their results, free of wire versions.

The handler passes what the client supports (`member_id_required`, `can_skip_assignment`) and converts results to the version's
shape. Results with an `error` (a class; None: no error) carry nothing else of value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkalake.broker.coordination.decisions import ErrorClass

NO_GENERATION = -1
PROTOCOLS_MAX = 100
"""Maximum number of protocols of one member (the assignors it supports). No client has ten."""


class GroupProtocol(NamedTuple):
    """An assignor that a member supports, and the metadata for the group's leader if that assignor is chosen."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """JoinGroup. `member_id` is "" at first. `protocols` are in the member's order of preference.

    `member_id_required`: the client repeats its first join with the member id it was given (KIP-394, version 4 on).
    `can_skip_assignment`: the client understands that a leader need not assign again (KIP-814, version 9 on).
    """

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]
    group_instance_id: str | None = None
    member_id_required: bool = True
    can_skip_assignment: bool = True


class JoinedMember(NamedTuple):
    """A member as the leader receives it, with its metadata for the chosen protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinResult:
    """The result of a join. `members` is filled for the leader only."""

    error: ErrorClass | None
    member_id: str
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """SyncGroup. The leader sends the assignment of every member. Old clients send no protocol type and name (None)."""

    member_id: str
    generation_id: int
    assignments: Mapping[str, bytes] = field(default_factory=dict)
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The member's assignment, in the assignor's own encoding."""

    error: ErrorClass | None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class LeavingMember(NamedTuple):
    """A member that leaves, or is removed by its instance id alone (then `member_id` is "")."""

    member_id: str
    group_instance_id: str | None = None


class LeaveResult(NamedTuple):
    """The result of one leaving member."""

    member_id: str
    group_instance_id: str | None
    error: ErrorClass | None


class MemberDescription(NamedTuple):
    """A member as DescribeGroups shows it. Metadata and assignment are empty unless the group is stable."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A classic group as DescribeGroups shows it. `state` is Kafka's name of it."""

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: Sequence[MemberDescription]


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A group as ListGroups shows it. `group_type` is "classic" or "consumer"."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str
