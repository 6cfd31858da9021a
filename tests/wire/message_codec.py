"""The codec's four faces: what the broker and the client read and write, from and to plain values."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from kafkalake.run_blocking import take_all
from kafkalake.server.registry import APIS
from kafkalake.wire.messages.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    encode_response_in_steps,
    read_client_id,
    read_fixed_header,
)
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.shapes import structs

MODULES = tuple(
    {sys.modules[api.request.__module__]: None for api in APIS.values() if issubclass(api.request, Message)}
)
"""The modules with the messages of the APIs."""


@cache
def message_class(api: int | str, direction: str) -> type[Message]:
    """Return the class of the `Request` or `Response` of an API, given by its key or name."""
    name = (api if isinstance(api, str) else APIS[api].name) + direction
    return next(getattr(module, name) for module in MODULES if hasattr(module, name))


def as_message(message: type[Message], values: Mapping[str, Any]) -> Message:
    """Return a message of plain values. Unknown fields raise `TypeError`."""
    nested = structs(message)
    return message(**{name: _as_value(nested.get(name), value) for name, value in values.items()})


def _as_value(struct: type[Message] | None, value: Any) -> Any:
    if struct is None or value is None:
        return value
    return as_message(struct, value) if isinstance(value, Mapping) else [as_message(struct, each) for each in value]


class RequestHeader(NamedTuple):
    """A request header. `body` is the body's position in the frame."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int


def read_header(frame: bytes | memoryview) -> RequestHeader:
    """Return a request's header."""
    api_key, version, correlation_id = read_fixed_header(frame)
    return RequestHeader(api_key, version, correlation_id, *read_client_id(frame, api_key, version))


def server_reads(frame: bytes) -> Any:
    """Return the body of a request's frame (without its size)."""
    key, version, _ = read_fixed_header(frame)
    return decode_request(message_class(key, "Request"), key, version, frame)[1]


def server_writes(key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """Return a response's frame with its size."""
    message = as_message(message_class(key, "Response"), values)
    return bytes(encode_response(key, version, correlation_id, message))


def server_writes_in_steps(key: int, version: int, correlation_id: int, values: Mapping[str, Any]) -> bytes:
    """Return a response's frame as `server_writes`, written in steps."""
    message = as_message(message_class(key, "Response"), values)
    return bytes(take_all(encode_response_in_steps(key, version, correlation_id, message)))


def client_writes(key: int, version: int, correlation_id: int, client_id: str, values: Mapping[str, Any]) -> bytes:
    """Return a request's frame with its size."""
    return encode_request(key, version, correlation_id, client_id, as_message(message_class(key, "Request"), values))


def client_reads(key: int, version: int, correlation_id: int, frame: bytes) -> Any:
    """Return the body of a response's frame (without its size)."""
    return decode_response(message_class(key, "Response"), key, version, correlation_id, frame)
