"""The codec's four faces: what the broker and the client read and write, from and to plain values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

from kafkalake.client.requests import Api
from kafkalake.client.requests import decode_response as decode_with_kio
from kafkalake.client.requests import encode_request as encode_with_kio
from kafkalake.server.registry import APIS
from kafkalake.wire.messages import cluster, groups, offsets, records, topics, transactions
from kafkalake.wire.messages.codec import decode_request, encode_response, read_header
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.shapes import structs

MODULES = (cluster, groups, offsets, records, topics, transactions)


@cache
def message_class(key: int, direction: str) -> type[Message]:
    """Return the class of an API's `Request` or `Response`."""
    name = APIS[key].name + direction
    return next(getattr(module, name) for module in MODULES if hasattr(module, name))


def as_message(message: type[Message], values: Mapping[str, Any]) -> Message:
    """Return a message of plain values. Unknown fields raise `TypeError`."""
    nested = structs(message)
    return message(**{name: _as_value(nested.get(name), value) for name, value in values.items()})


def _as_value(struct: type[Message] | None, value: Any) -> Any:
    if struct is None or value is None:
        return value
    return [as_message(struct, each) for each in value] if isinstance(value, list) else as_message(struct, value)


def server_reads(frame: bytes) -> Any:
    """Return the body of a request's frame (without its size)."""
    header = read_header(frame)
    return decode_request(message_class(header.api_key, "Request"), header, frame)


def server_writes(key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """Return a response's frame with its size."""
    message = as_message(message_class(key, "Response"), values)
    return bytes(encode_response(key, version, correlation_id, message))


def client_writes(key: int, version: int, correlation_id: int, client_id: str, values: Mapping[str, Any]) -> bytes:
    """Return a request's frame with its size."""
    return encode_with_kio(Api(key, str(key), 0, 99), version, correlation_id, client_id, values)


def client_reads(key: int, version: int, correlation_id: int, frame: bytes) -> Any:
    """Return the body of a response's frame (without its size)."""
    from wire.test_wire_requests import as_plain

    return _as_object(as_plain(decode_with_kio(Api(key, str(key), 0, 99), version, correlation_id, frame)))


def _as_object(value: Any) -> Any:
    if isinstance(value, dict):
        return SimpleNamespace(**{name: _as_object(each) for name, each in value.items()})
    return [_as_object(each) for each in value] if isinstance(value, list) else value
