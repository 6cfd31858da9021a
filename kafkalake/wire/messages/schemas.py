"""The schemas of messages by API and version: kio's, or our own (`own_schemas`), which few processes need.

A command that asks for topics would spend an eighth of its time on the import of the latter.
"""

from __future__ import annotations

from typing import Any

from kio.index import load_request_schema, load_response_schema

from kafkalake.wire.messages.own_keys import OWN_FROM

EXTENDED_REQUESTS = {(58, 0), (62, 4), (63, 1)}
EXTENDED_RESPONSES = {(1, 18), (27, 1)}
"""Kafka's messages, by key and version, that have own fields."""


def request_schema(key: int, version: int) -> Any:
    """Return the dataclass of a request, as kio has it."""
    if key < OWN_FROM and (key, version) not in EXTENDED_REQUESTS:
        return load_request_schema(key, version)
    from kafkalake.wire.messages.own_schemas import OWN_REQUESTS

    return OWN_REQUESTS.get((key, version)) or load_request_schema(key, version)


def response_schema(key: int, version: int) -> Any:
    """Return the dataclass of a response, as kio has it."""
    if key < OWN_FROM and (key, version) not in EXTENDED_RESPONSES:
        return load_response_schema(key, version)
    from kafkalake.wire.messages.own_schemas import OWN_RESPONSES

    return OWN_RESPONSES.get((key, version)) or load_response_schema(key, version)
