"""Settings of single groups (resource type 32 of DescribeConfigs): overrides for groups of the consumer protocol.

They are in the cluster's image; the controller changes them (`broker/admin/config_admin.py`). The broker's setting is the default,
`group.consumer.session.timeout.ms` for `consumer.session.timeout.ms`. The group need not exist. A change takes effect with the next
heartbeat. Source: Apache Kafka 4.1, "Group Configs".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kafkalake.cluster.image import ConfigOf, ConfigResource, ResourceKind
from kafkalake.config.broker import BrokerConfig
from kafkalake.config.layers import ConfigEntry, ConfigSource, Synonym
from kafkalake.config.setting import Kind, Setting
from kafkalake.config.setting_texts import parse
from kafkalake.errors import ConfigurationError, InvalidConfigError, InvalidRequestError

SESSION_TIMEOUT, HEARTBEAT_INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

GROUP_SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            name=HEARTBEAT_INTERVAL,
            kind=Kind.INT,
            default=5_000,
            documentation="How often members of this group of the consumer protocol are told to send a heartbeat.",
            minimum=1,
        ),
        Setting(
            name=SESSION_TIMEOUT,
            kind=Kind.INT,
            default=45_000,
            documentation="How long a member of this group of the consumer protocol may be silent before it is out.",
            minimum=1,
        ),
    )
}


class GroupSettings:
    """The settings of all groups. Runs on the event loop's thread."""

    def __init__(self, config: Callable[[], ConfigOf], broker: Callable[[], BrokerConfig]) -> None:
        """`config` returns the settings of the image, `broker` the broker's current ones."""
        self._config = config
        self._broker = broker

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session timeout of the group's members."""
        return self._value(group_id, SESSION_TIMEOUT)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Return the heartbeat interval of the group's members."""
        return self._value(group_id, HEARTBEAT_INTERVAL)

    def _value(self, group_id: str, name: str) -> int:
        text = self._own(group_id).get(name)
        return self._default(name) if text is None else int(text)

    def _own(self, group_id: str) -> Mapping[str, str]:
        return self._config().get(ConfigResource(ResourceKind.GROUP, group_id), {})

    def _default(self, name: str) -> int:
        broker = self._broker()
        if name == SESSION_TIMEOUT:
            return broker.group_consumer_session_timeout_ms
        return broker.group_consumer_heartbeat_interval_ms

    def names(self) -> list[str]:
        """Return the groups with settings of their own, sorted."""
        return sorted(resource.name for resource in self._config() if resource.kind is ResourceKind.GROUP)

    def describe(self, group_id: str) -> list[ConfigEntry]:
        """Return all settings of a group, sorted by name. Raise `InvalidRequestError` for the empty name."""
        _check_group_name(group_id)
        return self._describe(self._own(group_id))

    def _describe(self, own: Mapping[str, str]) -> list[ConfigEntry]:
        entries = []
        for name, setting in GROUP_SETTINGS.items():
            first = Synonym(name, str(self._default(name)), ConfigSource.DEFAULT)
            if name in own:
                first = Synonym(name, own[name], ConfigSource.GROUP)
            entries.append(ConfigEntry(setting, first.value, first.source, False, (first,)))
        return entries

    def check(self, group_id: str, settings: Mapping[str, str | None]) -> dict[str, str]:
        """Return the group's new settings as they are kept.

        Raise `InvalidRequestError` (the empty name, a null) or `InvalidConfigError`.
        """
        _check_group_name(group_id)
        checked = {name: str(self._checked(name, text)) for name, text in settings.items()}
        self._check_together(checked)
        return checked

    def _checked(self, name: str, text: str | None) -> int:
        setting = GROUP_SETTINGS.get(name)
        if setting is None:
            raise InvalidConfigError(f"Unknown group config name: {name}")
        if text is None:
            raise InvalidRequestError(f"Null value not supported for : {name}")
        try:
            value = parse(setting, text)
        except ConfigurationError as error:
            raise InvalidConfigError(str(error)) from None
        assert isinstance(value, int)
        broker = self._broker()
        least, most, prefix = (
            (
                broker.group_consumer_min_session_timeout_ms,
                broker.group_consumer_max_session_timeout_ms,
                "session.timeout.ms",
            )
            if name == SESSION_TIMEOUT
            else (
                broker.group_consumer_min_heartbeat_interval_ms,
                broker.group_consumer_max_heartbeat_interval_ms,
                "heartbeat.interval.ms",
            )
        )
        if value < least:
            raise InvalidConfigError(f"{name} must be greater than or equal to group.consumer.min.{prefix}")
        if value > most:
            raise InvalidConfigError(f"{name} must be less than or equal to group.consumer.max.{prefix}")
        return value

    def _check_together(self, own: Mapping[str, str]) -> None:
        session, heartbeat = (int(own.get(name, self._default(name))) for name in (SESSION_TIMEOUT, HEARTBEAT_INTERVAL))
        if own and session <= heartbeat:
            raise InvalidConfigError(f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def _check_group_name(group_id: str) -> None:
    if not group_id:
        raise InvalidRequestError("Default group resources are not allowed.")
