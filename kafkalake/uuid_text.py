"""A UUID as Kafka's tools print it: base64 with the URL alphabet, 22 characters. So are the ids of topics, clusters, members."""

from __future__ import annotations

import base64
from uuid import UUID


def encode_uuid(identifier: UUID) -> str:
    """Return the id's text."""
    return base64.urlsafe_b64encode(identifier.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> UUID:
    """Return the id that `encode_uuid` made this text of. Raise `ValueError` for any other text."""
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))
