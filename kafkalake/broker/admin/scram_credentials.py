"""SCRAM credentials of users as settings: salt, iterations and the two keys that prove a password (RFC 5802), not the password.

No listener asks for them yet. They are stored and shown as in an Apache Kafka whose listeners are all PLAINTEXT.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Mapping
from typing import NamedTuple

from kafkalake.cluster.image import ConfigOf, ConfigResource, ResourceKind
from kafkalake.errors import InvalidRequestError, UnacceptableCredentialError, UnsupportedSaslMechanismError

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_ITERATIONS_MIN, _ITERATIONS_MAX = 4_096, 16_384
_SALTED_BYTES_MAX = 1_024


class Credential(NamedTuple):
    """A credential as it is shown: the number of its mechanism and its iterations."""

    mechanism: int
    iterations: int


def user_resource(user: str) -> ConfigResource:
    """Return the resource with a user's credentials. Raise `UnacceptableCredentialError` for the empty name."""
    if not user:
        raise UnacceptableCredentialError("Username must not be empty")
    return ConfigResource(ResourceKind.USER, user)


def mechanism_name(mechanism: int) -> str:
    """Return the name of a mechanism. Raise `UnsupportedSaslMechanismError` if it is none."""
    name = MECHANISMS.get(mechanism)
    if name is None:
        raise UnsupportedSaslMechanismError("Unknown SCRAM mechanism")
    return name


def credential_text(mechanism: str, iterations: int, salt: bytes, salted_password: bytes) -> str:
    """Return a credential as it is kept. Raise `UnacceptableCredentialError` if it has too few or too many iterations."""
    if iterations < _ITERATIONS_MIN:
        raise UnacceptableCredentialError("Too few iterations")
    if iterations > _ITERATIONS_MAX:
        raise UnacceptableCredentialError("Too many iterations")
    if max(len(salt), len(salted_password)) > _SALTED_BYTES_MAX:
        raise UnacceptableCredentialError("Too long")
    digest = _HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    fields = {
        "iterations": str(iterations),
        "salt": _text(salt),
        "stored_key": _text(hashlib.new(digest, client_key).digest()),
        "server_key": _text(hmac.digest(salted_password, b"Server Key", digest)),
    }
    return ",".join(f"{name}={value}" for name, value in fields.items())


def _text(data: bytes) -> str:
    return b64encode(data).decode()


def check_credentials(user: str, settings: Mapping[str, str | None]) -> dict[str, str]:
    """Return a user's credentials as they are kept. Raise `InvalidRequestError` if one is missing."""
    checked = {name: text for name, text in settings.items() if text is not None}
    if len(checked) < len(settings):
        raise InvalidRequestError(f"a credential of {user} is missing")
    return checked


def users(config: ConfigOf) -> list[str]:
    """Return the users that have credentials, in order of names."""
    return sorted(resource.name for resource in config if resource.kind is ResourceKind.USER)


def credentials(config: ConfigOf, user: str) -> list[Credential]:
    """Return the credentials of a user in order of mechanisms, none if there is no such user."""
    own = config.get(ConfigResource(ResourceKind.USER, user), {})
    return [Credential(number, _iterations(own[name])) for number, name in MECHANISMS.items() if name in own]


def _iterations(text: str) -> int:
    fields = dict(part.split("=", 1) for part in text.split(","))
    return int(fields["iterations"])
