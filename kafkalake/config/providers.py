"""Resolves references in settings, like Kafka's config providers.

    ${file:/etc/kafkalake/secrets.properties:keystore.password}    a line of a file of `name=value` lines
    ${env:KEYSTORE_PASSWORD}                                        an environment variable

A resolved value may be a secret, so it stays in memory. Files, logs and messages contain the reference.
Source: KIP-297, `FileConfigProvider`, `EnvVarConfigProvider`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from kafkalake.config.properties import read_properties
from kafkalake.errors import ConfigurationError

_REFERENCE = re.compile(r"\$\{(file|env):([^}]*)\}")


def has_reference(text: str) -> bool:
    """Return whether a value contains a reference."""
    return _REFERENCE.search(text) is not None


def resolve(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with resolved references. Raise `ConfigurationError` if one cannot be resolved."""
    return {
        name: _REFERENCE.sub(lambda found: _look_up(found[0], found[1], found[2]), text)
        for name, text in settings.items()
    }


def resolvable(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings as `resolve`, without those that cannot be resolved: another process may lack access to the secrets."""
    found = {}
    for name, text in settings.items():
        try:
            found.update(resolve({name: text}))
        except ConfigurationError:
            continue
    return found


def without_secrets(text: str, stated: Mapping[str, str], resolved: Mapping[str, str]) -> str:
    """Return a message about settings with the resolved values replaced by their references."""
    for name, value in resolved.items():
        if value and has_reference(stated.get(name, "")):
            text = text.replace(value, stated[name])
    return text


def _look_up(reference: str, provider: str, rest: str) -> str:
    if provider == "env":
        if rest not in os.environ:
            raise ConfigurationError(f"{reference}: there is no environment variable of that name")
        return os.environ[rest]
    path, colon, key = rest.rpartition(":")
    if not colon:
        raise ConfigurationError(f"{reference}: it takes a file and a name in it, ${{file:PATH:NAME}}")
    values = read_properties(Path(path))
    if key not in values:
        raise ConfigurationError(f"{reference}: the file has no line {key}=...")
    return values[key]
