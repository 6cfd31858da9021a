"""`kafkalake consume`: prints a topic's records to stdout."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkalake.cli.consume_options import Commit, ConsumeOptions, OutputFormat
from kafkalake.cli.options import CLIENT_ID, connect, with_options
from kafkalake.cli.output import OutputClosed, UsageProblem, note, write

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalake.cli.record_fields import RecordFields
    from kafkalake.cli.record_output import ConsumedRecords, Formatter
    from kafkalake.client.administration.blocking import Admin
    from kafkalake.client.consuming.consumer import Consumer
    from kafkalake.config.topic_values import TopicValues
    from kafkalake.errors import OffsetOutOfRangeError

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

METADATA_WAIT_S = 0.3
"""How long to wait for a topic that may just have been created."""
LATEST, EARLIEST = -1, -2
POLL_S = 0.5
POLL_NEAR_END_S = 0.02
"""How long to wait for records that may not come: behind the last ones there may be markers of transactions only."""
RECORDS_AT_ONCE = 10_000
LARGEST_OFFSET = 2**63 - 1


@with_options(ConsumeOptions)
def consume(options: ConsumeOptions) -> None:
    """Print records of a topic: new ones, or from an offset, a time, the beginning."""
    from kafkalake.cli import record_output
    from kafkalake.errors import OffsetOutOfRangeError

    if sum([options.from_beginning, options.offset is not None, options.from_time is not None]) > 1:
        raise UsageProblem("--from-beginning, --offset and --from-time exclude one another")
    if options.group is not None and (options.partition or options.offset is not None or options.from_time is not None):
        raise UsageProblem(
            "--group reads what the group assigns, from where it is: no --partition, --offset, --from-time"
        )
    if options.group is None and options.commit is not Commit.AUTO:
        raise UsageProblem("--commit is for --group")
    _parse_offset(options.offset)
    shown = record_output.TextProperties(
        print_key=options.print_key,
        print_timestamp=options.print_timestamp,
        print_partition=options.print_partition,
        print_offset=options.print_offset,
        print_headers=options.print_headers,
    )
    for entry in options.properties or ():
        shown = shown.with_property(entry)
    with connect(options.bootstrap_server) as admin:
        fields = _fields(admin, options.topic)
        source = _source(admin, options)
        formatters: dict[OutputFormat, Formatter] = {
            OutputFormat.TEXT: record_output.text_formatter(shown, fields),
            OutputFormat.VALUE: record_output.text_formatter(record_output.TextProperties(), fields),
            OutputFormat.JSON: record_output.json_formatter(options.topic, fields),
            OutputFormat.CSV: record_output.csv_formatter(options.topic, fields),
        }
        formatter = formatters[OutputFormat.JSON if options.json else options.format]
        try:
            _print_all(source, formatter, options.max_records, options.timeout, options.quiet, options.raw)
        except OffsetOutOfRangeError as error:
            raise _with_range(error, admin, options, source.consumer) from None
        finally:
            source.close()


def _fields(admin: Admin, topic: str) -> RecordFields | None:
    """Return the fields of the topic's values, None if it has no schema, or its broker tells of none."""
    from kafkalake.errors import BrokerUnavailableError

    values = _values(admin, topic)
    if values is None:
        return None
    from kafkalake.cli.record_fields import RecordFields

    def newest() -> TopicValues | None:
        try:
            return _values(admin, topic)
        except BrokerUnavailableError:
            return None

    return RecordFields(values, newest)


def _values(admin: Admin, topic: str) -> TopicValues | None:
    """Return how the topic's values are read, None if it has no schema, or its broker tells of none."""
    from kafkalake.cli.options import settings_of_topic
    from kafkalake.config.topic_values import topic_values
    from kafkalake.errors import ConfigurationError

    try:
        values = topic_values(settings_of_topic(admin, topic))
    except ConfigurationError:  # another release's
        return None
    return values if values.fields else None


def _source(admin: Admin, options: ConsumeOptions) -> Source:
    """Return what is to be printed: a group's partitions, or those that the command line names, from its positions on."""
    topic, read_committed = options.topic, not options.read_uncommitted
    isolation = {"isolation.level": "read_committed" if read_committed else "read_uncommitted"}
    if options.group is not None:
        from kafkalake.cli.consume_group import GroupPositions

        admin.describe_topic(topic, wait_s=METADATA_WAIT_S)
        reset = "earliest" if options.from_beginning else "latest"
        consumer = new_consumer(options.bootstrap_server, reset, {**isolation, "group.id": options.group})
        return GroupPositions(consumer, topic, options.commit is Commit.AUTO, options.exit_at_end)
    partitions = _partitions(admin, topic, options.partition)
    place = "earliest" if options.from_beginning else options.offset if options.offset is not None else "latest"
    positions = _start_positions(admin, topic, partitions, place, options.from_time, read_committed)
    ends = None
    if options.exit_at_end:
        ends = _offsets_at(admin, topic, partitions, LATEST, read_committed)
    fixed = _parse_offset(options.offset) is not None
    return FixedPositions(
        new_consumer(options.bootstrap_server, "none" if fixed else "earliest", isolation), topic, positions, ends
    )


def new_consumer(bootstrap_server: str, reset: str, more: Mapping[str, object]) -> Consumer:
    """Return a consumer, which begins at `reset` where it has no position. more: settings."""
    from kafkalake.client.consuming.consumer import Consumer

    settings = {
        "bootstrap.servers": bootstrap_server,
        "client.id": CLIENT_ID,
        "enable.auto.commit": False,
        "auto.offset.reset": reset,
        "allow.auto.create.topics": False,
    }
    return Consumer({**settings, **more})


class Source(Protocol):
    """A source of records to print."""

    @property
    def consumer(self) -> Consumer: ...
    @property
    def left(self) -> dict[int, int] | None:
        """The partitions that are not read to their end, with their ends. None: they are read for ever."""
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

    def __init__(self, consumer: Consumer, topic: str, positions: dict[int, int], ends: dict[int, int] | None) -> None:
        self.consumer = consumer
        self._topic = topic
        self._ends = ends
        consumer.assign([(topic, number) for number in positions])
        for number, offset in positions.items():
            consumer.seek((topic, number), offset)

    @property
    def left(self) -> dict[int, int] | None:
        return None if self._ends is None else unread(self.consumer, self._topic, self._ends)

    def printed(self, partition: int, next_offset: int) -> None:
        pass

    def turn(self) -> None:
        pass

    def close(self) -> None:
        self.consumer.close()


def _with_range(
    error: OffsetOutOfRangeError, admin: Admin, options: ConsumeOptions, consumer: Consumer
) -> OffsetOutOfRangeError:
    """Return the same error with the offsets that the partition has."""
    from kafkalake.errors import OffsetOutOfRangeError

    numbers = sorted(number for _, number in consumer.assignment())
    firsts, ends = (
        _offsets_at(admin, options.topic, numbers, at, not options.read_uncommitted) for at in (EARLIEST, LATEST)
    )
    for number in numbers:
        position = consumer.position((options.topic, number))
        if not firsts[number] <= position <= ends[number]:
            return OffsetOutOfRangeError(
                f"partition {options.topic}-{number} has no offset {position}: it goes from {firsts[number]} to {ends[number]}"
            )
    return error


def unread(consumer: Consumer, topic: str, ends: dict[int, int]) -> dict[int, int]:
    """Return the partitions that are not read to their ends. The others are fetched no longer."""
    left = {number: end for number, end in ends.items() if consumer.position((topic, number)) < end}
    if done := [(topic, number) for number in ends if number not in left]:
        consumer.pause(done)
    return left


def _partitions(admin: Admin, topic: str, wanted: Sequence[int] | None) -> list[int]:
    from kafkalake.errors import UnknownTopicOrPartitionError

    known = [info.partition for info in admin.describe_topic(topic, wait_s=METADATA_WAIT_S).partitions]
    for number in wanted or ():
        if number not in known:
            raise UnknownTopicOrPartitionError(
                f"topic '{topic}' has no partition {number}; it has {len(known)}, numbered from 0"
            )
    return sorted(set(wanted)) if wanted else known


def _start_positions(
    admin: Admin, topic: str, partitions: Sequence[int], place: str, from_time: str | None, read_committed: bool
) -> dict[int, int]:
    """Return the start offset of each partition. Raise `UsageProblem` for what is no time or offset."""
    from kafkalake.cli.times import parse_time

    def listed(timestamp: int) -> dict[int, int]:
        return _offsets_at(admin, topic, partitions, timestamp, read_committed)

    if from_time is not None:
        found = listed(parse_time(from_time, "--from-time"))
        if -1 in found.values():  # no record is that new: start at the end
            ends = listed(LATEST)
            found = {number: ends[number] if offset < 0 else offset for number, offset in found.items()}
        return found
    offset = _parse_offset(place)
    if offset is None:
        return listed(EARLIEST if place == "earliest" else LATEST)
    if place.startswith("-"):
        firsts, ends = listed(EARLIEST), listed(LATEST)
        return {number: max(firsts[number], ends[number] + offset) for number in partitions}
    return dict.fromkeys(partitions, offset)


def _parse_offset(place: str | None) -> int | None:
    """Return the number that an offset is, below 0 from the end on, or None for a name. Raise `UsageProblem` for neither."""
    if place is None or place in ("earliest", "latest"):
        return None
    if not re.fullmatch(r"-?\d{1,19}", place) or abs(int(place)) > LARGEST_OFFSET:
        raise UsageProblem(f"--offset takes a number, earliest or latest, not '{place}'")
    return int(place)


def _offsets_at(
    admin: Admin, topic: str, partitions: Sequence[int], timestamp: int, read_committed: bool
) -> dict[int, int]:
    """Return an offset of each partition by time, -1 where no record is that new."""
    times = dict.fromkeys([(topic, number) for number in partitions], timestamp)
    return {
        number: each.offset for (_, number), each in admin.list_offsets(times, read_committed=read_committed).items()
    }


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
            left = source.left
            if left is not None and not left:
                break
            wait_s = POLL_S if left is None else POLL_NEAR_END_S
            if timeout_s is not None:
                wait_s = min(wait_s, newest + timeout_s - time.monotonic())
                if wait_s <= 0:
                    break
            limit = RECORDS_AT_ONCE if max_records is None else min(max_records - printed, RECORDS_AT_ONCE)
            for batch in source.consumer.poll_arrow(wait_s, max_records=limit):
                for part in _printable(batch, left, None if max_records is None else max_records - printed):
                    printed += part.records.num_rows
                    newest = time.monotonic()
                    write(formatter(part), raw=raw)
                    source.printed(part.partition, int(part.records.column("offset")[-1].as_py()) + 1)
    except OutputClosed:
        return
    finally:
        if not quiet:
            note(f"Processed a total of {printed} messages")


def _printable(batch: pa.RecordBatch, ends: dict[int, int] | None, limit: int | None) -> Iterator[ConsumedRecords]:
    """Yield the records of a batch up to the end of its partition, at most `limit`, in parts that are written at once."""
    import numpy as np

    from kafkalake.cli.record_output import ConsumedRecords
    from kafkalake.client.consuming.records import timestamp_type_of

    partition = batch.column("partition")[0].as_py()
    records = batch.slice(0, limit)
    if ends is not None:
        end = ends.get(partition, 0)
        records = records.slice(0, int(np.searchsorted(records.column("offset").to_numpy(), end)))
    for start in range(0, records.num_rows, RECORDS_AT_ONCE):
        yield ConsumedRecords(partition, records.slice(start, RECORDS_AT_ONCE), timestamp_type_of(batch))
