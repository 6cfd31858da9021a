"""The options of a read, parsed once into a frozen value. Pure.

Names and meanings are those of Spark's Kafka source, so that an existing job changes `format("kafka")` and nothing else. Options
that begin with `kafka.` configure a Kafka client (`client_settings`).
Source: Spark, "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from kafkalake.config.topic_values import KEY, SCHEMA_ID, VALUE_FORMAT, VALUE_SCHEMA, TopicValues, topic_values
from kafkalake.errors import ConfigurationError
from kafkalake.metadata.paths import lake_directory
from kafkalake.reader.client_settings import check_client_settings, warn
from kafkalake.reader.option_names import LAKE, ONLY_BATCH, ONLY_STREAMING, WITHOUT_EFFECT, known_options
from kafkalake.reader.positions import ids_from_json
from kafkalake.reader.session_time import parse_duration_ms, parse_time
from kafkalake.topic_names import fault_of_name

LAKE_VARIABLE = "KAFKALAKE_LAKE"
LATEST = -1
EARLIEST = -2

_LONG_MAX = 2**63 - 1
"""Numbers of the JVM end here, and those of Spark's Kafka source."""

OFFSETS_BY_NAME = {"earliest": EARLIEST, "latest": LATEST}
READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"
TRIGGER_DELAY_MS_MAX = 900_000
"""The longest delay of a batch for `minOffsetsPerTrigger`, as in Spark's Kafka source."""
TIME_ZONE_NOTE = "__timezone"
"""The session's time zone, noted by the JVM."""
LOCATED_NOTE = "__located"
"""Noted by the JVM: the option `lake` was found, or checked, by asking the brokers."""
TYPED_NOTE = "__typed"
"""Noted by the JVM for a typed topic as a table: the topic's settings about its values, as `typed_note` has them."""

TopicOffsets = Mapping[str, Mapping[int, int]]
"""{topic: {partition: offset, or timestamp in ms}}"""


@dataclass(frozen=True, slots=True)
class OffsetRule:
    """The start or end of a read: the first of these fields that is set.

    timestamp_ms: the first record at or after it, in every partition. timestamps_ms: the same, one per partition.
    offsets: per partition, -2 earliest, -1 latest. everywhere: EARLIEST or LATEST. topic_ids: ids of the topics that the offsets
    belong to, if given, as in the offsets of a stream.
    """

    everywhere: int
    offsets: TopicOffsets | None = None
    timestamp_ms: int | None = None
    timestamps_ms: TopicOffsets | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The parsed options. Exactly one of `topics`, `pattern` and `assigned` is set.

    typed: the values of the one topic, if its columns are their fields, as `project_typed` names them.
    """

    lake: str
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: Mapping[str, tuple[int, ...]] | None = None
    starting: OffsetRule = OffsetRule(EARLIEST)
    ending: OffsetRule = OffsetRule(LATEST)
    latest_where_no_timestamp: bool = False
    partitions_min: int | None = None
    records_per_partition_max: int | None = None
    isolation: str = READ_COMMITTED
    version: int | None = None
    as_of_ms: int | None = None
    value_schema: str | None = None
    typed: TopicValues | None = None
    headers: bool = True
    topic_id: bool = False
    fail_on_data_loss: bool = True
    group: str | None = None
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_ms_max: int = TRIGGER_DELAY_MS_MAX

    @property
    def has_lasting_start(self) -> bool:
        """Return whether every start of the read finds the same offsets. False for latest, for times and for a group's offsets."""
        starting = self.starting
        if self.group is not None or starting.timestamp_ms is not None or starting.timestamps_ms is not None:
            return False
        return (
            not _mentions(starting.offsets, LATEST) if starting.offsets is not None else starting.everywhere == EARLIEST
        )


class Use(Enum):
    """The purpose of a read. Spark requests the schema before the purpose is known."""

    BATCH = "a batch query"
    STREAM = "a stream"
    SCHEMA = "a schema"


def parse_options(given: Mapping[str, str], use: Use = Use.BATCH, time_zone: str | None = "UTC") -> ReadOptions:
    """Validate and parse the options, with names in any case. Raise `ConfigurationError` with the problem and a suggestion.

    By default a stream starts at the latest offsets and a batch query at the earliest, as in Spark's Kafka source.
    `time_zone`: for times without a zone. With None (unknown) such times are refused.
    """
    options = known_options(given)
    if use is not Use.SCHEMA:
        check_client_settings(given)
    misplaced = [name for name in {Use.BATCH: ONLY_STREAMING, Use.STREAM: ONLY_BATCH}.get(use, ()) if name in options]
    if misplaced and use is Use.STREAM:
        raise ConfigurationError(f"{misplaced[0]} is no option of {use.value}")
    ignored = [*misplaced, *(name for name in WITHOUT_EFFECT if name in options)]
    if ignored and use is not Use.SCHEMA:
        warn(f"no effect in {use.value}: {', '.join(ignored)}")
    topics, pattern, assigned = _topics(options)
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in ("error", "latest"):
        raise ConfigurationError(f"startingOffsetsByTimestampStrategy is {strategy!r}; error and latest are possible")
    version = _integer(options, "versionAsOf", minimum=0)
    as_of = options.get("timestampAsOf")
    if version is not None and as_of is not None:
        raise ConfigurationError("versionAsOf and timestampAsOf are two answers to one question: give one of them")
    offsets_max, offsets_min, delay_ms_max = _trigger_limits(options)
    return ReadOptions(
        lake=lake_option(options),
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        starting=_starting(options, use, time_zone),
        ending=_ending(options, time_zone),
        latest_where_no_timestamp=strategy == "latest",
        partitions_min=_integer(options, "minPartitions", minimum=1),
        records_per_partition_max=_integer(options, "maxRecordsPerPartition", minimum=1),
        isolation=_isolation(options),
        version=version,
        as_of_ms=None if as_of is None else parse_time("timestampAsOf", as_of, time_zone),
        value_schema=options.get("valueSchema"),
        typed=typed_values(given),
        headers=_boolean(options, "includeHeaders", True),
        topic_id=_boolean(options, "includeTopicId", False),
        fail_on_data_loss=_boolean(options, "failOnDataLoss", True),
        group=_group(options),
        offsets_per_trigger_max=offsets_max,
        offsets_per_trigger_min=offsets_min,
        trigger_delay_ms_max=delay_ms_max,
    )


def typed_note(settings: Mapping[str, str]) -> str:
    """Return the note of a topic with these settings."""
    return json.dumps(
        {name: settings[name] for name in (VALUE_SCHEMA, VALUE_FORMAT, SCHEMA_ID, KEY) if name in settings}
    )


def typed_values(given: Mapping[str, str]) -> TopicValues | None:
    """Return the values of the typed topic that options name as a table, or None. Raise `ConfigurationError`."""
    note = given.get(TYPED_NOTE)
    return None if note is None else topic_values(json.loads(note))


def lake_option(options: Mapping[str, str]) -> str:
    """Return the lake of the options, or else of the environment. Raise `ConfigurationError` if there is none, or it is no path."""
    lake = options.get(LAKE) or os.environ.get(LAKE_VARIABLE)
    if not lake:
        raise ConfigurationError(
            'no lake was named: use option("lake", "/path/to/lake"), or the option kafka.bootstrap.servers, whose broker says '
            f"where its lake is, or the environment variable {LAKE_VARIABLE}"
        )
    return str(lake_directory(lake))


def _topics(
    options: Mapping[str, str],
) -> tuple[tuple[str, ...] | None, str | None, Mapping[str, tuple[int, ...]] | None]:
    """Return topics, pattern or assignment, exactly one of which must be given."""
    given = {name: options[name] for name in ("subscribe", "subscribePattern", "assign") if name in options}
    # A table in a catalogue has a location beside its options. A topic name has no slash.
    path = options.get("path", "")
    if path and not (given and "/" in path):
        given["load(...)"] = path
    if "topic" in options and all("/" in text for text in given.values()):
        given = {"topic": options["topic"]}  # a table that was created for writing
    if len(given) != 1:
        what = f"{', '.join(given)} were given" if given else "none was named"
        raise ConfigurationError(
            f'topics are named in one way, and {what}: use load("clicks"), subscribe, subscribePattern or assign'
        )
    ((name, text),) = given.items()
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigurationError(f"subscribePattern {text!r} is no regular expression: {error}") from None
        return None, text, None
    if name == "assign":
        return None, None, _assigned(text)
    topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not topics:
        raise ConfigurationError(f"{name} names no topic: {text!r}")
    for topic in topics:
        if fault := fault_of_name(topic):
            raise ConfigurationError(f"{topic!r} is no topic's name: {fault}")
    return topics, None, None


def _assigned(text: str) -> Mapping[str, tuple[int, ...]]:
    wrong = ConfigurationError(f'assign is {text!r}: give JSON such as {{"clicks": [0, 1]}}')
    try:
        parsed = json.loads(text)
        assigned = {str(topic): tuple(int(number) for number in numbers) for topic, numbers in parsed.items()}
    except (ValueError, TypeError, AttributeError):
        raise wrong from None
    if not assigned or not all(assigned.values()):
        raise wrong
    return assigned


def _starting(options: Mapping[str, str], use: Use, time_zone: str | None) -> OffsetRule:
    rule = _rule(options, "starting", LATEST if use is Use.STREAM else EARLIEST, time_zone)
    if use is not Use.BATCH:
        return rule
    if rule.everywhere == LATEST or _mentions(rule.offsets, LATEST):
        raise ConfigurationError("startingOffsets cannot be latest in a batch query: nothing would be read")
    return rule


def _ending(options: Mapping[str, str], time_zone: str | None) -> OffsetRule:
    rule = _rule(options, "ending", LATEST, time_zone)
    if rule.everywhere == EARLIEST or _mentions(rule.offsets, EARLIEST):
        raise ConfigurationError("endingOffsets cannot be earliest in a batch query: nothing would be read")
    return rule


def _mentions(offsets: TopicOffsets | None, special: int) -> bool:
    return any(offset == special for partitions in (offsets or {}).values() for offset in partitions.values())


def _rule(options: Mapping[str, str], edge: str, everywhere: int, time_zone: str | None) -> OffsetRule:
    """Return the rule for one edge. Timestamps take precedence over offsets, as in Spark's Kafka source."""
    text = options.get(f"{edge}Timestamp")
    if text is not None:
        return OffsetRule(everywhere, timestamp_ms=parse_time(f"{edge}Timestamp", text, time_zone))
    text = options.get(f"{edge}OffsetsByTimestamp")
    if text is not None:
        return OffsetRule(everywhere, timestamps_ms=_by_partition(f"{edge}OffsetsByTimestamp", text, minimum=-(2**63)))
    text = options.get(f"{edge}Offsets")
    if text is None:
        return OffsetRule(everywhere)
    if text.strip().lower() in OFFSETS_BY_NAME:
        return OffsetRule(OFFSETS_BY_NAME[text.strip().lower()])
    offsets = _by_partition(f"{edge}Offsets", text, minimum=EARLIEST)
    topic_ids = ids_from_json(offsets)
    if topic_ids:
        offsets = {name: numbers for name, numbers in offsets.items() if "#" not in name}
    return OffsetRule(everywhere, offsets=offsets, topic_ids=topic_ids)


def _by_partition(option: str, text: str, minimum: int) -> TopicOffsets:
    """Parse JSON `{"topic": {"0": 23, "1": -2}}`."""
    try:
        parsed = json.loads(text)
        found = {
            str(topic): {int(partition): _plain_int(number) for partition, number in numbers.items()}
            for topic, numbers in parsed.items()
        }
    except (ValueError, TypeError, AttributeError):
        raise ConfigurationError(
            f'{option} is {text!r}: give earliest, latest or JSON such as {{"clicks": {{"0": 23, "1": -2}}}}'
            if option.endswith("Offsets")
            else f'{option} is {text!r}: give JSON such as {{"clicks": {{"0": 1700000000000}}}}'
        ) from None
    for topic, numbers in found.items():
        for partition, number in numbers.items():
            if number < minimum or partition < 0:
                raise ConfigurationError(f"{option}: {number} for {topic}-{partition} is below {minimum}")
    return found


def _plain_int(number: object) -> int:
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    raise TypeError(number)


def _group(options: Mapping[str, str]) -> str | None:
    group = options.get("group")
    if group is not None and not group.strip():
        raise ConfigurationError("group is empty: give the name of the consumer group")
    if group is not None and ("versionAsOf" in options or "timestampAsOf" in options):
        raise ConfigurationError("a group reads what is there now: give group, or versionAsOf or timestampAsOf")
    return group


def _isolation(options: Mapping[str, str]) -> str:
    level = options.get("isolation", READ_COMMITTED).lower()
    if level not in (READ_COMMITTED, READ_UNCOMMITTED):
        raise ConfigurationError(f"isolation is {level!r}; {READ_COMMITTED} and {READ_UNCOMMITTED} are possible")
    return level


def _integer(options: Mapping[str, str], name: str, minimum: int) -> int | None:
    text = options.get(name)
    return None if text is None else parse_whole(name, text, minimum)


def parse_whole(name: str, text: str, minimum: int) -> int:
    """Return a whole number that the JVM has as well. Raise `ConfigurationError` if the text of option `name` is none."""
    number = int(text) if re.fullmatch(r"\s*\+?[0-9]{1,1000}\s*", text) else -1
    if not minimum <= number <= _LONG_MAX:
        most = f" and at most {_LONG_MAX}" if number > _LONG_MAX else ""
        raise ConfigurationError(f"{name} is {text!r}: give a whole number of at least {minimum}{most}")
    return number


def _trigger_limits(options: Mapping[str, str]) -> tuple[int | None, int | None, int]:
    """Return `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay` in ms."""
    most = _integer(options, "maxOffsetsPerTrigger", minimum=1)
    least = _integer(options, "minOffsetsPerTrigger", minimum=1)
    if most is not None and least is not None and least > most:
        raise ConfigurationError(f"minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, {most}")
    delay = options.get("maxTriggerDelay")
    return most, least, TRIGGER_DELAY_MS_MAX if delay is None else parse_duration_ms("maxTriggerDelay", delay)


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"{name} is {text!r}; true and false are possible")
    return text == "true"
