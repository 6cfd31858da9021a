"""`kafkalake groups`: list, describe, members, delete, delete-offsets, reset-offsets; columns as in `kafka-consumer-groups`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kafkalake.cli.completion import complete_group, complete_topic
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
from kafkalake.cli.options import (
    DEFAULT_BOOTSTRAP_SERVER,
    BootstrapServer,
    GroupName,
    Json,
    connect,
)
from kafkalake.cli.output import Failure, UsageProblem, note, show_columns, write_json, write_line
from kafkalake.cli.reset_offsets import named_partitions, reset_offsets

if TYPE_CHECKING:
    from kafkalake.client.administration.blocking import Admin
    from kafkalake.client.administration.groups import Group

app = typer.Typer(no_args_is_help=True, help="Consumer groups: who reads what, how far, and how far behind.")

_GROUP_NAMES = typer.Argument(
    metavar="GROUP", help="Names of groups.", show_default=False, autocompletion=complete_group
)

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
    with connect(bootstrap_server) as admin:
        groups = admin.list_groups()
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
    groups: Annotated[list[str] | None, _GROUP_NAMES] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All groups of the cluster.")] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Show the group itself instead: coordinator, assignor, state, members.")
    ] = False,
    verbose: Verbose = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Show groups' offsets, their lag and who reads which partition."""

    if bool(groups) == all_groups:
        raise UsageProblem("name the groups, or give --all-groups")
    with connect(bootstrap_server) as admin:
        names = [each.group_id for each in admin.list_groups()] if all_groups else groups or []
        described = [admin.describe_group(name) for name in names]
        rows = [] if state else [_offset_rows(admin, each) for each in described]
    if state and json:
        states = [{**state_as_json(each), "members": len(each.members)} for each in described]
        write_json(states if all_groups or len(names) > 1 else states[0])
        return
    if json:
        write_json([dict(zip(OFFSET_KEYS, row, strict=True)) for of_group in rows for row in of_group])
        return
    for index, each in enumerate(described):
        if index:
            write_line()
        if state:
            show_columns(*state_columns(each, verbose=verbose), right=NUMBERS)
            continue
        if not each.members:
            note(f"Consumer group '{each.group_id}' has no active members.")
        show_columns(*offset_columns(rows[index], verbose=verbose), right=NUMBERS)


@app.command()
def members(
    group: GroupName,
    verbose: Verbose = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Show a group's members and the partitions that each of them reads."""
    with connect(bootstrap_server) as admin:
        described = admin.describe_group(group)
    if json:
        members = [member_as_json(member) for member in described.members]
        write_json({**state_as_json(described), "members": members})
        return
    if not described.members:
        note(f"Consumer group '{group}' has no active members.")
    show_columns(*member_columns(described, verbose=verbose), right=NUMBERS)


@app.command()
def delete(
    groups: Annotated[list[str], _GROUP_NAMES],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Delete groups that have no members, with their committed offsets."""
    from kafkalake.errors import KafkaError

    errors: dict[str, KafkaError] = {}
    with connect(bootstrap_server) as admin:
        for group in groups:
            try:
                admin.delete_group(group)
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


@app.command("delete-offsets", epilog="Example:  [cyan]kafkalake groups delete-offsets etl --topic clicks:0,1[/cyan]")
def delete_offsets(
    group: GroupName,
    topic: Annotated[
        list[str],
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:PARTITION,...]",
            autocompletion=complete_topic,
            help="Offsets of this topic, or of partitions of it. May be given several times.",
            show_default=False,
        ),
    ],
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Delete a group's committed offsets of topics that none of its members reads."""
    with connect(bootstrap_server) as admin:
        admin.describe_group(group)
        committed = admin.committed_offsets(group)
        partitions = named_partitions(topic, lambda name: [number for at, number in committed if at == name])
        missing = [each for each in partitions if each not in committed]
        if missing or not partitions:
            name = f"{missing[0][0]}-{missing[0][1]}" if missing else " ".join(topic)
            raise Failure(f"group '{group}' has no committed offset of {name}")
        admin.delete_offsets(group, partitions)
    if json:
        write_json([{"group": group, "topic": name, "partition": index} for name, index in partitions])
        return
    show_columns(("TOPIC", "PARTITION", "STATUS"), [(*each, "Successful") for each in partitions], right=("PARTITION",))


app.command(
    "reset-offsets",
    epilog="Example:  [cyan]kafkalake groups reset-offsets etl --topic clicks --to-earliest --execute[/cyan]",
)(reset_offsets)


def _offset_rows(admin: Admin, group: Group) -> list[tuple[object, ...]]:
    """Return a row of `OFFSET_COLUMNS` for each partition with an offset or a reader, with None for missing values."""
    from kafkalake.client.administration.offset_reset import places
    from kafkalake.client.administration.partition_offsets import LATEST

    committed = admin.committed_offsets(group.group_id)
    readers = {at: member for member in group.members for at in member.partitions}
    ends = places(admin, committed.keys() | readers.keys(), LATEST)
    rows: list[tuple[object, ...]] = []
    for topic, index in sorted(committed.keys() | readers.keys()):
        found, end, reader = committed.get((topic, index)), ends.get((topic, index)), readers.get((topic, index))
        offset = None if found is None else found.offset
        lag = None if offset is None or end is None else max(end - offset, 0)
        who = (None, None, None) if reader is None else (reader.member_id, reader.host, reader.client_id)
        epoch = None if found is None else found.leader_epoch
        rows.append((group.group_id, topic, index, epoch, offset, end, lag, *who))
    idle = [member for member in group.members if not member.partitions]
    none: tuple[object, ...] = (None,) * 6
    return rows + [(group.group_id, *none, member.member_id, member.host, member.client_id) for member in idle]
