"""Encodes and decodes the frames of Kafka's requests and responses, for broker and client.

Schemas (`schemas`) define each version's fields; readers and writers are made from them once for each (message, version). kio's own
native reader is not used: it allocates a claimed count before it checks the bytes, so that one hostile frame would end the process.

All malformed input raises `InvalidRequestError`. Source: Kafka protocol guide, "Headers", "Messages"; KIP-482 (flexible versions).
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from functools import cache
from typing import TypeVar, cast

from kafkalake.buffers import Buffer
from kafkalake.errors import InvalidRequestError
from kafkalake.wire.messages.message import Message
from kafkalake.wire.messages.reading import (
    ELEMENTS_MAX,
    RESPONSE_ELEMENTS_MAX,
    check_room,
    reader,
    skip_unknown_tagged_fields,
)
from kafkalake.wire.messages.schemas import request_schema, response_schema
from kafkalake.wire.messages.shapes import Schema
from kafkalake.wire.messages.writing import BYTES_MAX, UNLIMITED, request_writer, response_steps, response_writer

M = TypeVar("M", bound=Message)

SIZE_BYTES = 4
"""The bytes before a frame that hold its size."""

_FIXED = struct.Struct(">hhi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def read_fixed_header(frame: Buffer) -> tuple[int, int, int]:
    """Return (api key, version, correlation id), the part common to all versions. Raise `InvalidRequestError` if too short."""
    if len(frame) < _FIXED.size:
        raise InvalidRequestError("the request is shorter than its header")
    return _FIXED.unpack_from(frame, 0)


def read_client_id(frame: Buffer, api_key: int, version: int) -> tuple[str | None, int]:
    """Return what follows the fixed header, and the position of the body. Raise `InvalidRequestError` if it is malformed.

    The client id is a string with a 16-bit length in all versions. Flexible versions have tagged fields after it.
    """
    try:
        (length,) = _INT16.unpack_from(frame, 8)
        position = 10
        client_id = None
        if length >= 0:
            position += length
            check_room(frame, 10, length)
            client_id = str(frame[10:position], "utf-8")
        if _request_schema(api_key, version)[1]:
            position = position + 1 if frame[position] == 0 else skip_unknown_tagged_fields(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"malformed request header: {error}") from None
    return client_id, position


def decode_request(request: type[M], api_key: int, version: int, frame: Buffer) -> tuple[str | None, M]:
    """Return client id and body of a request. `bytes` fields are views of `frame`. Raise `InvalidRequestError` if it is malformed.

    Bytes after its end are ignored, as in Kafka: librdkafka appends three when it requests all topics.
    """
    client_id, position = read_client_id(frame, api_key, version)
    read = reader(request, _request_schema(api_key, version)[0])
    try:
        body, end = read(frame, position, ELEMENTS_MAX)
        if end > len(frame):
            raise IndexError(f"{end - len(frame)} bytes are missing")
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"malformed request (api {api_key}, version {version}): {error}") from None
    return client_id, cast(M, body)


def encode_request(key: int, version: int, correlation_id: int, client_id: str, message: Message) -> bytes:
    """Encode a request with its size prefix. Raise `UnsupportedVersionError` for a field's value that `version` cannot carry."""
    schema, flexible = _request_schema(key, version)
    out = bytearray(4)
    out += _FIXED.pack(key, version, correlation_id)
    client = client_id.encode()
    out += _INT16.pack(len(client)) + client
    if flexible:
        out.append(0)
    request_writer(type(message), schema)(out, message, BYTES_MAX)
    _INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def encode_response(
    key: int,
    version: int,
    correlation_id: int,
    message: Message,
    bytes_max: int = BYTES_MAX,
    elements_max: int = UNLIMITED,
) -> bytearray:
    """Encode a response with its size prefix, without fields not in `version`.

    Raise `InvalidRequestError` above `bytes_max`, `ManyElementsError` if it has more than `elements_max` structs and strings.
    """
    out, schema = _begin_response(key, version, correlation_id)
    response_writer(type(message), schema)(out, message, bytes_max, elements_max)
    _INT32.pack_into(out, 0, len(out) - 4)
    return out


def encode_response_in_steps(
    key: int, version: int, correlation_id: int, message: Message, bytes_max: int = BYTES_MAX
) -> Generator[None, None, bytearray]:
    """Encode a response as `encode_response`, with a step for each of its elements, however many."""
    out, schema = _begin_response(key, version, correlation_id)
    yield from response_steps(type(message), schema)(out, message, bytes_max)
    _INT32.pack_into(out, 0, len(out) - 4)
    return out


def _begin_response(key: int, version: int, correlation_id: int) -> tuple[bytearray, Schema]:
    """Return a frame with its header, and the schema of its body."""
    schema, flexible_header = _response_schema(key, version)
    out = bytearray(4)
    out += _INT32.pack(correlation_id)
    if flexible_header:
        out.append(0)
    return out, schema


def decode_response(response: type[M], key: int, version: int, correlation_id: int, frame: Buffer) -> M:
    """Decode the response in a frame without its size. Raise `InvalidRequestError` if it is malformed or another's."""
    schema, flexible_header = _response_schema(key, version)
    read = reader(response, schema)
    try:
        (answered,) = _INT32.unpack_from(frame, 0)
        if answered != correlation_id:
            raise IndexError(f"response {answered} instead of {correlation_id}")
        position = skip_unknown_tagged_fields(frame, 4) if flexible_header else 4
        body, end = read(frame, position, RESPONSE_ELEMENTS_MAX)
        if end != len(frame):
            raise IndexError(f"it has {len(frame)} bytes instead of {end}")
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"malformed response (api {key}, version {version}): {error}") from None
    return cast(M, body)


@cache
def _request_schema(key: int, version: int) -> tuple[Schema, bool]:
    """Return the schema and whether the header is flexible."""
    schema = request_schema(key, version)
    return schema, bool(schema.__flexible__)


@cache
def _response_schema(key: int, version: int) -> tuple[Schema, bool]:
    schema = response_schema(key, version)
    return schema, bool(schema.__header_schema__.__flexible__)
