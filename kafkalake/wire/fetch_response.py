"""A hand-written encoder of the Fetch response, in pieces, so that records are not copied.

Tests hold it equal to that of `messages`. Source: FetchResponse in Kafka's protocol guide, versions 4-18.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from uuid import UUID

from kafkalake.unsigned_varint import append_unsigned_varint
from kafkalake.wire.messages.message import Buffer

_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_ABORTED = struct.Struct(">qq")
_PARTITION_4 = struct.Struct(">ihqq")
_PARTITION_5 = struct.Struct(">ihqqq")


class FetchResponseEncoder:
    """A response under construction: of each topic `begin_topic`, its partitions, `end_topic`, then `finish`."""

    def __init__(self, version: int, correlation_id: int, error_code: int, session_id: int, topics: int) -> None:
        self._version = version
        self._flexible = version >= 12
        self._current = head = bytearray(4)
        self._pieces: list[Buffer] = [head]
        head += _INT32.pack(correlation_id)
        if self._flexible:
            head.append(0)
        head += bytes(4)  # throttle time
        if version >= 7:
            head += _INT16.pack(error_code)
            head += _INT32.pack(session_id)
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
    ) -> None:
        """Add a partition. `offsets`: high watermark, last stable offset, log start offset. `aborted`: (producer id, first offset).

        `records` is not copied. `diverging`: (epoch, end offset).
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
            out += b"\xff\xff\xff\xff"  # no preferred read replica
        self._append_length(sum(len(piece) for piece in records))
        if records:
            self._pieces += records
            self._current = bytearray()
            self._pieces.append(self._current)
        if not flexible:
            return
        if diverging is None:
            self._current.append(0)
        else:
            self._current += b"\x01\x00\x0d"  # one field: tag 0, 13 bytes
            self._current += struct.pack(">iq", *diverging) + b"\x00"

    def end_topic(self) -> None:
        """End a topic."""
        if self._flexible:
            self._current.append(0)

    def finish(self) -> list[Buffer]:
        """Return the pieces, including the size prefix."""
        self.end_topic()  # the response's tagged fields are as empty as a topic's
        head = self._pieces[0]
        _INT32.pack_into(head, 0, sum(len(piece) for piece in self._pieces) - 4)
        return [piece for piece in self._pieces if len(piece)]
