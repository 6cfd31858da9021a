"""Groups as the admin APIs show them: classic groups in DescribeGroups, both kinds in ListGroups."""

from __future__ import annotations

from kafkalake.broker.groups.classic import ClassicGroup
from kafkalake.broker.groups.classic_state import ClassicState
from kafkalake.broker.groups.consumer import ConsumerGroup
from kafkalake.broker.groups.requests import GroupDescription, GroupSummary, MemberDescription
from kafkalake.broker.groups.subscription import CONSUMER_PROTOCOL_TYPE
from kafkalake.made_array import made_from


def describe(group: ClassicGroup) -> GroupDescription:
    """Return a classic group's description. Metadata, assignments and protocol are shown only while the group is stable."""
    stable = group.state is ClassicState.STABLE
    protocol_name = (group.protocol_name or "") if stable else ""
    members = [
        (
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata(protocol_name) if stable else b"",
            member.assignment if stable else b"",
        )
        for member in group.roster
    ]
    return GroupDescription(
        group.group_id,
        group.state.value,
        group.roster.protocol_type or "",
        protocol_name,
        made_from(members, MemberDescription._make),
    )


def summary(group: ClassicGroup | ConsumerGroup) -> GroupSummary:
    """Return a group's entry in ListGroups."""
    if isinstance(group, ConsumerGroup):
        return GroupSummary(group.group_id, CONSUMER_PROTOCOL_TYPE, group.state_name, "consumer")
    return GroupSummary(group.group_id, group.roster.protocol_type or "", group.state.value, "classic")
