"""Hand-written encoders of the responses to Fetch and FetchSegment, in pieces, so that records and files are not copied.

Tests hold them equal to those of `messages`. Source: FetchResponse in Kafka's protocol guide, versions 4-18.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from kafkalake.buffers import Buffer
from kafkalake.unsigned_varint import append_unsigned_varint
from kafkalake.wire.current_leader import CurrentLeader, Node, append_nodes, leader_value
from kafkalake.wire.messages.own_keys import OWN_FROM
from kafkalake.wire.messages.replication import FetchSegmentResponse

_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_ABORTED = struct.Struct(">qq")
_HEAD_4 = struct.Struct(">iii")
"""Size, correlation id, throttle time."""
_HEAD_7 = struct.Struct(">iiihi")
"""And error code, session id."""
_HEAD_12 = struct.Struct(">iiBihi")
"""And tagged fields after the correlation id."""
_PARTITION_4 = struct.Struct(">ihqq")
_PARTITION_5 = struct.Struct(">ihqqq")
_NODES_SINCE = 16
_INT64 = struct.Struct(">q")
_EPOCH_END = struct.Struct(">iq")
_SEGMENT_HEAD = struct.Struct(">iiBihqqq")
_WHOLE_SEGMENT = struct.Struct(">qqiqq")
_NO_TRANSACTIONS_NO_REPLICA = b"\x01\xff\xff\xff\xff"


def _diverging_field(diverging: tuple[int, int]) -> tuple[int, bytes]:
    return 0, _EPOCH_END.pack(*diverging) + b"\x00"


def encode_segment_part(correlation_id: int, part: FetchSegmentResponse) -> list[Buffer]:
    """Return a response to FetchSegment, including the size prefix, in pieces: its data are not copied."""
    head = bytearray(_SEGMENT_HEAD.size)
    append_unsigned_varint(head, len(part.data) + 1)
    size = len(head) + len(part.data) + 1 - _INT32.size
    offsets = part.next_offset, part.size_bytes, part.txn_index_bytes
    _SEGMENT_HEAD.pack_into(head, 0, size, correlation_id, 0, part.throttle_time, part.error_code, *offsets)
    return [head, part.data, b"\x00"]


class FetchResponseEncoder:
    """A response under construction: of each topic `begin_topic`, its partitions, `end_topic`, then `finish`."""

    def __init__(self, version: int, correlation_id: int, error_code: int, session_id: int, topics: int) -> None:
        self._version = version
        self._flexible = version >= 12
        self._nodes: list[Node] = []
        if self._flexible:
            head = bytearray(_HEAD_12.pack(0, correlation_id, 0, 0, error_code, session_id))
        elif version >= 7:
            head = bytearray(_HEAD_7.pack(0, correlation_id, 0, error_code, session_id))
        else:
            head = bytearray(_HEAD_4.pack(0, correlation_id, 0))
        self._current = head
        self._pieces: list[Buffer] = [head]
        self._append_length(topics)

    def _append_length(self, count: int) -> None:
        if self._flexible:
            append_unsigned_varint(self._current, count + 1)
        else:
            self._current += _INT32.pack(count)

    def begin_topic(self, topic: str | UUID, partitions: int) -> None:
        """Begin a topic, by name or id."""
        if isinstance(topic, UUID):
            self._current += topic.bytes
        else:
            name = topic.encode()
            if self._flexible:
                append_unsigned_varint(self._current, len(name) + 1)
            else:
                self._current += _INT16.pack(len(name))
            self._current += name
        self._append_length(partitions)

    def add_partition(
        self,
        index: int,
        error_code: int,
        offsets: tuple[int, int, int],
        aborted: Sequence[tuple[int, int]] | None,
        records: Sequence[Buffer],
        diverging: tuple[int, int] | None,
        leader: CurrentLeader | None = None,
        preferred_read_replica: int = -1,
    ) -> None:
        """Add a partition. `offsets`: high watermark, last stable offset, log start offset. `aborted`: (producer id, first offset).

        `records` is not copied. `diverging`: (epoch, end offset). `leader`: with an error that names it.
        """
        out, version, flexible = self._current, self._version, self._flexible
        if version >= 5:
            out += _PARTITION_5.pack(index, error_code, *offsets)
        else:
            out += _PARTITION_4.pack(index, error_code, *offsets[:2])
        if aborted is None:
            out += b"\x00" if flexible else b"\xff\xff\xff\xff"
        else:
            self._append_length(len(aborted))
            for transaction in aborted:
                out += _ABORTED.pack(*transaction)
                if flexible:
                    out.append(0)
        if version >= 11:
            out += _INT32.pack(preferred_read_replica)
        self._append_length(sum(map(len, records)))
        if records:
            self._pieces += records
            self._current = bytearray()
            self._pieces.append(self._current)
        if flexible:
            fields = [] if diverging is None else [_diverging_field(diverging)]
            if leader is not None:
                fields.append((1, leader_value(leader)))
                if leader.node is not None:
                    self._nodes.append(leader.node)
            self._append_tagged(fields)

    def add_followed_partition(
        self,
        index: int,
        error_code: int,
        offsets: tuple[int, int, int],
        messages: Buffer,
        diverging: tuple[int, int] | None,
        segment_base_offset: int,
        ends_segment: bool,
        whole: tuple[int, int, int, int, int] | None,
    ) -> None:
        """Add a partition for a follower, with kafkalake's own fields (`messages.own_schemas.PartitionData`).

        `offsets`, `diverging`: as for `add_partition`. `messages` is not copied. `whole`: the fields of `WholeSegment`.
        """
        out = self._current
        out += _PARTITION_5.pack(index, error_code, *offsets)
        out += _NO_TRANSACTIONS_NO_REPLICA
        self._append_length(len(messages))
        if len(messages):
            self._current = bytearray()
            self._pieces += (messages, self._current)
        fields = [] if diverging is None else [_diverging_field(diverging)]
        if segment_base_offset >= 0:
            fields.append((OWN_FROM, _INT64.pack(segment_base_offset)))
        if ends_segment:
            fields.append((OWN_FROM + 1, b"\x01"))
        if whole is not None:
            fields.append((OWN_FROM + 2, _WHOLE_SEGMENT.pack(*whole) + b"\x00"))
        self._append_tagged(fields)

    def _append_tagged(self, fields: Sequence[tuple[int, bytes]]) -> None:
        """Append tagged fields, in order of their tags."""
        out = self._current
        append_unsigned_varint(out, len(fields))
        for tag, value in fields:
            append_unsigned_varint(out, tag)
            append_unsigned_varint(out, len(value))
            out += value

    def end_topic(self) -> None:
        """End a topic."""
        if self._flexible:
            self._current.append(0)

    def finish(self) -> list[Buffer]:
        """Return the pieces, including the size prefix."""
        if self._flexible:
            append_nodes(self._current, self._nodes if self._version >= _NODES_SINCE else ())
        head = self._pieces[0]
        _INT32.pack_into(head, 0, sum(map(len, self._pieces)) - 4)
        return [piece for piece in self._pieces if len(piece)]
