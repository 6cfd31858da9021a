"""Settings in files beside a broker's logs, where releases before 0.2 kept the dynamic ones. They belong to the cluster now.

At its first start a broker hands them over to the control store (`ConfigAdmin.take`) and removes the files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from kafkalake.cluster.image import ConfigOf, ConfigResource, ResourceKind
from kafkalake.errors import KafkaStorageError, LakeError
from kafkalake.metadata.paths import BROKER_SETTINGS_FILE, GROUP_SETTINGS_FILE
from kafkalake.storage.files import Files, read_file


class KeptSettings:
    """The files of one broker, in the directory of its logs."""

    def __init__(self, directory: str, broker_id: int, files: Files) -> None:
        """Raise `LakeError` if a file cannot be read."""
        self._directory = directory
        self._files = files
        self.config = self._read(broker_id)
        """The settings in the files, empty without files."""

    def _read(self, broker_id: int) -> ConfigOf:
        layers = self._content(BROKER_SETTINGS_FILE, str)
        groups = self._content(GROUP_SETTINGS_FILE, lambda value: str(int(value)))
        found = {
            ConfigResource(ResourceKind.BROKER, ""): layers.get("default", {}),
            ConfigResource(ResourceKind.BROKER, str(broker_id)): layers.get("broker", {}),
            **{ConfigResource(ResourceKind.GROUP, group): own for group, own in groups.items()},
        }
        return {resource: own for resource, own in found.items() if own}

    def _content(self, name: str, text_of: Callable[[str], str]) -> Mapping[str, Mapping[str, str]]:
        path = os.path.join(self._directory, name)
        try:
            content: Any = json.loads(read_file(self._files, path))
            return {
                str(key): {str(setting): text_of(value) for setting, value in own.items()}
                for key, own in content.items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise LakeError(f"{path} cannot be read: {error}") from error

    def remove(self) -> None:
        """Remove the files, durably. Raise `KafkaStorageError` if that fails."""
        try:
            for name in (BROKER_SETTINGS_FILE, GROUP_SETTINGS_FILE):
                if name in self._files.list(self._directory):
                    self._files.unlink(os.path.join(self._directory, name))
            self._files.sync_directory(self._directory)
        except OSError as error:
            raise KafkaStorageError(f"cannot remove settings in {self._directory}: {error}") from error
