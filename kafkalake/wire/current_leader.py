"""The leader of a partition, in an error of a Produce or Fetch response, with its address: a client needs no Metadata (KIP-951).

The tagged fields CurrentLeader of a partition and NodeEndpoints of the response.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import NamedTuple

from kafkalake.errors import FencedLeaderEpochError, KafkaError, NotLeaderOrFollowerError
from kafkalake.unsigned_varint import append_unsigned_varint

_LEADER = struct.Struct(">ii")
_INT32 = struct.Struct(">i")
_NODES_TAG = 0


class Node(NamedTuple):
    """A broker's address at the listener of the client."""

    node_id: int
    host: str
    port: int
    rack: str | None


class CurrentLeader(NamedTuple):
    """The leader of a partition, -1 for none, its epoch, and its address if it is known."""

    leader_id: int
    leader_epoch: int
    node: Node | None


def names_leader(error: KafkaError | None) -> bool:
    """Return whether an error of a partition comes with its leader."""
    return isinstance(error, NotLeaderOrFollowerError | FencedLeaderEpochError)


def leader_value(leader: CurrentLeader) -> bytes:
    """Return the value of the tagged field CurrentLeader."""
    return _LEADER.pack(leader.leader_id, leader.leader_epoch) + b"\x00"


def append_nodes(out: bytearray, nodes: Collection[Node]) -> None:
    """Append the tagged fields of a response: NodeEndpoints, or none."""
    if not nodes:
        out.append(0)
        return
    each_once = sorted(set(nodes), key=lambda node: node.node_id)
    value = bytearray()
    append_unsigned_varint(value, len(each_once) + 1)
    for node in each_once:
        value += _INT32.pack(node.node_id)
        _append_text(value, node.host)
        value += _INT32.pack(node.port)
        _append_text(value, node.rack)
        value.append(0)
    append_unsigned_varint(out, 1)
    append_unsigned_varint(out, _NODES_TAG)
    append_unsigned_varint(out, len(value))
    out += value


def _append_text(out: bytearray, text: str | None) -> None:
    encoded = b"" if text is None else text.encode()
    append_unsigned_varint(out, 0 if text is None else len(encoded) + 1)
    out += encoded
