"""Produce requests that differ from an earlier one of their connection in nothing but their batch.

A producer of one partition sends thousands of these a second. What is before the batch is compared as bytes instead of decoded
again, and the response is that to the earlier one with other offsets. Worked example, version 13, positions in the frame:

    0   api key, version       4   correlation id
    8   client id, acks, timeout, topic, partition: the same bytes as before, found in a dictionary
    p   length of the batch, the batch, and three empty sections of tagged fields, which end the frame

Only for flexible versions: one batch, no tagged fields, no transactional id. All others are read by `produce_request`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from kafkalake.errors import InvalidRequestError
from kafkalake.unsigned_varint import append_unsigned_varint, read_unsigned_varint
from kafkalake.wire.messages.codec import read_client_id
from kafkalake.wire.produce_request import API_KEY, ProduceBody, ProducedTopic, read_produce
from kafkalake.wire.produce_response import Appended, encode_produced

_PATTERNS_MAX = 8
_PATTERN_BYTES_MAX = 512
_MISSES_MAX = 1_000
"""After so many requests of no known pattern others are learned in place of all. Each costs as much as a request."""
_BEFORE = 8
_ENDS = b"\0\0\0"
_FLEXIBLE_SINCE = 9
_CORRELATION_ID = struct.Struct(">i")
_OFFSETS = struct.Struct(">qqq")


class _Place(NamedTuple):
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


_ANYWHERE = _Place(0x1122334455667788, 0x2233445566778899, 0x33445566778899AA)


class ProducePattern:
    """The common part of requests of one batch, and of their responses. `body` has no records."""

    __slots__ = ("_offsets_at", "_response", "body", "client_id", "index", "topic", "version")

    def __init__(self, version: int, client_id: str | None, body: ProduceBody) -> None:
        self.version = version
        self.client_id = client_id
        self.body = body
        self.topic = body.topics[0]
        self.index = self.topic.partitions[0][0]
        self._response = encode_produced(version, 0, body.topics, [_ANYWHERE], str)
        self._offsets_at = self._response.rindex(_OFFSETS.pack(*_ANYWHERE))

    def with_records(self, records: memoryview) -> ProduceBody:
        """Return the body of a request with this batch."""
        name, topic_id, _ = self.topic
        _, acks, timeout_ms, _, _ = self.body
        return ProduceBody(None, acks, timeout_ms, [ProducedTopic(name, topic_id, [(self.index, records)])], self)

    def encode(self, correlation_id: int, appended: Appended) -> bytearray:
        """Return what `encode_produced` does for an appended batch."""
        response = self._response.copy()
        _CORRELATION_ID.pack_into(response, 4, correlation_id)
        place = appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
        _OFFSETS.pack_into(response, self._offsets_at, *place)
        return response


class ProducePatterns:
    """The patterns of one connection's requests, at most `_PATTERNS_MAX`, all of one length: that of the first."""

    __slots__ = ("_end", "_known", "_misses")

    def __init__(self) -> None:
        self._known: dict[bytes, ProducePattern] = {}
        self._end = _BEFORE
        self._misses = 0

    def read(self, frame: memoryview, version: int, partitions_max: int) -> tuple[str | None, ProduceBody]:
        """Return client id and body of a Produce request. Raise as `read_produce` does."""
        end = self._end
        pattern = self._known.get(bytes(frame[_BEFORE:end]))
        if pattern is not None and pattern.version == version:
            records = _only_records(frame, end)
            if records is not None:
                return pattern.client_id, pattern.with_records(records)
        client_id, position = read_client_id(frame, API_KEY, version)
        body = read_produce(frame, position, version, partitions_max)
        if version >= _FLEXIBLE_SINCE:
            self._missed(frame, version, client_id, body)
        return client_id, body

    def _missed(self, frame: memoryview, version: int, client_id: str | None, body: ProduceBody) -> None:
        self._misses += 1
        if self._misses > _MISSES_MAX:
            self._known.clear()
            self._misses = 0
        if len(self._known) < _PATTERNS_MAX:
            self._learn(frame, version, client_id, body)

    def _learn(self, frame: memoryview, version: int, client_id: str | None, body: ProduceBody) -> None:
        records = _records_of(body)
        if not records or body.transactional_id is not None:
            return
        size = bytearray()
        append_unsigned_varint(size, len(records) + 1)
        end = len(frame) - len(_ENDS) - len(records) - len(size)
        if end > _PATTERN_BYTES_MAX or (self._known and end != self._end):
            return
        begin = bytes(frame[:end])
        if _is_beginning(begin, version, client_id, body):
            self._end = end
            topic = body.topics[0]
            topic = ProducedTopic(topic.name, topic.topic_id, [(topic.partitions[0][0], None)])
            self._known[begin[_BEFORE:]] = ProducePattern(version, client_id, body._replace(topics=[topic]))


def _records_of(body: ProduceBody) -> memoryview | None:
    """Return the one batch of a request, None if it has none or several."""
    if len(body.topics) != 1 or len(body.topics[0].partitions) != 1:
        return None
    return body.topics[0].partitions[0][1]


def _only_records(frame: memoryview, position: int) -> memoryview | None:
    """Return the batch whose length is at `position`, None if anything but empty tagged fields follows it."""
    try:
        length, begin = read_unsigned_varint(frame, position)
    except IndexError:
        return None
    end = begin + length - 1
    if not length or end + len(_ENDS) != len(frame) or frame[end:] != _ENDS:
        return None
    return frame[begin:end]


def _is_beginning(begin: bytes, version: int, client_id: str | None, body: ProduceBody) -> bool:
    """Return whether `begin`, with an empty batch behind it, is a whole request with that client id and body.

    If it ended too late, the batch in it would be found, which is not empty; too early, and the bytes would not suffice.
    """
    frame = memoryview(begin + b"\x01" + _ENDS)
    try:
        read, position = read_client_id(frame, API_KEY, version)
        found = read_produce(frame, position, version)
    except InvalidRequestError:
        return False
    records = _records_of(found)
    if read != client_id or records is None or len(records):
        return False
    topic, other = body.topics[0], found.topics[0]
    return found[:3] == body[:3] and topic[:2] == other[:2] and topic.partitions[0][0] == other.partitions[0][0]
