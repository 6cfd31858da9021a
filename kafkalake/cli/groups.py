"""`kafkalake groups`: list, describe, members, delete, delete-offsets, reset-offsets; columns as in `kafka-consumer-groups`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    Json,
    connect,
)
from kafkalake.cli.output import Failure, UsageProblem, note, show_columns, write_json, write_line
from kafkalake.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kafkalake.client.cluster import Cluster
    from kafkalake.client.group_admin import Group

app = typer.Typer(no_args_is_help=True, help="Consumer groups: who reads what, how far, and how far behind.")

GroupName = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False, autocompletion=complete_group),
]

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
    from kafkalake.client import group_admin

    if bool(groups) == all_groups:
        raise UsageProblem("name the groups, or give --all-groups")
    with connect(bootstrap_server) as cluster:
        names = [each.group_id for each in group_admin.list_groups(cluster)] if all_groups else groups or []
        described = [group_admin.describe_group(cluster, name) for name in names]
        rows = [] if state else [_offset_rows(cluster, each) for each in described]
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
    groups: Annotated[list[str], _GROUP_NAMES],
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
    from kafkalake.client import group_admin

    with connect(bootstrap_server) as cluster:
        group_admin.describe_group(cluster, group)
        committed = group_admin.committed_offsets(cluster, group)
        partitions = _named_partitions(topic, lambda name: [number for at, number in committed if at == name])
        missing = [each for each in partitions if each not in committed]
        if missing or not partitions:
            name = f"{missing[0][0]}-{missing[0][1]}" if missing else " ".join(topic)
            raise Failure(f"group '{group}' has no committed offset of {name}")
        group_admin.delete_offsets(cluster, group, partitions)
    if json:
        write_json([{"group": group, "topic": name, "partition": index} for name, index in partitions])
        return
    show_columns(("TOPIC", "PARTITION", "STATUS"), [(*each, "Successful") for each in partitions], right=("PARTITION",))


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
            autocompletion=complete_topic,
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
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration",
            metavar="DURATION",
            help="To the first record of this long ago: PT1H30M, P2D, or 15m.",
            show_default=False,
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            metavar="FILE",
            help="To the offsets in a file of lines TOPIC,PARTITION,OFFSET, as --export prints them.",
            show_default=False,
        ),
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="By so many records, forth or (negative) back.", show_default=False)
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it.")] = False,
    export: Annotated[
        bool, typer.Option("--export", help="Print lines TOPIC,PARTITION,OFFSET, for --from-file.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done (the default).")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    json: Json = False,
) -> None:
    """Move a group's committed offsets. The group must have no members; offsets stay within what the partitions hold."""
    from kafkalake.cli.times import parse_duration, parse_time
    from kafkalake.client import group_admin
    from kafkalake.errors import GroupIdNotFoundError

    places = [to_offset, to_datetime, by_duration, from_file, shift_by]
    if sum([to_earliest, to_latest, to_current, *(place is not None for place in places)]) != 1:
        raise UsageProblem(
            "give one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration, "
            "--from-file, --shift-by"
        )
    if execute and dry_run:
        raise UsageProblem("--execute and --dry-run exclude each other")
    if export and json:
        raise UsageProblem("--export and --json exclude each other")
    timestamp_ms = None if to_datetime is None else parse_time(to_datetime, "--to-datetime")
    if by_duration is not None:
        timestamp_ms = parse_duration(by_duration, "--by-duration")
    wanted = None if from_file is None else read_offsets(from_file)
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
        partitions = sorted(wanted) if wanted is not None and not topic else _partitions(cluster, topic, committed)
        if wanted is not None:
            partitions = [each for each in partitions if each in wanted]
        reset = _targets(
            cluster,
            partitions,
            committed,
            wanted,
            earliest=to_earliest,
            latest=to_latest,
            offset=to_offset,
            timestamp_ms=timestamp_ms,
            shift_by=shift_by,
        )
        if execute:
            group_admin.commit_offsets(cluster, group, reset)
    rows = [(group, name, index, reset[name, index]) for name, index in sorted(reset)]
    if export:
        for _, name, index, offset in rows:
            write_line(f"{name},{index},{offset}")
        return
    if json:
        keys = ("group", "topic", "partition", "newOffset")
        write_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    if not execute:
        note("Nothing was changed: --execute does it.")
    show_columns(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, right=("PARTITION", "NEW-OFFSET"))


def _offset_rows(cluster: Cluster, group: Group) -> list[tuple[Any, ...]]:
    """Return a row of `OFFSET_COLUMNS` for each partition with an offset or a reader, with None for missing values."""
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


def _places(cluster: Cluster, partitions: Any, place: Callable[[Any], int]) -> dict[TopicPartition, int]:
    """Return an offset by place or time for each existing partition."""
    from kafkalake.client import admin
    from kafkalake.errors import UnknownTopicOrPartitionError

    found: dict[TopicPartition, int] = {}
    for topic in sorted({topic for topic, _ in partitions}):
        try:
            known = {info.partition for info in cluster.topic(topic).partitions}
        except UnknownTopicOrPartitionError:
            continue
        times = {index: place(admin) for name, index in partitions if name == topic and index in known}
        for index, listed in admin.list_offsets(cluster, topic, times).items():
            found[topic, index] = listed.offset
    return found


def _partitions(
    cluster: Cluster, asked: Sequence[str] | None, committed: dict[TopicPartition, int]
) -> list[TopicPartition]:
    """Return the partitions that `--topic` names, or all with an offset. Raise `UsageProblem` or `Failure` if there are none."""
    if not asked:
        if not committed:
            raise Failure("the group has no committed offsets; --topic names the topics to give it some")
        return sorted(committed)

    def known(name: str) -> list[int]:
        return [info.partition for info in cluster.topic(name).partitions]

    found = _named_partitions(asked, known)
    for name, index in found:
        if index not in (numbers := known(name)):
            raise Failure(f"topic '{name}' has no partition {index}; it has {len(numbers)}, numbered from 0")
    return found


def _named_partitions(asked: Sequence[str], known: Callable[[str], Sequence[int]]) -> list[TopicPartition]:
    """Return the partitions that `TOPIC` (the `known` ones) and `TOPIC:0,1` name. Raise `UsageProblem` for an invalid name."""
    found: set[TopicPartition] = set()
    for text in asked:
        name, colon, numbers = text.partition(":")
        try:
            found |= {(name, index) for index in (map(int, numbers.split(",")) if colon else known(name))}
        except ValueError:
            raise UsageProblem(f"--topic takes TOPIC or TOPIC:0,1,2, not '{text}'") from None
    return sorted(found)


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Return the offsets in a file of lines `TOPIC,PARTITION,OFFSET`. Raise `Failure` for an invalid or repeated line."""
    found: dict[TopicPartition, int] = {}
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        topic, _, rest = line.strip().partition(",")
        partition, _, offset = rest.partition(",")
        if not (topic and partition.strip().isdecimal() and offset.strip().isdecimal()):
            raise Failure(f"{path}: line {number} is not TOPIC,PARTITION,OFFSET: {line[:100]}")
        if (topic, int(partition)) in found:
            raise Failure(f"{path}: line {number} names {topic}-{int(partition)} a second time")
        found[topic, int(partition)] = int(offset)
    if not found:
        raise Failure(f"{path} has no line TOPIC,PARTITION,OFFSET")
    return found


def _targets(
    cluster: Cluster,
    partitions: Sequence[TopicPartition],
    committed: dict[TopicPartition, int],
    given: Mapping[TopicPartition, int] | None,
    *,
    earliest: bool,
    latest: bool,
    offset: int | None,
    timestamp_ms: int | None,
    shift_by: int | None,
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, clamped to [log start, log end] as in `kafka-consumer-groups`."""
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
    if given is not None:
        wanted = {at: given[at] for at in partitions}
    elif offset is not None:
        wanted = dict.fromkeys(partitions, offset)
    else:
        missing = [at for at in partitions if at not in committed]
        if missing and shift_by is not None:
            raise Failure(f"partition {missing[0][0]}-{missing[0][1]} has no committed offset to shift")
        wanted = {at: committed.get(at, ends[at]) + (shift_by or 0) for at in partitions}
    return {at: min(max(wanted[at], begins[at]), ends[at]) for at in partitions}
