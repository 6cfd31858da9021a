"""Copies topics into a table, from the lake's files, without a broker: the command line of `jobs/consume.py`.

With `--group`, as a consumer group (`consumption`): each run continues at the end of the output, every record once.
`--stream` waits for more. Without it, one bounded batch: its offsets are fixed before the first record is read, and printed as
the starting offsets of the next run with `--mode append`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from kafkalake.counted import counted
from kafkalake.errors import ConfigurationError, KafkaLakeError
from kafkalake.jobs.arguments import JobParser, RaisingParser, count, number, parse_arguments
from kafkalake.jobs.consume.exact_frame import exact_frame
from kafkalake.jobs.error_sentence import one_line_message
from kafkalake.jobs.progress import require_shown, say, show
from kafkalake.jobs.signals import ended_by_signals, handle_again
from kafkalake.reader.bounds import begin_read
from kafkalake.reader.lake_broker import located
from kafkalake.reader.positions import to_json
from kafkalake.reader.read_options import ReadOptions, parse_options
from kafkalake.spark.spark_session import session, session_zone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODES = ("error", "append", "overwrite")
Offsets = Mapping[str, Mapping[str, int]]
"""{topic: {partition: offset}} and the topics' ids, in the format of the data source's options."""


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy: number of records, first and end offsets (ends exclusive), and the version of the Delta table that contains them."""

    records: int
    starting_offsets: Offsets
    ending_offsets: Offsets
    version: int
    seconds: float


def copy_topics(
    spark: SparkSession, output: str, options: Mapping[str, str], *, columns: Sequence[str] = (), mode: str = "error"
) -> Copied:
    """Write the records that `options` (of the data source) select, or their `columns`, to the Delta table at `output`.

    Raise `KafkaLakeError` if they cannot be read, and Spark's exceptions if they cannot be written.
    """
    from delta.tables import DeltaTable

    started = time.monotonic()
    parsed = parse_options(options, time_zone=session_zone(spark))
    read = begin_read(parsed)
    starting, ending = to_json(read.starts, read.topic_ids), to_json(read.ends, read.topic_ids)
    exact_frame(spark, options, starting, ending, columns).write.format("delta").mode(mode).save(output)
    newest = DeltaTable.forPath(spark, output).history(1).select("version", "operationMetrics").first()
    assert newest is not None
    records = int(newest.operationMetrics.get("numOutputRows", 0))
    return Copied(records, starting, ending, newest.version, time.monotonic() - started)


def main(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code. Results go to stdout, an error to stderr in one sentence."""
    parsed = parse_arguments(_parser(), arguments)
    return ended_by_signals("consume", lambda: _run(parsed))


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise `ConfigurationError` for a command line that `main` would refuse."""
    parsed = parse_arguments(_parser(RaisingParser), arguments)
    _checked(parsed, _options(parsed))


def _run(parsed: argparse.Namespace) -> int:
    try:
        options = located(_options(parsed))
        known = _checked(parsed, options)  # before a JVM is started in vain
        spark = session(app_name=f"consume {parsed.topic or parsed.pattern}")
        handle_again()
        columns = [] if parsed.columns is None else [name.strip() for name in parsed.columns.split(",")]
        if known.group is not None:
            from kafkalake.jobs.consume.loop import consume_as_group

            return consume_as_group(spark, parsed, known, options, columns)
        copied = copy_topics(spark, parsed.output, options, columns=columns, mode=parsed.mode)
        require_shown(show(lambda: _report(copied, parsed.output)))
    except (KafkaLakeError, PySparkException, Py4JError, OSError) as error:
        say(f"consume: {one_line_message(error)}")
        return 1
    return 0


def _report(copied: Copied, output: str) -> None:
    for topic, partitions in copied.ending_offsets.items():
        for partition, end in partitions.items():
            start = copied.starting_offsets[topic][partition]
            print(f"{topic}-{partition}: offsets {start} to {end}, {end - start} of them")
    rate = copied.records / copied.seconds if copied.seconds else 0
    records = counted(copied.records, "record")
    print(f"{records} written to {output}, version {copied.version}, in {copied.seconds:.1f} s ({rate:,.0f}/s)")
    print(f"go on with: --mode append --starting-offsets '{json.dumps(copied.ending_offsets)}'")


def _checked(parsed: argparse.Namespace, options: Mapping[str, str]) -> ReadOptions:
    known = parse_options(options)
    _check(parsed)
    return known


def _check(parsed: argparse.Namespace) -> None:
    """Raise `ConfigurationError` for arguments that make no sense, or do not go together."""
    if not parsed.output:
        raise ConfigurationError("--output is empty: name the directory of the table")
    if parsed.group is None:
        for name in ("stream", "max_offsets", "dry_run"):
            if getattr(parsed, name):
                raise ConfigurationError(f"--{name.replace('_', '-')} goes with --group")
        if parsed.format != "delta":
            raise ConfigurationError("--format parquet goes with --group")
    elif parsed.interval_seconds < 0:
        raise ConfigurationError(f"--interval-seconds {parsed.interval_seconds:g}: it cannot be negative")
    elif parsed.mode not in ("error", "append"):
        raise ConfigurationError("a group appends: --mode overwrite would lose what it has consumed")
    elif parsed.ending_offsets or parsed.ending_timestamp:
        raise ConfigurationError("a group reads to the end; --max-offsets bounds a batch")


_ARGUMENTS = {
    "lake": "lake",
    "topic": "subscribe",
    "pattern": "subscribePattern",
    "starting_offsets": "startingOffsets",
    "ending_offsets": "endingOffsets",
    "starting_timestamp": "startingTimestamp",
    "ending_timestamp": "endingTimestamp",
    "value_schema": "valueSchema",
    "isolation": "isolation",
    "min_partitions": "minPartitions",
    "group": "group",
}
"""Options of the data source by argument of the command."""


def _options(parsed: argparse.Namespace) -> dict[str, str]:
    """Return the options of the data source. Raise `ConfigurationError` for one that is none."""
    options = {
        option: getattr(parsed, name) for name, option in _ARGUMENTS.items() if getattr(parsed, name) is not None
    }
    given = {option.lower() for option in options}
    for pair in parsed.option:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigurationError(f"--option {pair!r} is not NAME=VALUE")
        if name.lower() in given:
            raise ConfigurationError(f"--option {name}: another argument gives it already")
        given.add(name.lower())
        options[name] = value
    return options


def _parser(kind: type[argparse.ArgumentParser] = JobParser) -> argparse.ArgumentParser:
    parser = kind(
        prog="consume",
        description="Copy a topic into a Delta table, or Parquet files.",
        formatter_class=argparse.RawTextHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--lake", metavar="DIR", help="the lake; default: the environment variable KAFKALAKE_LAKE")
    topics = parser.add_mutually_exclusive_group(required=True)
    topics.add_argument("--topic", metavar="NAMES", help="the topic, or several: clicks,orders")
    topics.add_argument("--pattern", metavar="REGEX", help="all topics whose whole name matches")
    parser.add_argument("--output", metavar="PATH", required=True, help="directory of the table")
    parser.add_argument("--group", metavar="NAME", help="go on where this consumer group is, every record once")
    parser.add_argument(
        "--format", choices=("delta", "parquet"), default="delta", help="of the output (default: delta)"
    )
    parser.add_argument("--stream", action="store_true", help="as a group: wait for more, until SIGTERM or Ctrl-C")
    parser.add_argument(
        "--interval-seconds", type=number, default=1.0, metavar="S", help="how long to wait (default: 1)"
    )
    parser.add_argument("--max-offsets", type=count, metavar="N", help="as a group: at most so many records a batch")
    parser.add_argument("--dry-run", action="store_true", help="as a group: say what would be copied, and copy nothing")
    parser.add_argument("--mode", choices=MODES, default="error", help="when the table is there (default: error)")
    parser.add_argument("--columns", metavar="NAMES", help="columns to write, comma separated (default: all)")
    parser.add_argument("--starting-offsets", metavar="OFFSETS", help='earliest, or {"clicks": {"0": 23, "1": -2}}')
    parser.add_argument("--ending-offsets", metavar="OFFSETS", help='latest, or {"clicks": {"0": 50, "1": -1}}')
    parser.add_argument("--starting-timestamp", metavar="TIME", help="ms since 1970, or 2024-05-01T12:00:00Z")
    parser.add_argument("--ending-timestamp", metavar="TIME", help="up to the first record at or after it")
    parser.add_argument("--value-schema", metavar="DDL", help='fields of JSON values: "carrier string, delay double"')
    parser.add_argument("--isolation", choices=("read_committed", "read_uncommitted"))
    parser.add_argument("--min-partitions", metavar="N", help="at least so many tasks")
    parser.add_argument(
        "--option", metavar="NAME=VALUE", action="append", default=[], help="any option of the data source"
    )
    return parser
