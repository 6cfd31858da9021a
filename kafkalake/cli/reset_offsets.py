"""`kafkalake groups reset-offsets`: moves a group's committed offsets, as `kafka-consumer-groups --reset-offsets` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafkalake.cli.completion import complete_topic
from kafkalake.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, GroupName, Json, connect, with_options
from kafkalake.cli.output import Failure, UsageProblem, note, show_columns, write_json, write_line
from kafkalake.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kafkalake.client.administration.blocking import Admin


@dataclass(frozen=True, kw_only=True)
class ResetOptions:
    """The command line."""

    group: GroupName
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
    ] = None
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False
    to_current: Annotated[bool, typer.Option("--to-current", help="To where the group is.")] = False
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.", show_default=False)] = (
        None
    )
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            help="To the first record at or after this time: 2026-11-21T08:00:00Z, or 15m for 15 minutes ago.",
            show_default=False,
        ),
    ] = None
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration",
            metavar="DURATION",
            help="To the first record of this long ago: PT1H30M, P2D, or 15m.",
            show_default=False,
        ),
    ] = None
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            metavar="FILE",
            help="To the offsets in a file of lines TOPIC,PARTITION,OFFSET, as --export prints them.",
            show_default=False,
        ),
    ] = None
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", help="By so many records, forth or (negative) back.", show_default=False)
    ] = None
    execute: Annotated[bool, typer.Option("--execute", help="Do it.")] = False
    export: Annotated[bool, typer.Option("--export", help="Print lines TOPIC,PARTITION,OFFSET, for --from-file.")] = (
        False
    )
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done (the default).")] = False
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER
    json: Json = False


@with_options(ResetOptions)
def reset_offsets(options: ResetOptions) -> None:
    """Move a group's committed offsets. The group must have no members; offsets stay within what the partitions hold."""
    from kafkalake.cli.times import parse_duration, parse_time
    from kafkalake.client.administration.offset_reset import require_no_members

    places = [options.to_offset, options.to_datetime, options.by_duration, options.from_file, options.shift_by]
    if sum([options.to_earliest, options.to_latest, options.to_current, *(place is not None for place in places)]) != 1:
        raise UsageProblem(
            "give one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, --by-duration, "
            "--from-file, --shift-by"
        )
    if options.execute and options.dry_run:
        raise UsageProblem("--execute and --dry-run exclude each other")
    if options.export and options.json:
        raise UsageProblem("--export and --json exclude each other")
    timestamp_ms = None if options.to_datetime is None else parse_time(options.to_datetime, "--to-datetime")
    if options.by_duration is not None:
        timestamp_ms = parse_duration(options.by_duration, "--by-duration")
    wanted = None if options.from_file is None else read_offsets(options.from_file)
    with connect(options.bootstrap_server) as admin:
        require_no_members(admin, options.group, may_be_new=bool(options.topic))
        committed = {at: found.offset for at, found in admin.committed_offsets(options.group).items()}
        partitions = (
            sorted(wanted) if wanted is not None and not options.topic else _partitions(admin, options.topic, committed)
        )
        if wanted is not None:
            partitions = [each for each in partitions if each in wanted]
        reset = _targets(admin, partitions, committed, wanted, timestamp_ms, options)
        if options.execute:
            admin.alter_offsets(options.group, reset)
    rows = [(options.group, name, index, reset[name, index]) for name, index in sorted(reset)]
    if options.export:
        for _, name, index, offset in rows:
            write_line(f"{name},{index},{offset}")
        return
    if options.json:
        keys = ("group", "topic", "partition", "newOffset")
        write_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    if not options.execute:
        note("Nothing was changed: --execute does it.")
    show_columns(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), rows, right=("PARTITION", "NEW-OFFSET"))


def _partitions(
    admin: Admin, asked: Sequence[str] | None, committed: dict[TopicPartition, int]
) -> list[TopicPartition]:
    """Return the partitions that `--topic` names, or all with an offset. Raise `UsageProblem` or `Failure` if there are none."""
    if not asked:
        if not committed:
            raise Failure("the group has no committed offsets; --topic names the topics to give it some")
        return sorted(committed)

    def known(name: str) -> list[int]:
        return [info.partition for info in admin.describe_topic(name).partitions]

    found = named_partitions(asked, known)
    for name, index in found:
        if index not in (numbers := known(name)):
            raise Failure(f"topic '{name}' has no partition {index}; it has {len(numbers)}, numbered from 0")
    return found


def named_partitions(
    asked: Sequence[str], known: Callable[[str], Sequence[int]], parameter: str = "--topic"
) -> list[TopicPartition]:
    """Return the partitions that `TOPIC` (the `known` ones) and `TOPIC:0,1` name. Raise `UsageProblem` for an invalid name."""
    found: set[TopicPartition] = set()
    for text in asked:
        name, colon, numbers = text.partition(":")
        try:
            found |= {(name, index) for index in (map(int, numbers.split(",")) if colon else known(name))}
        except ValueError:
            raise UsageProblem(f"{parameter} takes TOPIC or TOPIC:0,1,2, not '{text}'") from None
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
    admin: Admin,
    partitions: Sequence[TopicPartition],
    committed: dict[TopicPartition, int],
    given: Mapping[TopicPartition, int] | None,
    timestamp_ms: int | None,
    options: ResetOptions,
) -> dict[TopicPartition, int]:
    """Return the new offset of each partition, clamped to [log start, log end] as in `kafka-consumer-groups`."""
    from kafkalake.client.administration.offset_reset import PartitionOffsets

    offsets = PartitionOffsets.of(admin, partitions)
    if options.to_earliest:
        return offsets.begins
    if options.to_latest:
        return offsets.ends
    if timestamp_ms is not None:
        return offsets.at_time(admin, timestamp_ms)
    if given is not None:
        wanted = {at: given[at] for at in partitions}
    elif options.to_offset is not None:
        wanted = dict.fromkeys(partitions, options.to_offset)
    else:
        missing = [at for at in partitions if at not in committed]
        if missing and options.shift_by is not None:
            raise Failure(f"partition {missing[0][0]}-{missing[0][1]} has no committed offset to shift")
        wanted = {at: committed.get(at, offsets.ends[at]) + (options.shift_by or 0) for at in partitions}
    return offsets.within(wanted)
