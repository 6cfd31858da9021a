"""The settings of a consumer: Kafka's names, defaults and ranges. Source: Apache Kafka 4.1, "Consumer Configs".

*Different from Kafka:* `max.partition.fetch.bytes` is 4 MiB by default, which costs a quarter of the requests. What is fetched
ahead is bounded by `fetch.max.bytes`, as there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkalake.client.consuming.subscriptions import EARLIEST, LATEST
from kafkalake.client.network.settings import NetworkSettings
from kafkalake.client.settings import parse_settings
from kafkalake.config.setting import Int, Names, define
from kafkalake.errors import ConfigurationError

READ_COMMITTED = "read_committed"
_ARGUMENTS = {
    "key.deserializer": "key_deserializer",
    "value.deserializer": "value_deserializer",
    "interceptor.classes": "interceptors",
}
_OF_OTHERS = {
    "classic": ("group.remote.assignor",),
    "consumer": ("partition.assignment.strategy", "heartbeat.interval.ms", "session.timeout.ms"),
}
"""By protocol, the settings of the other one: without effect, so they are refused, as by Kafka's consumer."""
_RESETS: Mapping[str, int | None] = {"earliest": EARLIEST, "latest": LATEST, "none": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(NetworkSettings):
    """Settings of a consumer. Fields are Kafka's names with underscores."""

    group_id: str | None = define(None, "The consumer's group. None: partitions are assigned by `assign` only.")
    group_instance_id: str | None = define(None, "Makes the member static: its partitions wait for it to come back.")
    group_protocol: str = define("classic", "The protocol of the group.", choices=("classic", "consumer"))
    group_remote_assignor: str | None = define(None, "The broker's assignor, with group.protocol=consumer.")
    client_rack: str = define("", "The rack of this client, for reading from a replica nearby.")
    partition_assignment_strategy: Names = define("range,cooperative-sticky", "Assignors, most wanted first.")
    session_timeout_ms: Int = define(45_000, "After this long without a heartbeat a member is dead.", minimum=1)
    heartbeat_interval_ms: Int = define(3_000, "How often a member sends a heartbeat.", minimum=1)
    max_poll_interval_ms: Int = define(300_000, "Whoever polls less often gives its partitions up.", minimum=1)
    max_poll_records: Int = define(500, "The most records that one poll returns.", minimum=1)
    enable_auto_commit: bool = define(True, "Whether poll commits the offsets of what earlier polls returned.")
    auto_commit_interval_ms: Int = define(5_000, "How often it does.", minimum=0)
    auto_offset_reset: str = define("latest", "Where to begin without an offset.", choices=tuple(_RESETS))
    isolation_level: str = define(
        "read_uncommitted",
        "Whether records of open and aborted transactions are returned.",
        choices=("read_uncommitted", READ_COMMITTED),
    )
    fetch_min_bytes: Int = define(1, "A broker waits until it has this much.", minimum=0)
    fetch_max_wait_ms: Int = define(500, "For at most this long.", minimum=0)
    fetch_max_bytes: Int = define(
        52_428_800, "The most bytes of one response, and of what is fetched ahead.", minimum=0
    )
    max_partition_fetch_bytes: Int = define(4_194_304, "The most bytes of a partition in one response.", minimum=0)
    default_api_timeout_ms: Int = define(60_000, "How long calls wait that are given no timeout.", minimum=0)

    @property
    def reset_timestamp(self) -> int | None:
        """The timestamp of ListOffsets for `auto.offset.reset`, None for "none"."""
        return _RESETS[self.auto_offset_reset]

    @property
    def is_read_committed(self) -> bool:
        """Return whether records of open and aborted transactions are left out."""
        return self.isolation_level == READ_COMMITTED


def consumer_settings(given: Mapping[str, object]) -> ConsumerSettings:
    """Return a consumer's settings. Raise `ConfigurationError` for one that is invalid or contradicts another."""
    settings = parse_settings(ConsumerSettings, given, _ARGUMENTS)
    names = {name.replace("_", ".") for name, value in given.items() if value is not None}
    if of_others := [name for name in _OF_OTHERS[settings.group_protocol] if name in names]:
        raise ConfigurationError(f"{', '.join(of_others)} cannot be set when group.protocol={settings.group_protocol}")
    is_classic = settings.group_id is not None and settings.group_protocol == "classic"
    if is_classic and settings.heartbeat_interval_ms >= settings.session_timeout_ms:
        text = f"heartbeat.interval.ms must be less than session.timeout.ms, {settings.session_timeout_ms}"
        raise ConfigurationError(text)
    return settings
