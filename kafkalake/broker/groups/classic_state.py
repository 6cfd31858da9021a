"""States, timers, journal tickets and the journal record of a classic group."""

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
    """Return the name of a member's session timer, also used for a member id that was handed out but not used yet."""
    return ("session", member_id)


class ClassicState(Enum):
    """States of a classic group. The values are Kafka's names."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# State -> its successors. Every state may also become Dead, and a dead group whose deletion could not be written is Empty again.
NEXT: dict[ClassicState, frozenset[ClassicState]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.PREPARING_REBALANCE: frozenset({ClassicState.COMPLETING_REBALANCE, ClassicState.EMPTY}),
    ClassicState.COMPLETING_REBALANCE: frozenset({ClassicState.STABLE, ClassicState.PREPARING_REBALANCE}),
    ClassicState.STABLE: frozenset({ClassicState.PREPARING_REBALANCE}),
    ClassicState.DEAD: frozenset(),
}


@dataclass(frozen=True, slots=True)
class AssignmentWritten:
    """Ticket: the leader's assignments of a generation."""

    generation_id: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class StaticMemberWritten:
    """Ticket: a static member's new id, and the state to restore if it cannot be written."""

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
    """The wait for more members before an empty group's first generation: the current delay, and the time that may follow it."""

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
    """Return the journal record of a generation."""
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
    """Return the member in a journal record, which contains only the chosen one of its protocols."""
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
