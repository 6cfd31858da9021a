"""Options: what Spark's Kafka source takes, and a clear word about what it is not."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from kafkalake.errors import ConfigurationError
from kafkalake.reader.client_settings import warn
from kafkalake.reader.option_names import known_options
from kafkalake.reader.read_options import EARLIEST, LATEST, OffsetRule, ReadOptions, parse_options

BASE = {"lake": "/lake", "subscribe": "clicks"}


def test_defaults_read_everything_committed() -> None:
    assert parse_options({"lake": "/lake", "path": "clicks"}) == ReadOptions(lake="/lake", topics=("clicks",))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"path": "a, b,a"}, {"topics": ("a", "b")}),
        ({"subscribe": "a,b"}, {"topics": ("a", "b")}),
        ({"SUBSCRIBEPATTERN": "cl.*"}, {"pattern": "cl.*"}),
        ({"assign": '{"a": [0, 2]}'}, {"assigned": {"a": (0, 2)}}),
        ({"subscribe": "a", "path": "file:/warehouse/a"}, {"topics": ("a",)}),
        ({"path": "a", "startingOffsets": "Earliest"}, {"topics": ("a",)}),
        (
            {"path": "a", "startingOffsets": '{"a": {"0": 23, "1": -2}}'},
            {"topics": ("a",), "starting": OffsetRule(EARLIEST, offsets={"a": {0: 23, 1: -2}})},
        ),
        (
            {"path": "a", "endingOffsets": '{"a": {"0": -1}}'},
            {"topics": ("a",), "ending": OffsetRule(LATEST, offsets={"a": {0: -1}})},
        ),
        (
            {"path": "a", "startingTimestamp": "1700000000000", "startingOffsets": "earliest"},
            {"topics": ("a",), "starting": OffsetRule(EARLIEST, timestamp_ms=1_700_000_000_000)},
        ),
        (
            {"path": "a", "endingTimestamp": "2023-11-14T22:13:20.5Z"},
            {"topics": ("a",), "ending": OffsetRule(LATEST, timestamp_ms=1_700_000_000_500)},
        ),
        (
            {"path": "a", "startingOffsetsByTimestamp": '{"a": {"0": 5}}'},
            {"topics": ("a",), "starting": OffsetRule(EARLIEST, timestamps_ms={"a": {0: 5}})},
        ),
        ({"path": "a", "minPartitions": "7"}, {"topics": ("a",), "partitions_min": 7}),
        ({"path": "a", "isolation": "READ_UNCOMMITTED"}, {"topics": ("a",), "isolation": "read_uncommitted"}),
        (
            {"path": "a", "kafka.isolation.level": "read_uncommitted"},
            {"topics": ("a",), "isolation": "read_uncommitted"},
        ),
        ({"path": "a", "kafka.bootstrap.servers": "host:9092"}, {"topics": ("a",)}),
        ({"path": "a", "kafka.security.protocol": "PLAINTEXT"}, {"topics": ("a",)}),
        ({"topic": "a", "path": "file:/warehouse/t"}, {"topics": ("a",)}),
        ({"subscribe": "a", "option.subscribe": "a", "retention.ms": "1000", "team": "data"}, {"topics": ("a",)}),
        ({"path": "a", "versionAsOf": "12"}, {"topics": ("a",), "version": 12}),
        ({"path": "a", "timestampAsOf": "-1"}, {"topics": ("a",), "as_of_ms": -1}),
        (
            {"path": "a", "maxOffsetsPerTrigger": str(2**63 - 1)},
            {"topics": ("a",), "offsets_per_trigger_max": 2**63 - 1},
        ),
        ({"path": "a", "startingTimestamp": "0"}, {"topics": ("a",), "starting": OffsetRule(EARLIEST, timestamp_ms=0)}),
        ({"path": "a", "endingTimestamp": "999"}, {"topics": ("a",), "ending": OffsetRule(LATEST, timestamp_ms=999)}),
        ({"path": "a", "timestampAsOf": "2023-11-14 22:13:20"}, {"topics": ("a",), "as_of_ms": 1_700_000_000_000}),
        ({"path": "a", "includeHeaders": "false"}, {"topics": ("a",), "headers": False}),
        ({"path": "a", "failOnDataLoss": "false"}, {"topics": ("a",), "fail_on_data_loss": False}),
        ({"path": "a", "lake": "file:/x"}, {"topics": ("a",), "lake": "/x"}),
        ({"path": "a", "lake": "file:///x"}, {"topics": ("a",), "lake": "/x"}),
        ({"path": "a", "groupIdPrefix": "g", "KAFKACONSUMER.pollTimeoutMs": "1"}, {"topics": ("a",)}),
        ({"path": "a", "fetchOffset.numRetries": "1", "fetchoffset.retryIntervalMs": "1"}, {"topics": ("a",)}),
        ({"path": "a", "maxBytesPerTrigger": "1m", "kafka.group.id": "g"}, {"topics": ("a",)}),
        ({"path": "a", "kafka.partitioner.ignore.keys": "false"}, {"topics": ("a",)}),
        (
            {"path": "a", "maxOffsetsPerTrigger": "9", "minOffsetsPerTrigger": "3", "maxTriggerDelay": "5m"},
            {
                "topics": ("a",),
                "offsets_per_trigger_max": 9,
                "offsets_per_trigger_min": 3,
                "trigger_delay_ms_max": 300_000,
            },
        ),
    ],
)
def test_options_are_parsed(given: dict[str, str], expected: dict[str, Any]) -> None:
    assert parse_options({"lake": "/lake", **given}) == ReadOptions(**{"lake": "/lake", **expected})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOfsets": "earliest"}, "unknown option 'startingOfsets'; did you mean startingOffsets"),
        ({"bananas": "1"}, "unknown option 'bananas'; there are lake, path, subscribe"),
        ({"subscribePattern": "a.*"}, "named in one way, and subscribe, subscribePattern were given"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": "a/b"}, "'a/b' is no topic's name"),
        ({"subscribe": "clicks,.."}, r"'\.\.' is no topic's name: '\.\.' is not allowed"),
        ({"startingOffsets": "latest"}, "cannot be latest in a batch query"),
        ({"endingOffsets": '{"clicks": {"0": -2}}'}, "cannot be earliest in a batch query"),
        ({"startingOffsets": "yesterday"}, r"startingOffsets is 'yesterday': give earliest, latest or JSON"),
        ({"startingOffsets": '{"clicks": {"0": "3"}}'}, "give earliest, latest or JSON"),
        ({"startingOffsets": '{"clicks": {"0": -7}}'}, "-7 for clicks-0 is below -2"),
        ({"startingOffsets": "[1]"}, "give earliest, latest or JSON"),
        ({"startingTimestamp": "2024"}, "startingTimestamp is '2024': give milliseconds"),  # or is it a year?
        ({"startingTimestamp": "noon"}, "startingTimestamp is 'noon': give milliseconds"),
        ({"isolation": "serializable"}, "read_committed and read_uncommitted are possible"),
        ({"minPartitions": "0"}, "minPartitions is '0': give a whole number of at least 1"),
        ({"minPartitions": "many"}, "minPartitions is 'many'"),
        ({"minPartitions": "1_0"}, "minPartitions is '1_0'"),
        ({"maxOffsetsPerTrigger": str(2**64 + 1)}, r"maxOffsetsPerTrigger is '18446744073709551617': .* at most 92233"),
        ({"minOffsetsPerTrigger": str(2**63)}, "minOffsetsPerTrigger is '9223372036854775808'"),
        ({"versionAsOf": "1", "timestampAsOf": "2024-01-01"}, "give one of them"),
        ({"failOnDataLoss": "perhaps"}, "true and false are possible"),
        ({"retention.ms": "1000"}, "unknown option 'retention.ms'"),
        ({"kafka.isolation.level": "read_uncommitted", "isolation": "read_committed"}, "give one of them"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.security.protocol would secure"),
        ({"kafka.sasl.jaas.config": "secret"}, r"^kafka\.sasl\.jaas\.config would secure"),
        ({"kafka.ssl.truststore.location": "/trust"}, "without TLS and SASL; leave it out"),
        ({"kafka.auto.offset.reset": "earliest"}, "there is none: startingOffsets says where a query begins"),
        ({"Kafka.Enable.Auto.Commit": "false"}, "^Kafka.Enable.Auto.Commit is for a Kafka client.* the option group"),
        ({"kafka.partitioner.class": "org.x.Own"}, "a record goes to the partition of its column partition"),
        ({"kafka.exclude.internal.topics": "false"}, "is 'false', and only true is possible"),
        ({"groupId": "g"}, "unknown option 'groupId'; there are lake"),  # advice that would change what is read is none
        ({"startingOffset": "earliest"}, "unknown option 'startingOffset'; did you mean startingOffsets"),
        ({"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "2"}, "is 3, more than maxOffsetsPerTrigger, 2"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon': give a duration such as"),
        ({"lake": "s3a://bucket/lake"}, "mounted on this machine, and s3a://bucket/lake is none"),
    ],
)
def test_mistakes_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_options({**BASE, **given})


def test_what_has_no_effect_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    warn.cache_clear()
    parse_options({**BASE, "kafka.bootstrap.servers": "host:9092", "kafka.isolation.level": "read_committed"})
    assert caplog.messages == []
    parse_options({**BASE, "kafka.group.id": "g", "kafka.fetch.min.bytes": "1"})
    assert caplog.messages == [
        "no effect, for no Kafka client reads or writes here: kafka.fetch.min.bytes, kafka.group.id"
    ]
    caplog.clear()
    for _ in range(2):
        parse_options({**BASE, "maxOffsetsPerTrigger": "5", "groupIdPrefix": "g", "kafka.fetch.mim.bytes": "1"})
    assert caplog.messages == [
        "kafka.fetch.mim.bytes is no setting of a Kafka client, and has no effect; did you mean kafka.fetch.min.bytes?",
        "no effect in a batch query: maxOffsetsPerTrigger, groupIdPrefix",
    ]


def test_every_option_of_sparks_kafka_source_and_sink_is_known() -> None:
    # Spark, "Structured Streaming + Kafka Integration Guide", and its KafkaSourceProvider.
    kafkas = [
        "assign",
        "subscribe",
        "subscribePattern",
        "kafka.bootstrap.servers",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsets",
        "endingTimestamp",
        "endingOffsetsByTimestamp",
        "endingOffsets",
        "failOnDataLoss",
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "maxRecordsPerPartition",
        "groupIdPrefix",
        "kafka.group.id",
        "includeHeaders",
        "startingOffsetsByTimestampStrategy",
        "topic",
    ]
    known_options({name.swapcase(): "1" for name in kafkas})


@pytest.mark.parametrize(
    ("zone", "text", "expected"),
    [
        ("Asia/Tokyo", "2026-11-22 05:30:41", "2026-11-21T20:30:41+00:00"),
        ("+09:00", "2026-11-22T05:30:41", "2026-11-21T20:30:41+00:00"),
        ("GMT-5", "2026-11-22", "2026-11-22T05:00:00+00:00"),
        ("Z", "2026-11-22 05:30:41", "2026-11-22T05:30:41+00:00"),
        ("Asia/Tokyo", "2026-11-22T05:30:41Z", "2026-11-22T05:30:41+00:00"),
        ("Europe/Berlin", "2024-03-31 02:30:00", "2024-03-31T01:30:00+00:00"),  # skipped: 03:30
        ("Europe/Berlin", "2024-10-27 02:30:00", "2024-10-27T00:30:00+00:00"),  # twice: the first
    ],
)
def test_a_time_without_a_zone_is_one_of_the_sessions(zone: str, text: str, expected: str) -> None:
    given = {"path": "a", "lake": "/lake", "startingTimestamp": text, "endingTimestamp": text, "timestampAsOf": text}
    options = parse_options(given, time_zone=zone)
    milliseconds = int(datetime.fromisoformat(expected).timestamp() * 1000)
    assert options.starting.timestamp_ms == options.ending.timestamp_ms == options.as_of_ms == milliseconds


def test_a_time_is_refused_where_its_zone_is_not_known() -> None:
    with pytest.raises(ConfigurationError, match=r"a time without a zone, .* name the zone, as in 2024-05-01Z"):
        parse_options({**BASE, "startingTimestamp": "2024-05-01"}, time_zone=None)
    assert parse_options({**BASE, "startingTimestamp": "1700000000000"}, time_zone=None).starting.timestamp_ms
    with pytest.raises(ConfigurationError, match="'Mars/Olympus' is not known"):
        parse_options({**BASE, "startingTimestamp": "2024-05-01"}, time_zone="Mars/Olympus")


def test_the_lake_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKALAKE_LAKE", "/from/environment")
    assert parse_options({"subscribe": "clicks"}).lake == "/from/environment"
    monkeypatch.delenv("KAFKALAKE_LAKE")
    with pytest.raises(ConfigurationError, match="no lake was named"):
        parse_options({"subscribe": "clicks"})


def test_no_topic_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"none was named: use load"):
        parse_options({"lake": "/lake"})


@pytest.mark.parametrize("text", ["{}", '{"a": []}', "[0]", '{"a": 3}', "nothing"])
def test_assign_must_name_partitions(text: str) -> None:
    with pytest.raises(ConfigurationError, match="assign is"):
        parse_options({"lake": "/lake", "assign": text})
