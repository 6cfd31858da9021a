"""Writes the time that a client is to pause into an encoded answer to Produce or Fetch, whose encoders leave it 0."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from kafkalake.buffers import Buffer
from kafkalake.wire.messages.codec import SIZE_BYTES

_INT32 = struct.Struct(">i")
_PRODUCE_FLEXIBLE, _FETCH_FLEXIBLE = 9, 12


def write_produce_throttle_time(version: int, answer: Sequence[Buffer], throttle_ms: int) -> None:
    """Write the time into an answer to Produce, where it is last. An answer to acks=0 is empty."""
    if answer and isinstance(last := answer[-1], bytearray):
        position = len(last) - _INT32.size - (version >= _PRODUCE_FLEXIBLE)
        if not any(last[position:]):  # else tagged fields follow it
            _INT32.pack_into(last, position, throttle_ms)


def write_fetch_throttle_time(version: int, answer: Sequence[Buffer], throttle_ms: int) -> None:
    """Write the time into an answer to Fetch, where it is first, after size and correlation id."""
    if answer and isinstance(first := answer[0], bytearray):
        _INT32.pack_into(first, SIZE_BYTES + _INT32.size + (version >= _FETCH_FLEXIBLE), throttle_ms)
