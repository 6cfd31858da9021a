"""The codec's four faces: what the broker and the client read and write, from and to plain values."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from wire.test_wire_requests import as_plain

from kafkalake.client.requests import Api, decode_response, encode_request
from kafkalake.wire.requests import decode_request, read_header
from kafkalake.wire.responses import encode_response


def server_reads(frame: bytes) -> Any:
    """Return the body of a request's frame (without its size)."""
    return decode_request(read_header(frame), frame)


def server_writes(key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """Return a response's frame with its size."""
    return bytes(encode_response(key, version, correlation_id, values))


def client_writes(key: int, version: int, correlation_id: int, client_id: str, values: Mapping[str, Any]) -> bytes:
    """Return a request's frame with its size."""
    return encode_request(Api(key, str(key), 0, 99), version, correlation_id, client_id, values)


def client_reads(key: int, version: int, correlation_id: int, frame: bytes) -> Any:
    """Return the body of a response's frame (without its size)."""
    return _as_object(as_plain(decode_response(Api(key, str(key), 0, 99), version, correlation_id, frame)))


def _as_object(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{name: _as_object(each) for name, each in value.items()})
    return [_as_object(each) for each in value] if isinstance(value, list) else value
