"""Formats groups for `kafkalake groups`: the columns of `kafka-consumer-groups`, and the same as JSON.

Functions `*_columns` return the column names and the rows. Missing values are dashes, as in Kafka's tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from kafkalake.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kafkalake.client.administration.groups import Group, ListedGroup, MemberDescription

Columns: TypeAlias = tuple[tuple[str, ...], list[tuple[object, ...]]]
"""Column names, and rows."""

OFFSET_COLUMNS = (
    "GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
    "CONSUMER-ID", "HOST", "CLIENT-ID",
)  # fmt: skip
OFFSET_KEYS = (
    "group", "topic", "partition", "leaderEpoch", "currentOffset", "logEndOffset", "lag",
    "consumerId", "host", "clientId",
)  # fmt: skip
_ONLY_VERBOSE = OFFSET_COLUMNS.index("LEADER-EPOCH")

NUMBERS = (
    "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "NEW-OFFSET",
    "#PARTITIONS", "CURRENT-EPOCH", "TARGET-EPOCH", "GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS",
)  # fmt: skip
"""Right-aligned columns."""


def list_columns(groups: Iterable[ListedGroup], *, state: bool, group_type: bool) -> Columns:
    """Return the columns of `kafka-consumer-groups --list --type --state`."""
    shown = ("GROUP", *(("TYPE",) if group_type else ()), *(("STATE",) if state else ()))
    values = [{"GROUP": each.group_id, "TYPE": each.group_type.capitalize(), "STATE": each.state} for each in groups]
    return shown, [tuple(each[column] for column in shown) for each in values]


def offset_columns(rows: Sequence[tuple[Any, ...]], *, verbose: bool) -> Columns:
    """Return the columns of `kafka-consumer-groups --describe`, from `rows` with all of `OFFSET_COLUMNS`."""

    def shown(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return _dashes(row if verbose else row[:_ONLY_VERBOSE] + row[_ONLY_VERBOSE + 1 :])

    return shown(OFFSET_COLUMNS), [shown(row) for row in rows]


def state_columns(group: Group, *, verbose: bool) -> Columns:
    """Return the columns of `kafka-consumer-groups --describe --state`."""
    node = group.coordinator
    row = (group.group_id, f"{node.host}:{node.port} ({node.broker_id})", group.assignor or None, group.state)
    epochs = (group.epoch, group.assignment_epoch) if verbose else ()
    names = ("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH") if verbose else ()
    columns = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", *names, "#MEMBERS")
    return columns, [_dashes((*row, *epochs, len(group.members)))]


def member_columns(group: Group, *, verbose: bool) -> Columns:
    """Return the columns of `kafka-consumer-groups --describe --members`, with assignments even if not `verbose`."""
    names: tuple[str, ...] = ("ASSIGNMENT",)
    if verbose:
        names = ("CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT")
    rows = []
    for member in group.members:
        row = (group.group_id, member.member_id, member.group_instance_id, member.host, member.client_id)
        now = assignment_text(member.partitions)
        target = None if member.target is None else assignment_text(member.target)
        more = (member.epoch, now, group.assignment_epoch, target) if verbose else (now,)
        rows.append(_dashes((*row, len(member.partitions), *more)))
    return ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", *names), rows


def state_as_json(group: Group) -> dict[str, object]:
    """Return a group without its members, with epochs if it uses the consumer protocol."""
    state: dict[str, object] = {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "protocolType": group.protocol_type,
        "assignor": group.assignor,
        "coordinator": {
            "id": group.coordinator.broker_id,
            "host": group.coordinator.host,
            "port": group.coordinator.port,
        },
    }
    if group.epoch is not None:
        state |= {"epoch": group.epoch, "assignmentEpoch": group.assignment_epoch}
    return state


def member_as_json(member: MemberDescription) -> dict[str, object]:
    """Return a member and its partitions, with epoch and target if its group uses the consumer protocol."""
    found: dict[str, object] = {
        "consumerId": member.member_id,
        "groupInstanceId": member.group_instance_id,
        "host": member.host,
        "clientId": member.client_id,
        "partitions": _as_json(member.partitions),
    }
    if member.target is not None:
        found |= {"epoch": member.epoch, "targetPartitions": _as_json(member.target)}
    return found


def assignment_text(partitions: Sequence[TopicPartition]) -> str:
    """Return partitions in the format of `kafka-consumer-groups`: `clicks:0,1; views:0`."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return "; ".join(f"{topic}:{','.join(map(str, indices))}" for topic, indices in topics.items()) or "-"


def _as_json(partitions: Sequence[TopicPartition]) -> list[dict[str, object]]:
    return [{"topic": topic, "partition": index} for topic, index in partitions]


def _dashes(values: Iterable[object]) -> tuple[object, ...]:
    return tuple("-" if value is None else value for value in values)
