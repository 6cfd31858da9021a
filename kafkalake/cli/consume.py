"""`kafkalake consume`: prints a topic's records to stdout."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kafkalake.cli.consume_options import Commit, ConsumeOptions, OutputFormat
from kafkalake.cli.options import connect, with_options
from kafkalake.cli.output import OutputClosed, UsageProblem, note, write

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalake.cli.record_fields import RecordFields
    from kafkalake.cli.record_output import Formatter
    from kafkalake.client.cluster import Cluster
    from kafkalake.client.fetcher import Fetcher, OutOfRange

EXAMPLES = """Examples

  [dim]# what arrives from now on; Ctrl-C ends[/dim]
  [cyan]kafkalake consume clicks[/cyan]

  [dim]# the first three records, with their keys[/dim]
  [cyan]kafkalake consume clicks --from-beginning --max-records 3 --print-key[/cyan]

  [dim]# the last quarter of an hour, as JSON[/dim]
  [cyan]kafkalake consume clicks --from-time 15m --exit-at-end --json | jq .value[/cyan]

  [dim]# as a member of a group, which goes on where it was[/dim]
  [cyan]kafkalake consume clicks --group etl[/cyan]

  [dim]# one partition, from an offset on; -10 is ten before the end[/dim]
  [cyan]kafkalake consume clicks --partition 2 --offset 1500[/cyan]"""

POLL_MS = 500


@with_options(ConsumeOptions)
def consume(options: ConsumeOptions) -> None:
    """Print records of a topic: new ones, or from an offset, a time, the beginning."""
    from kafkalake.cli import record_output

    if sum([options.from_beginning, options.offset is not None, options.from_time is not None]) > 1:
        raise UsageProblem("--from-beginning, --offset and --from-time exclude one another")
    if options.group is not None and (options.partition or options.offset is not None or options.from_time is not None):
        raise UsageProblem(
            "--group reads what the group assigns, from where it is: no --partition, --offset, --from-time"
        )
    if options.group is None and options.commit is not Commit.AUTO:
        raise UsageProblem("--commit is for --group")
    shown = record_output.TextProperties(
        print_key=options.print_key,
        print_timestamp=options.print_timestamp,
        print_partition=options.print_partition,
        print_offset=options.print_offset,
        print_headers=options.print_headers,
    )
    for entry in options.properties or ():
        shown = shown.with_property(entry)
    with connect(options.bootstrap_server) as cluster:
        fields = _fields(cluster, options.topic)
        source = _source(cluster, options)
        formatters: dict[OutputFormat, Formatter] = {
            OutputFormat.TEXT: record_output.text_formatter(shown, fields),
            OutputFormat.VALUE: record_output.text_formatter(record_output.TextProperties(), fields),
            OutputFormat.JSON: record_output.json_formatter(options.topic, fields),
            OutputFormat.CSV: record_output.csv_formatter(options.topic, fields),
        }
        formatter = formatters[OutputFormat.JSON if options.json else options.format]
        try:
            _print_all(source, formatter, options.max_records, options.timeout, options.quiet, options.raw)
        finally:
            source.close()


def _fields(cluster: Cluster, topic: str) -> RecordFields | None:
    """Return the fields of the topic's values, None if it has no schema, or its broker tells of none."""
    from kafkalake.cli.options import settings_of_topic
    from kafkalake.config.topic_values import topic_values
    from kafkalake.errors import ConfigurationError

    try:
        values = topic_values(settings_of_topic(cluster, topic))
    except ConfigurationError:  # another release's
        return None
    if not values.fields:
        return None
    from kafkalake.cli.record_fields import RecordFields

    return RecordFields(values)


def _source(cluster: Cluster, options: ConsumeOptions) -> Source:
    """Return what is to be printed: a group's partitions, or those that the command line names, from its positions on."""
    topic, read_committed = options.topic, not options.read_uncommitted
    if options.group is not None:
        from kafkalake.cli.consume_group import GroupPositions

        commits = options.commit is Commit.AUTO
        return GroupPositions(
            cluster, topic, options.group, options.from_beginning, commits, read_committed, options.exit_at_end
        )
    partitions = _partitions(cluster, topic, options.partition)
    place = "earliest" if options.from_beginning else options.offset if options.offset is not None else "latest"
    positions = start_positions(cluster, topic, partitions, place, options.from_time, read_committed)
    fixed = options.offset is not None and options.offset.lstrip("-").isdecimal()
    fetcher = new_fetcher(cluster, topic, positions, read_committed, "error" if fixed else "earliest")
    return FixedPositions(
        fetcher, end_offsets(cluster, topic, partitions, read_committed) if options.exit_at_end else None
    )


def new_fetcher(
    cluster: Cluster, topic: str, positions: dict[int, int], read_committed: bool, out_of_range: OutOfRange
) -> Fetcher:
    """Return a fetcher of these partitions, each from its offset."""
    from kafkalake.client.fetcher import Fetcher

    return Fetcher(cluster, topic, positions, read_committed=read_committed, out_of_range=out_of_range)


class Source(Protocol):
    """A source of records to print."""

    @property
    def fetcher(self) -> Fetcher: ...
    @property
    def ends(self) -> dict[int, int] | None:
        """The end offset of each partition, or None to continue forever."""
        ...

    def printed(self, partition: int, next_offset: int) -> None:
        """Note that the records before `next_offset` have been printed."""
        ...

    def turn(self) -> None:
        """Do the work due between two polls."""
        ...

    def close(self) -> None: ...


class FixedPositions:
    """Partitions and positions given on the command line."""

    def __init__(self, fetcher: Fetcher, ends: dict[int, int] | None) -> None:
        self.fetcher = fetcher
        self.ends = ends

    def printed(self, partition: int, next_offset: int) -> None:
        pass

    def turn(self) -> None:
        pass

    def close(self) -> None:
        pass


def _partitions(cluster: Cluster, topic: str, wanted: Sequence[int] | None) -> list[int]:
    from kafkalake.errors import UnknownTopicOrPartitionError

    known = [info.partition for info in cluster.topic(topic, wait_ms=300).partitions]
    for number in wanted or ():
        if number not in known:
            raise UnknownTopicOrPartitionError(
                f"topic '{topic}' has no partition {number}; it has {len(known)}, numbered from 0"
            )
    return sorted(set(wanted)) if wanted else known


def start_positions(
    cluster: Cluster, topic: str, partitions: Sequence[int], place: str, from_time: str | None, read_committed: bool
) -> dict[int, int]:
    """Return the start offset of each partition. Raise `UsageProblem` for an invalid offset."""
    from kafkalake.cli.times import parse_time
    from kafkalake.client import admin

    def listed(timestamp: int) -> dict[int, int]:
        found = admin.list_offsets(cluster, topic, dict.fromkeys(partitions, timestamp), read_committed=read_committed)
        return {number: entry.offset for number, entry in found.items()}

    if from_time is not None:
        found = listed(parse_time(from_time, "--from-time"))
        if -1 in found.values():  # no record is that new: start at the end
            ends = listed(admin.LATEST)
            found = {number: ends[number] if offset < 0 else offset for number, offset in found.items()}
        return found
    if place in ("earliest", "latest"):
        return listed(admin.EARLIEST if place == "earliest" else admin.LATEST)
    if not place.lstrip("-").isdecimal():
        raise UsageProblem(f"--offset takes a number, earliest or latest, not '{place}'")
    if place.startswith("-"):
        firsts, ends = listed(admin.EARLIEST), listed(admin.LATEST)
        return {number: max(firsts[number], ends[number] + int(place)) for number in partitions}
    return dict.fromkeys(partitions, int(place))


def end_offsets(cluster: Cluster, topic: str, partitions: Sequence[int], read_committed: bool) -> dict[int, int]:
    """Return the current end offset of each partition."""
    from kafkalake.client import admin

    found = admin.list_offsets(cluster, topic, dict.fromkeys(partitions, admin.LATEST), read_committed=read_committed)
    return {number: entry.offset for number, entry in found.items()}


def _print_all(
    source: Source,
    formatter: Formatter,
    max_records: int | None,
    timeout_s: float | None,
    quiet: bool,
    raw: bool,
) -> None:
    """Poll and print until a limit is reached, on Ctrl-C, or when stdout is closed."""
    printed = 0
    newest = time.monotonic()
    try:
        while max_records is None or printed < max_records:
            source.turn()
            fetcher, ends = source.fetcher, source.ends
            wanted = list(fetcher.positions)
            if ends is not None:
                wanted = [number for number in wanted if fetcher.positions[number] < ends[number]]
                if not wanted:
                    break
            left_ms = POLL_MS
            if timeout_s is not None:
                left_ms = round((newest + timeout_s - time.monotonic()) * 1000)
                if left_ms <= 0:
                    break
            if not wanted:  # a member without a partition
                time.sleep(left_ms / 1000)
                continue
            fetched = fetcher.poll(wanted, max_wait_ms=max(0, min(POLL_MS, left_ms)))
            for part in fetched:
                records = part.records
                if ends is not None:
                    records = _before(records, ends[part.partition])
                if max_records is not None:
                    records = records.slice(0, max_records - printed)
                if records.num_rows:
                    printed += records.num_rows
                    newest = time.monotonic()
                    write(formatter(replace(part, records=records)), raw=raw)
                    source.printed(part.partition, int(records.column("offset")[-1].as_py()) + 1)
    except OutputClosed:
        return
    finally:
        if not quiet:
            note(f"Processed a total of {printed} messages")


def _before(records: pa.RecordBatch, end: int) -> pa.RecordBatch:
    import numpy as np

    return records.slice(0, int(np.searchsorted(records.column("offset").to_numpy(), end)))
