"""`kafkalake groups`: list, describe, members, delete, reset-offsets; columns as in `kafka-consumer-groups`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafkalake.cli.group_columns import (
    NUMBERS,
    OFFSET_KEYS,
    list_columns,
    member_as_json,
    member_columns,
    offset_columns,
    state_as_json,
    state_columns,
)
from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, Json, connect
from kafkalake.cli.output import Failure, UsageProblem, note, show_columns, write_json, write_line

if TYPE_CHECKING:
    from kafkalake.client.cluster import Cluster
    from kafkalake.client.group_admin import Group, Partition

app = typer.Typer(no_args_is_help=True, help="Consumer groups: who reads what, how far, and how far behind.")

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False)]

Verbose = Annotated[bool, typer.Option("--verbose", help="Show more columns, epochs among them.")]


@app.command("list")
def list_groups(
    state: Annotated[bool, typer.Option("--state", help="Show the state of each group, not only its name.")] = False,
    group_type: Annotated[
        bool,
        typer.Option("--type", help="Show the type of each group: Classic, or Consumer (the protocol of KIP-848)."),
    ] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """List all groups, one a line."""
    from kafkalake.client import group_admin

    with connect(bootstrap_server) as cluster:
        groups = group_admin.list_groups(cluster)
    if json:
        write_json(
            [
                {
                    "group": each.group_id,
                    "type": each.group_type,
                    "protocolType": each.protocol_type,
                    "state": each.state,
                }
                for each in groups
            ]
        )
    elif state or group_type:
        show_columns(*list_columns(groups, state=state, group_type=group_type))
    else:
        for each in groups:
            write_line(each.group_id)


@app.command(epilog="Example:  [cyan]kafkalake groups describe etl --json | jq '[.[].lag] | add'[/cyan]")
def describe(
    group: GroupName,
    state: Annotated[
        bool, typer.Option("--state", help="Show the group itself instead: coordinator, assignor, state, members.")
    ] = False,
    verbose: Verbose = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Show a group's offsets, its lag and who reads which partition."""
    from kafkalake.client import group_admin

    with connect(bootstrap_server) as cluster:
        described = group_admin.describe_group(cluster, group)
        rows = [] if state else _offset_rows(cluster, described)
    if state and json:
        write_json({**state_as_json(described), "members": len(described.members)})
        return
    if state:
        show_columns(*state_columns(described, verbose=verbose), right=NUMBERS)
        return
    if json:
        write_json([dict(zip(OFFSET_KEYS, row, strict=True)) for row in rows])
        return
    if not described.members:
        note(f"Consumer group '{group}' has no active members.")
    show_columns(*offset_columns(rows, verbose=verbose), right=NUMBERS)


@app.command()
def members(
    group: GroupName,
    verbose: Verbose = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Show a group's members and the partitions that each of them reads."""
    from kafkalake.client import group_admin

    with connect(bootstrap_server) as cluster:
        described = group_admin.describe_group(cluster, group)
    if json:
        members = [member_as_json(member) for member in described.members]
        write_json({**state_as_json(described), "members": members})
        return
    if not described.members:
        note(f"Consumer group '{group}' has no active members.")
    show_columns(*member_columns(described, verbose=verbose), right=NUMBERS)


@app.command()
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Names of groups.", show_default=False)],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Delete groups that have no members, with their committed offsets."""
    from kafkalake.client import group_admin
    from kafkalake.errors import KafkaError

    errors: dict[str, KafkaError] = {}
    with connect(bootstrap_server) as cluster:
        for group in groups:
            try:
                group_admin.delete_group(cluster, group)
            except KafkaError as error:
                errors[group] = error
    deleted = [group for group in groups if group not in errors]
    if json:
        write_json({"deleted": deleted, "errors": {group: str(error) for group, error in errors.items()}})
    else:
        for group in deleted:
            write_line(f"Deleted group {group}.")
    if errors:
        raise next(iter(errors.values()))


@app.command(
    "reset-offsets",
    epilog="Example:  [cyan]kafkalake groups reset-offsets etl --topic clicks --to-earliest --execute[/cyan]",
)
def reset_offsets(
    group: GroupName,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITION,...]",
            help="Only these topics, or partitions of them (default: all that the group has offsets of).",
            show_default=False,
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="To where the group is.")] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="To this offset.", show_default=False)
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            help="To the first record at or after this time: 2026-11-21T08:00:00Z, or 15m for 15 minutes ago.",
            show_default=False,
        ),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="By so many records, forth or (negative) back.", show_default=False)
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done (the default).")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Move a group's committed offsets. The group must have no members; offsets stay within what the partitions hold."""
    from kafkalake.cli.times import parse_time
    from kafkalake.client import group_admin
    from kafkalake.errors import GroupIdNotFoundError

    given = [to_earliest, to_latest, to_current, to_offset is not None, to_datetime is not None, shift_by is not None]
    if sum(given) != 1:
        raise UsageProblem(
            "give one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --shift-by"
        )
    if execute and dry_run:
        raise UsageProblem("--execute and --dry-run exclude each other")
    timestamp_ms = None if to_datetime is None else parse_time(to_datetime, "--to-datetime")
    with connect(bootstrap_server) as cluster:
        try:
            described = group_admin.describe_group(cluster, group)
        except GroupIdNotFoundError:
            if not topic:
                raise
        else:
            if described.members:
                raise Failure(
                    f"group '{group}' has members: offsets are reset while it has none (its state is {described.state})"
                )
        committed = {at: found.offset for at, found in group_admin.committed_offsets(cluster, group).items()}
        partitions = _partitions(cluster, topic, committed)
        reset = _targets(
            cluster,
            partitions,
            committed,
            earliest=to_earliest,
            latest=to_latest,
            offset=to_offset,
            timestamp_ms=timestamp_ms,
            shift_by=shift_by,
        )
        if execute:
            group_admin.commit_offsets(cluster, group, reset)
    rows = [(group, name, index, reset[name, index]) for name, index in sorted(reset)]
    if json:
        keys = ("group", "topic", "partition", "newOffset")
        write_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    if not execute:
        note("Nothing was changed: --execute does it.")
    show_columns(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, right=("PARTITION", "NEW-OFFSET"))


def _offset_rows(cluster: Cluster, group: Group) -> list[tuple[Any, ...]]:
    """One row a partition with an offset or a reader, as `OFFSET_COLUMNS`; None for what there is not."""
    from kafkalake.client import group_admin

    committed = group_admin.committed_offsets(cluster, group.group_id)
    readers = {at: member for member in group.members for at in member.partitions}
    ends = _places(cluster, committed.keys() | readers.keys(), lambda admin: admin.LATEST)
    rows: list[tuple[Any, ...]] = []
    for topic, index in sorted(committed.keys() | readers.keys()):
        found, end, reader = committed.get((topic, index)), ends.get((topic, index)), readers.get((topic, index))
        offset = None if found is None else found.offset
        lag = None if offset is None or end is None else max(end - offset, 0)
        who = (None, None, None) if reader is None else (reader.member_id, reader.host, reader.client_id)
        epoch = None if found is None or found.leader_epoch < 0 else found.leader_epoch
        rows.append((group.group_id, topic, index, epoch, offset, end, lag, *who))
    idle = [member for member in group.members if not member.partitions]
    none: tuple[Any, ...] = (None,) * 6
    return rows + [(group.group_id, *none, member.member_id, member.host, member.client_id) for member in idle]


def _places(cluster: Cluster, partitions: Any, place: Callable[[Any], int]) -> dict[Partition, int]:
    """An offset by place or time of each partition that is there."""
    from kafkalake.client import admin
    from kafkalake.errors import UnknownTopicOrPartitionError

    found: dict[Partition, int] = {}
    for topic in sorted({topic for topic, _ in partitions}):
        try:
            known = {info.partition for info in cluster.topic(topic).partitions}
        except UnknownTopicOrPartitionError:
            continue
        times = {index: place(admin) for name, index in partitions if name == topic and index in known}
        for index, listed in admin.list_offsets(cluster, topic, times).items():
            found[topic, index] = listed.offset
    return found


def _partitions(cluster: Cluster, asked: Sequence[str] | None, committed: dict[Partition, int]) -> list[Partition]:
    """The partitions that `--topic` names, or all that have an offset. Raises `UsageProblem`, `Failure`."""
    if not asked:
        if not committed:
            raise Failure("the group has no committed offsets; --topic names the topics to give it some")
        return sorted(committed)
    found: list[Partition] = []
    for text in asked:
        name, colon, numbers = text.partition(":")
        known = [info.partition for info in cluster.topic(name).partitions]
        wanted = known
        if colon:
            try:
                wanted = [int(number) for number in numbers.split(",")]
            except ValueError:
                raise UsageProblem(f"--topic takes TOPIC or TOPIC:0,1,2, not '{text}'") from None
        for index in wanted:
            if index not in known:
                raise Failure(f"topic '{name}' has no partition {index}; it has {len(known)}, numbered from 0")
        found += [(name, index) for index in wanted]
    return sorted(set(found))


def _targets(
    cluster: Cluster,
    partitions: Sequence[Partition],
    committed: dict[Partition, int],
    *,
    earliest: bool,
    latest: bool,
    offset: int | None,
    timestamp_ms: int | None,
    shift_by: int | None,
) -> dict[Partition, int]:
    """Where each partition goes; within [log start, log end], as `kafka-consumer-groups` does it."""
    begins = _places(cluster, partitions, lambda admin: admin.EARLIEST)
    ends = _places(cluster, partitions, lambda admin: admin.LATEST)
    gone = [at for at in partitions if at not in ends]
    if gone:
        raise Failure(f"partition {gone[0][0]}-{gone[0][1]} does not exist any more")
    if earliest:
        return begins
    if latest:
        return ends
    if timestamp_ms is not None:
        moment = timestamp_ms
        found = _places(cluster, partitions, lambda admin: moment)
        return {at: found[at] if found[at] >= 0 else ends[at] for at in partitions}
    if offset is not None:
        wanted = dict.fromkeys(partitions, offset)
    else:
        missing = [at for at in partitions if at not in committed]
        if missing and shift_by is not None:
            raise Failure(f"partition {missing[0][0]}-{missing[0][1]} has no committed offset to shift")
        wanted = {at: committed.get(at, ends[at]) + (shift_by or 0) for at in partitions}
    return {at: min(max(wanted[at], begins[at]), ends[at]) for at in partitions}
