"""The settings of one broker: its command line, and the dynamic ones of the cluster's image, which it follows.

Settings of the command line are written to `broker-settings-static.json` for jobs that work on the lake. Dynamic ones are changed
by the controller (`config_admin`). Read-only settings cannot be changed.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.cluster.image import ConfigOf, ConfigResource, ResourceKind
from kafkalake.config.accepted import reason_for_refusal
from kafkalake.config.broker import BROKER_SETTINGS
from kafkalake.config.layers import ConfigSource, Settings, changed_values
from kafkalake.config.providers import has_reference, resolvable, resolve
from kafkalake.config.setting import NO_EFFECT, Update
from kafkalake.config.setting_texts import check_length, format_value
from kafkalake.config.stored import usable_broker_settings
from kafkalake.config.values import parse_broker_settings
from kafkalake.errors import ConfigurationError, InvalidConfigError, InvalidRequestError, KafkaStorageError
from kafkalake.metadata.paths import STATIC_SETTINGS_FILE
from kafkalake.storage.files import Files, read_file, replace_file

logger = logging.getLogger(__name__)


class BrokerSettings:
    """The current settings (`current`)."""

    def __init__(self, static: Mapping[str, str], directory: str, files: Files) -> None:
        """`directory`: of the broker's logs. Raise `ConfigurationError` if a setting of the command line is invalid."""
        self._directory = directory
        self._files = files
        self._stated = dict(static)
        """The command line's settings with unresolved references to secrets, as written to files and logs."""
        self._static = resolve(static)
        self._listeners: list[Callable[[], None]] = []
        self._followed: list[Mapping[str, str]] = [{}, {}]
        """The dynamic settings that were followed last: of all brokers, of this one."""
        self.current = Settings(self._static)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)

    def show_static(self) -> None:
        """Log the command line's settings and write them beside the dynamic ones. Raise `KafkaStorageError` if that fails."""
        path = os.path.join(self._directory, STATIC_SETTINGS_FILE)
        self._log_static(path)
        try:
            replace_file(self._files, path, json.dumps(self._stated, indent=1).encode(), sync=False)
        except OSError as error:
            raise KafkaStorageError(f"cannot write {path}: {error}") from error

    def _log_static(self, path: str) -> None:
        """Log the settings that differ from the defaults, and those changed since the broker last ran."""
        if not logger.isEnabledFor(logging.INFO):
            return
        for entry in self.current.describe_broker():
            if entry.source is not ConfigSource.DEFAULT:
                setting, source = entry.setting, entry.source.name.lower()
                shown = self._shown(setting.name, entry.value)
                if setting.has_effect:
                    logger.info("broker setting name=%s value=%s source=%s", setting.name, shown, source)
                else:
                    reason = setting.documentation.removesuffix(NO_EFFECT)
                    logger.info("broker setting without effect name=%s value=%s reason=%r", setting.name, shown, reason)
        try:
            stored = json.loads(read_file(self._files, path))
            if stored == self._stated:
                return
            earlier = Settings(usable_broker_settings(resolvable(stored))[0])
        except (OSError, ValueError, AttributeError, ConfigurationError):
            return  # the first start, or nothing to compare with
        for name, old, new in changed_values(earlier.describe_broker(), Settings(self._static).describe_broker()):
            if has_reference(self._stated.get(name, "")):
                old = new = self._stated[name]
            logger.info("broker setting changed name=%s old=%s new=%s by=%s", name, old, new, "command-line")

    def _shown(self, name: str, value: str | None) -> str | None:
        stated = self._stated.get(name, "")
        return stated if has_reference(stated) else value

    def show_given(self, given: Mapping[str, str]) -> None:
        """Include values given by command-line options in the current settings."""
        self.current = self.current.with_given(given)

    def follow(self, config: ConfigOf) -> None:
        """Follow the dynamic settings of an image, and call the listeners if the current settings change."""
        names = ("", str(self.current.broker.id))
        layers = [config.get(ConfigResource(ResourceKind.BROKER, name), {}) for name in names]
        if layers == self._followed:
            return  # as with nearly every version, and comparing all values takes milliseconds
        self._followed = layers
        try:
            followed = self.current.with_dynamic(*map(self._usable, layers))
        except ConfigurationError as error:
            logger.error("settings of the cluster not followed error=%s", error)
            return
        changes = changed_values(self.current.describe_broker(), followed.describe_broker())
        if not changes:
            return
        self.current = followed
        for name, _, new in changes:
            logger.info("broker setting in force name=%s value=%s", name, new)
        for listener in self._listeners:
            call_isolated(CallbackLoop.SETTINGS_CHANGE, listener)

    def _usable(self, layer: Mapping[str, str]) -> dict[str, str]:
        usable, problems = usable_broker_settings(layer)
        for problem in problems:
            logger.warning("setting of the cluster ignored error=%s", problem)
        return usable


def check_dynamic(broker: str, settings: Mapping[str, str | None]) -> dict[str, str]:
    """Return the dynamic settings of a broker, or of all of them, as they are kept.

    Raise `InvalidConfigError` if a name is unknown, `InvalidRequestError` if a value is invalid or a setting is read-only.
    """
    checked: dict[str, str] = {}
    for name, text in settings.items():
        setting = BROKER_SETTINGS.get(name)
        if setting is None:
            raise InvalidConfigError(reason_for_refusal(name))
        if text is None:
            raise InvalidRequestError(f"Null value not supported for : {name}")
        if setting.update is Update.READ_ONLY:
            raise InvalidRequestError(f"Cannot update these configs dynamically: Set({name})")
        checked[name] = text
    try:
        for name, text in checked.items():
            check_length(name, text)
        return {name: format_value(value) or "" for name, value in parse_broker_settings(checked).items()}
    except ConfigurationError as error:
        raise InvalidRequestError(str(error)) from None
