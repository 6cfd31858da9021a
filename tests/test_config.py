"""Settings: Kafka's names, types and ranges; layers; what is said of a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalake.broker.admin.broker_settings import BrokerSettings, check_dynamic
from kafkalake.broker.admin.topic_plans import parse_overrides
from kafkalake.cluster.image import ConfigResource, ResourceKind
from kafkalake.config.accepted import reason_for_refusal
from kafkalake.config.broker import BROKER_SETTINGS
from kafkalake.config.layers import ConfigSource, Settings
from kafkalake.config.setting import by_name
from kafkalake.config.setting_texts import parse
from kafkalake.config.stored import parse_stored_overrides
from kafkalake.config.topics import TOPIC_SETTINGS
from kafkalake.config.values import parse_topic_overrides
from kafkalake.errors import ConfigurationError, InvalidConfigError, InvalidRequestError
from kafkalake.storage.files import REAL_FILES


def test_every_setting_has_a_meaning_and_a_valid_default() -> None:
    for definitions in (BROKER_SETTINGS, TOPIC_SETTINGS):
        for setting in definitions.values():
            assert setting.documentation
            if setting.default is not None:
                text = str(setting.default).lower() if isinstance(setting.default, bool) else str(setting.default)
                if text:
                    assert parse(setting, text) == setting.default


def test_layers_the_nearest_wins() -> None:
    settings = Settings({"log.retention.ms": "1"}, {"log.retention.ms": "2"}, {"log.retention.ms": "3"})
    assert settings.topic({}).retention_ms == 3
    assert settings.topic(parse_topic_overrides({"retention.ms": "4"})).retention_ms == 4
    entry = next(each for each in settings.describe_topic({}) if each.setting.name == "retention.ms")
    assert entry.source is ConfigSource.DYNAMIC_BROKER
    assert [(each.value, each.source.value) for each in entry.synonyms] == [("3", 2), ("2", 3), ("1", 4), ("168", 5)]
    assert settings.with_dynamic({}, {}).topic({}).retention_ms == 1


@pytest.mark.parametrize(
    ("given", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_finer_units_win(given: dict[str, str], retention_ms: int) -> None:
    assert Settings(given).topic({}).retention_ms == retention_ms


def test_a_topic_settings_name_stands_for_the_brokers_default() -> None:
    assert Settings({"segment.bytes": "2000000"}).topic({}).segment_bytes == 2_000_000
    assert Settings({"flush.messages": "1"}).topic({}).flush_messages == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("no.such", "1", "no.such"),
        ("num.partitions", "0", "at least 1"),
        ("num.partitions", "one", "Not a number of type INT"),
        ("num.partitions", "99999999999", "Not a number of type INT"),
        ("auto.create.topics.enable", "yes", "either true or false"),
        ("log.cleanup.policy", "delete,shred", "one of"),
        ("log.cleaner.min.cleanable.ratio", "nan", "DOUBLE"),
        ("log.message.timestamp.type", "createtime", "one of"),
        ("transaction.state.log.min.isr", "0", "at least 1"),
        ("process.roles", "broker,voter", "one of: broker, controller"),
        ("process.roles", "", "one of: broker, controller"),
        ("broker.heartbeat.interval.ms", "9000", "must be less than broker.session.timeout.ms"),
        ("broker.session.timeout.ms", "0", "at least 1"),
        ("leader.imbalance.check.interval.seconds", "0", "at least 1"),
        ("security.inter.broker.protocol", "SSL", "one of: PLAINTEXT"),
        ("node.id", "-1", "at least 0"),
    ],
)
def test_what_is_said_of_a_bad_setting(name: str, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Settings({name: text})


LONG_LIST = ",".join(["1:1"] * 8_192)
"""The longest list of its members that is a string in Kafka's requests."""


def test_a_request_gives_no_value_that_is_longer_than_kafkas_strings() -> None:
    throttled = "leader.replication.throttled.replicas"
    assert parse_overrides({throttled: LONG_LIST}) == {throttled: LONG_LIST}
    with pytest.raises(InvalidConfigError, match="at most 32767 characters, and has 32771"):
        parse_overrides({throttled: LONG_LIST + ",1:1"})
    with pytest.raises(InvalidRequestError, match="at most 32767 characters"):
        check_dynamic("", {"log.cleanup.policy": ",".join(["compact"] * 5_000)})


def test_a_file_and_a_stored_value_may_be_longer() -> None:
    policies = ",".join(["compact"] * 5_000)
    assert Settings({"log.cleanup.policy": policies}).topic({}).cleanup_policy == policies
    assert parse_stored_overrides({"cleanup.policy": policies}) == ({"cleanup.policy": policies}, [])


def test_several_policies_may_be_given() -> None:
    assert Settings({"log.cleanup.policy": "compact, delete"}).topic({}).cleanup_policy == "compact,delete"


def test_no_policy_may_be_given() -> None:
    assert Settings({"log.cleanup.policy": ""}).topic({}).cleanup_policy == ""


def test_settings_that_an_older_release_took_do_not_keep_a_lake_from_opening(tmp_path: Path) -> None:
    stored = {"segment.bytes": "2000", "retention.ms": "5", "no.such": "1"}
    overrides, problems = parse_stored_overrides(stored)
    assert overrides == {"internal.segment.bytes": 2000, "retention.ms": 5}
    assert [str(problem) for problem in problems] == ["Unknown topic config name: no.such"]
    assert Settings().topic(overrides).segment_bytes == 2000

    settings = BrokerSettings({}, str(tmp_path), REAL_FILES)
    settings.follow(
        {
            ConfigResource(ResourceKind.BROKER, ""): {"log.segment.bytes": "2000"},
            ConfigResource(ResourceKind.BROKER, "0"): {"num.partitions": "3"},
            ConfigResource(ResourceKind.BROKER, "1"): {"num.partitions": "4"},
        }
    )
    assert (settings.current.dynamic_default, settings.current.dynamic) == ({}, {"num.partitions": 3})


def test_listeners_are_called_once_for_settings_that_change(tmp_path: Path) -> None:
    settings, called = BrokerSettings({}, str(tmp_path), REAL_FILES), []
    settings.on_change(lambda: called.append(settings.current.broker.max_partitions))
    config = {ConfigResource(ResourceKind.BROKER, ""): {"max.partitions": "7"}}
    for each in (config, dict(config), {}, {}):
        settings.follow(each)
    assert called == [7, 50_000]


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"no.such": "1"}, InvalidConfigError),
        ({"num.partitions": "1"}, InvalidRequestError),
        ({"max.partitions": "many"}, InvalidRequestError),
        ({"max.partitions": None}, InvalidRequestError),
    ],
)
def test_dynamic_settings_are_checked(settings: dict[str, str | None], error: type[Exception]) -> None:
    assert check_dynamic("", {"max.partitions": " 7"}) == {"max.partitions": "7"}
    with pytest.raises(error):
        check_dynamic("", settings)


def test_a_topics_own_segment_size_counts_before_the_brokers_internal_one() -> None:
    settings = Settings({"internal.segment.bytes": "5000"})
    assert settings.topic({}).segment_bytes == 5000
    assert settings.topic({"segment.bytes": 2_000_000}).segment_bytes == 2_000_000
    assert settings.topic({"segment.bytes": 2_000_000, "internal.segment.bytes": 9}).segment_bytes == 9


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ssl.keystore.location", "there is no encryption"),
        ("listener.name.external.ssl.key.password", "there is no encryption"),
        ("sasl.enabled.mechanisms", "no authentication"),
        ("authorizer.class.name", "there is no access control"),
        ("replication.quota.window.num", "its window is fixed"),
        ("zookeeper.connect", "the metadata is in the lake"),
        ("remote.log.storage.system.enable", "segments are not tiered"),
        ("listenersx", "Unknown broker config name"),
    ],
)
def test_a_setting_that_means_nothing_here_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as raised:
        Settings({name: "1"})
    assert name in str(raised.value)


def test_a_member_of_a_cluster_has_kafkas_defaults() -> None:
    config = Settings().broker
    assert (config.broker_heartbeat_interval_ms, config.broker_session_timeout_ms) == (2_000, 9_000)
    assert (config.initial_broker_registration_timeout_ms, config.controller_quorum_election_timeout_ms) == (
        60_000,
        1_000,
    )
    assert config.controlled_shutdown_enable and config.auto_leader_rebalance_enable
    assert config.process_roles == "broker,controller" and config.inter_broker_listener_name is None
    assert Settings({"process.roles": "controller , broker"}).broker.process_roles == "controller,broker"


def test_every_setting_is_defined_once() -> None:
    """Clients are shown a setting that means something here with its own documentation and bounds."""
    assert BROKER_SETTINGS["log.initial.task.delay.ms"].minimum == 0
    with pytest.raises(ValueError, match=r"num\.partitions is defined twice"):
        by_name([*BROKER_SETTINGS.values(), BROKER_SETTINGS["num.partitions"]])


def test_settings_that_are_taken_are_none_of_those_that_are_refused() -> None:
    assert not [name for name in BROKER_SETTINGS if "cannot be set" in reason_for_refusal(name)]


def test_the_two_names_of_a_brokers_id_agree() -> None:
    assert [Settings(given).broker.id for given in ({}, {"broker.id": "2"}, {"node.id": "3"})] == [0, 2, 3]
    assert Settings({"broker.id": "2", "node.id": "2"}).broker.id == 2
    with pytest.raises(ConfigurationError, match=r"the same value as broker\.id"):
        Settings({"broker.id": "1", "node.id": "2"})


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"group.consumer.session.timeout.ms": "44999"}, "must be greater than or equal to group.consumer.min.session"),
        ({"group.consumer.session.timeout.ms": "60001"}, "must be less than or equal to group.consumer.max.session"),
        ({"group.consumer.heartbeat.interval.ms": "4999"}, "must be greater than or equal to group.consumer.min.heart"),
        ({"group.consumer.heartbeat.interval.ms": "15001"}, "must be less than or equal to group.consumer.max.heart"),
        ({"group.consumer.max.session.timeout.ms": "1"}, "must be greater than or equal to group.consumer.min.session"),
        (
            {"group.consumer.max.heartbeat.interval.ms": "50000", "group.consumer.heartbeat.interval.ms": "45000"},
            "must be less than group.consumer.session.timeout.ms",
        ),
        ({"group.consumer.assignors": "uniform,odd"}, "String must be one of: uniform, range"),
        ({"group.consumer.assignors": ""}, "String must be one of: uniform, range"),
        (
            {"group.consumer.migration.policy": "sideways"},
            "String must be one of: bidirectional, disabled, downgrade, upgrade",
        ),
        ({"group.consumer.max.size": "0"}, "Value must be at least 1"),
    ],
)
def test_settings_of_the_consumer_protocol_bound_each_other(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        Settings(settings)


def test_the_consumer_protocol_has_kafkas_defaults() -> None:
    config = Settings().broker
    assert (config.group_consumer_session_timeout_ms, config.group_consumer_heartbeat_interval_ms) == (45_000, 5_000)
    assert config.group_consumer_assignors == "uniform,range"
    assert config.group_consumer_max_size == 2**31 - 1
