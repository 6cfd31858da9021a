"""The broker's settings and their changes. Dynamic settings are kept in a file beside the logs.

Kafka has three layers: the command line, the cluster's default, and one broker's own. The last wins. The two dynamic layers are
in `broker-settings.json`, replaced as a whole before a change is acknowledged. Read-only settings cannot be changed.

Settings of the command line are written to `broker-settings-static.json` for jobs that work on the lake.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.config.accepted import reason_for_refusal
from kafkalake.config.broker import BROKER_SETTINGS
from kafkalake.config.layers import ConfigSource, Settings, changed_values
from kafkalake.config.providers import has_reference, resolvable, resolve
from kafkalake.config.setting import NO_EFFECT, Update
from kafkalake.config.stored import usable_broker_settings
from kafkalake.config.values import format_value
from kafkalake.errors import ConfigurationError, InvalidConfigError, InvalidRequestError, KafkaStorageError, LakeError
from kafkalake.metadata.paths import BROKER_SETTINGS_FILE as FILE_NAME
from kafkalake.metadata.paths import STATIC_SETTINGS_FILE
from kafkalake.storage.files import Files, read_file, replace_file

__all__ = ["FILE_NAME", "BrokerSettings"]

logger = logging.getLogger(__name__)


class BrokerSettings:
    """The current settings (`current`) and changes of them."""

    def __init__(self, static: Mapping[str, str], path: str, files: Files) -> None:
        """Raise `ConfigurationError` if a setting is invalid, `LakeError` if the file of dynamic settings cannot be read."""
        self._path = path
        self._files = files
        self._stated = dict(static)
        """The command line's settings with unresolved references to secrets, as written to files and logs."""
        self._static = resolve(static)
        self._listeners: list[Callable[[], None]] = []
        default, own = map(self._usable, self._read())
        self.current = Settings(self._static, default, own)

    def path_beside(self, name: str) -> str:
        """Return the path of a file in the directory of the dynamic settings."""
        return os.path.join(os.path.dirname(self._path), name)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)

    def show_static(self) -> None:
        """Log the command line's settings and write them beside the dynamic ones. Raise `KafkaStorageError` if that fails."""
        path = self.path_beside(STATIC_SETTINGS_FILE)
        self._log_static(path)
        try:
            replace_file(self._files, path, json.dumps(self._stated, indent=1).encode(), sync=False)
        except OSError as error:
            raise KafkaStorageError(f"cannot write {path}: {error}") from error

    def _log_static(self, path: str) -> None:
        """Log the settings that differ from the defaults, and those changed since the broker last ran."""
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
            stored = resolvable(json.loads(read_file(self._files, path)))
            earlier = Settings(usable_broker_settings(stored)[0])
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

    def layer(self, *, cluster_default: bool) -> dict[str, str]:
        """Return the settings of one dynamic layer as text."""
        layer = self.current.dynamic_default if cluster_default else self.current.dynamic
        return {name: format_value(value) or "" for name, value in layer.items()}

    def change(
        self, settings: Mapping[str, str | None], *, cluster_default: bool, changed_by: str, validate_only: bool
    ) -> None:
        """Replace one dynamic layer by `settings`. `changed_by` is for the log.

        Raise `InvalidConfigError` if a name is unknown, `InvalidRequestError` if a value is invalid or a setting is read-only,
        `KafkaStorageError` if the file cannot be written.
        """
        checked: dict[str, str] = {}
        for name, text in settings.items():
            setting = BROKER_SETTINGS.get(name)
            if setting is None:
                raise InvalidConfigError(reason_for_refusal(name))
            if text is None:
                raise InvalidRequestError(f"Null value not supported for : {name}")
            if setting.update is Update.READ_ONLY:
                raise InvalidRequestError(f"Cannot update these configs dynamically: [{name}]")
            checked[name] = text
        other = self.layer(cluster_default=not cluster_default)
        default, own = (checked, other) if cluster_default else (other, checked)
        try:
            changed = self.current.with_dynamic(default, own)
        except ConfigurationError as error:
            raise InvalidRequestError(str(error)) from None
        if validate_only:
            return
        try:
            content = json.dumps({"default": default, "broker": own}, indent=1).encode()
            replace_file(self._files, self._path, content, sync=True)
        except OSError as error:
            raise KafkaStorageError(f"cannot keep the settings: {error}") from error
        before, self.current = self.current, changed
        for name, old, new in changed_values(before.describe_broker(), changed.describe_broker()):
            logger.info("broker setting changed name=%s old=%s new=%s by=%s", name, old, new, changed_by)
        for listener in self._listeners:
            call_isolated(CallbackLoop.SETTINGS_CHANGE, listener)

    def _usable(self, layer: dict[str, str]) -> dict[str, str]:
        usable, problems = usable_broker_settings(layer)
        for problem in problems:
            logger.warning("broker setting ignored file=%s error=%s", self._path, problem)
        return usable

    def _read(self) -> tuple[dict[str, str], dict[str, str]]:
        try:
            content = json.loads(read_file(self._files, self._path))
            return dict(content["default"]), dict(content["broker"])
        except FileNotFoundError:
            return {}, {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LakeError(f"{self._path} cannot be read: {error}") from error
