"""A hand-written encoder of the Produce request for clients: its record batches, nearly all of its bytes, are not copied.

Equivalent to `messages.codec.encode_request`. Tests hold them equal. Source: ProduceRequest in Kafka's protocol guide.
"""

from __future__ import annotations

import struct

from kafkalake.buffers import Buffer
from kafkalake.unsigned_varint import append_unsigned_varint
from kafkalake.wire.messages.records import ProduceRequest
from kafkalake.wire.produce_request import API_KEY

_HEADER = struct.Struct(">ihhih")
_ACKS_TIMEOUT = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_FLEXIBLE_FROM = 9


def encode_produce(version: int, correlation_id: int, client_id: str, message: ProduceRequest) -> list[Buffer]:
    """Return the parts of a request's frame, with its size first. Versions 3 to 12: topics by name."""
    flexible = version >= _FLEXIBLE_FROM
    client = client_id.encode()
    first = part = bytearray(_HEADER.pack(0, API_KEY, version, correlation_id, len(client)) + client)
    parts: list[Buffer] = [part]
    if flexible:
        part.append(0)
    transactional_id = message.transactional_id
    _append_length(part, -1 if transactional_id is None else len(transactional_id.encode()), _INT16, flexible=flexible)
    part += b"" if transactional_id is None else transactional_id.encode()
    part += _ACKS_TIMEOUT.pack(message.acks, message.timeout)
    _append_length(part, len(message.topic_data), _INT32, flexible=flexible)
    for topic in message.topic_data:
        name = topic.name.encode()
        _append_length(part, len(name), _INT16, flexible=flexible)
        part += name
        _append_length(part, len(topic.partition_data), _INT32, flexible=flexible)
        for each in topic.partition_data:
            part += _INT32.pack(each.index)
            _append_length(part, -1 if each.records is None else len(each.records), _INT32, flexible=flexible)
            if each.records is not None:
                part = bytearray()
                parts += [each.records, part]
            if flexible:
                part.append(0)
        if flexible:
            part.append(0)
    if flexible:
        part.append(0)
    _INT32.pack_into(first, 0, sum(map(len, parts)) - _INT32.size)
    return [each for each in parts if len(each)]


def _append_length(out: bytearray, length: int, plain: struct.Struct, *, flexible: bool) -> None:
    """Append a length, -1 for null: as a varint of length + 1 in flexible versions, or as an integer."""
    if flexible:
        append_unsigned_varint(out, length + 1)
    else:
        out += plain.pack(length)
