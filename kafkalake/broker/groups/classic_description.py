"""A classic group as the admin APIs show it (DescribeGroups, ListGroups)."""

from __future__ import annotations

from kafkalake.broker.groups.classic import ClassicGroup
from kafkalake.broker.groups.classic_state import State
from kafkalake.broker.groups.requests import GroupDescription, GroupSummary, MemberDescription


def describe(group: ClassicGroup) -> GroupDescription:
    """Metadata, assignments and the chosen protocol are shown of a stable group only: otherwise they are not settled."""
    stable = group.state is State.STABLE
    protocol_name = (group.protocol_name or "") if stable else ""
    members = tuple(
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata(protocol_name) if stable else b"",
            member.assignment if stable else b"",
        )
        for member in group.roster
    )
    return GroupDescription(group.group_id, group.state.value, group.roster.protocol_type or "", protocol_name, members)


def summary(group: ClassicGroup) -> GroupSummary:
    """One line of a list of groups."""
    return GroupSummary(group.group_id, group.roster.protocol_type or "", group.state.value, "classic")
