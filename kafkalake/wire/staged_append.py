"""AppendStaged, the one message that Kafka's protocol does not have: "append these staged files, all of them or none".

It comes on the Kafka port, in a frame like any other (size, API key, version, correlation id, client id; KIP-482's tagged fields
are not there), so that it goes through the same limits, the same authentication and the same event loop, and needs no second
port. The key is far from Kafka's, and ApiVersions does not name it. The body is one JSON object, and so is the answer.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from kafkalake.errors import InvalidRequestError

API_KEY = 10_001
VERSION = 0
BODY_BYTES_MAX = 32 << 20
"""The most that a request or an answer may take: about 300,000 staged files."""

_HEADER = struct.Struct(">hhih")


def encode_request(correlation_id: int, client_id: str, body: Mapping[str, Any]) -> bytes:
    """A whole frame, its size in front. Raises `InvalidRequestError` for a body that no broker takes."""
    client, text = client_id.encode(), json.dumps(body).encode()
    if len(text) > BODY_BYTES_MAX:
        raise InvalidRequestError(f"too many staged files: naming them takes {len(text)} bytes; use fewer tasks")
    frame = _HEADER.pack(API_KEY, VERSION, correlation_id, len(client)) + client + text
    return len(frame).to_bytes(4, "big") + frame


def body_of_request(frame: Any) -> bytes:
    """The JSON text of a request's frame (without its size). Raises `InvalidRequestError`."""
    try:
        length = _HEADER.unpack_from(frame, 0)[3]
    except struct.error as error:
        raise InvalidRequestError(f"malformed request header: {error}") from None
    begin = _HEADER.size + max(length, 0)
    if begin > len(frame) or len(frame) - begin > BODY_BYTES_MAX:
        raise InvalidRequestError(f"an AppendStaged request of {len(frame)} bytes")
    return bytes(frame[begin:])


def encode_response(correlation_id: int, body: Mapping[str, Any]) -> bytes:
    """A whole frame, its size in front."""
    frame = struct.pack(">i", correlation_id) + json.dumps(body).encode()
    return len(frame).to_bytes(4, "big") + frame


def decode_response(correlation_id: int, frame: bytes) -> dict[str, Any]:
    """The answer in a frame (without its size). Raises ValueError."""
    if len(frame) < 4 or int.from_bytes(frame[:4], "big", signed=True) != correlation_id:
        raise ValueError("not the answer to this request")
    found = json.loads(frame[4:])
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    return found
