"""UUIDs in the format of Kafka's tools: URL-safe base64, 22 characters. Used for ids of topics, clusters and members."""

from __future__ import annotations

import base64
from uuid import UUID

ZERO_UUID = UUID(int=0)
"""The id of nothing: of a topic, where a message has none."""


def encode_uuid(identifier: UUID) -> str:
    """Return the id's text."""
    return base64.urlsafe_b64encode(identifier.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID:
    """Return the id whose text `encode_uuid` returned. Raise `ValueError` for any other text."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def is_uuid_text(text: str) -> bool:
    """Return whether `decode_uuid` takes this text."""
    try:
        decode_uuid(text)
    except ValueError:
        return False
    return True
