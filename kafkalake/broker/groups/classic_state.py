"""States, timers and journal tickets of a classic group, and how it is written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kafkalake.broker.groups.records import GroupRecord, MemberRecord
from kafkalake.broker.groups.requests import GroupProtocol
from kafkalake.broker.groups.roster import Member, Roster

JOIN_TIMER = "join"
SYNC_TIMER = "sync"


def session_timer(member_id: str) -> tuple[str, str]:
    """The name of a member's session timer, and of the timer of an id that was given out but not used yet."""
    return ("session", member_id)


class State(Enum):
    """The values are Kafka's names of the states."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class AssignmentWritten:
    """Ticket: the leader's assignments of a generation."""

    generation_id: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticMemberWritten:
    """Ticket: a static member's new id, and what to go back to if it cannot be written."""

    member: Member
    waiter: object
    can_skip_assignment: bool
    old_member_id: str
    old_leader: str | None
    old_protocols: tuple[GroupProtocol, ...]
    old_session_timeout_ms: int
    old_rebalance_timeout_ms: int


@dataclass(slots=True)
class InitialWait:
    """The wait for more members before an empty group's first generation: this leg, and what may still follow it."""

    delay_ms: int
    remaining_ms: int
    extended_by_newcomer: bool = False


def group_record(
    group_id: str,
    roster: Roster,
    generation_id: int,
    protocol_name: str | None,
    state_since_ms: int,
    assignments: Mapping[str, bytes],
) -> GroupRecord:
    """A generation as it goes to the journal."""
    members = tuple(
        MemberRecord(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.metadata(protocol_name or ""),
            assignments.get(member.member_id, b""),
        )
        for member in roster
    )
    protocol_type = roster.protocol_type or ""
    return GroupRecord(group_id, protocol_type, generation_id, protocol_name, roster.leader, state_since_ms, members)


def member_of(record: MemberRecord, protocol_name: str) -> Member:
    """The member that the journal remembers; of its protocols it remembers the chosen one."""
    return Member(
        record.member_id,
        record.group_instance_id,
        record.client_id,
        record.client_host,
        record.session_timeout_ms,
        record.rebalance_timeout_ms,
        (GroupProtocol(protocol_name, record.subscription),),
        record.assignment,
    )
