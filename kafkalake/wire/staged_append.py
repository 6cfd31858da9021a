"""AppendStaged, the one message outside of Kafka's protocol: "append these staged files, all of them or none".

It uses the Kafka port and Kafka's framing (size, API key, version, correlation id, client id; no tagged fields of KIP-482), so
that the same limits, authentication and event loop apply, and no second port is needed. Its API key is far from Kafka's and
not listed by ApiVersions. Request and response bodies are one JSON object each.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from kafkalake.buffers import Buffer
from kafkalake.errors import InvalidRequestError

API_KEY = 10_001
VERSION = 0
BODY_BYTES_MAX = 32 << 20
"""Most bytes of a request or response: about 300,000 staged files."""

_HEADER = struct.Struct(">hhih")


def encode_request(correlation_id: int, client_id: str, body: Mapping[str, Any]) -> bytes:
    """Encode a frame with its size prefix. Raise `InvalidRequestError` if the body exceeds `BODY_BYTES_MAX`."""
    client, text = client_id.encode(), json.dumps(body).encode()
    if len(text) > BODY_BYTES_MAX:
        raise InvalidRequestError(f"too many staged files: naming them takes {len(text)} bytes; use fewer tasks")
    frame = _HEADER.pack(API_KEY, VERSION, correlation_id, len(client)) + client + text
    return len(frame).to_bytes(4, "big") + frame


def body_of_request(frame: Buffer) -> bytes:
    """Return the JSON text of a request's frame (without its size). Raise `InvalidRequestError` if it is malformed or too large."""
    try:
        length = _HEADER.unpack_from(frame, 0)[3]
    except struct.error as error:
        raise InvalidRequestError(f"malformed request header: {error}") from None
    begin = _HEADER.size + max(length, 0)
    if begin > len(frame) or len(frame) - begin > BODY_BYTES_MAX:
        raise InvalidRequestError(f"an AppendStaged request of {len(frame)} bytes")
    return bytes(frame[begin:])


def encode_response(correlation_id: int, body: Mapping[str, Any]) -> bytes:
    """Encode a frame with its size prefix."""
    frame = struct.pack(">i", correlation_id) + json.dumps(body).encode()
    return len(frame).to_bytes(4, "big") + frame


def decode_response(correlation_id: int, frame: bytes) -> dict[str, Any]:
    """Decode the response in a frame (without its size). Raise `ValueError` if it is malformed or has another correlation id."""
    if len(frame) < 4 or int.from_bytes(frame[:4], "big", signed=True) != correlation_id:
        raise ValueError("not the answer to this request")
    found = json.loads(frame[4:])
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found
