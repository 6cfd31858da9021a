"""A client that says exactly what it is told: any API, any version, any bytes. For tests of what real clients never send."""

from __future__ import annotations

import gzip
import socket
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from crc32c import crc32c
from waiting import wait_until
from wire.message_codec import as_message, message_class

from kafkalake.server.registry import APIS
from kafkalake.wire.messages.codec import decode_response, encode_request

CLIENT_ID = "wire-client"
KEYS = {api.name: api.key for api in APIS.values()}


class WireClient:
    """One connection. Requests are plain values with the field names of Kafka's messages; answers `wire.messages`."""

    def __init__(self, servers: str, timeout_s: float = 20.0, *, client_id: str = CLIENT_ID) -> None:
        host, port = servers.rsplit(":", 1)
        self._client_id = client_id
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._correlation_id = 0

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def call(self, api: str, version: int, **values: Any) -> Any:
        """Send one request and read its answer."""
        correlation_id = self.send(api, version, **values)
        return self.receive(api, version, correlation_id)

    def send(self, api: str, version: int, **values: Any) -> int:
        """Send one request; returns its correlation id."""
        self._correlation_id += 1
        self.socket.sendall(encode(api, version, self._correlation_id, values, self._client_id))
        return self._correlation_id

    def receive(self, api: str, version: int, correlation_id: int) -> Any:
        """Read the next answer, which must be to that request."""
        return decode(api, version, correlation_id, self.receive_frame())

    def receive_frame(self) -> bytes:
        """The next frame without its size. Raises `ConnectionError` when the broker has closed the connection."""
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def is_closed(self) -> bool:
        """Whether the broker closes the connection (or has) without sending anything more; waits for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, length: int) -> bytes:
        data = bytearray()
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return bytes(data)


def encode(api: str, version: int, correlation_id: int, values: Mapping[str, Any], client_id: str = CLIENT_ID) -> bytes:
    """A whole request with its size in front."""
    return encode_request(
        KEYS[api], version, correlation_id, client_id, as_message(message_class(api, "Request"), values)
    )


def decode(api: str, version: int, correlation_id: int, frame: bytes) -> Any:
    """The answer in a frame without its size."""
    return decode_response(message_class(api, "Response"), KEYS[api], version, correlation_id, frame)


def code(value: Any) -> int:
    """The number of an error code in an answer."""
    return int(value)


Message = tuple[bytes | None, bytes | None]


def varint(value: int) -> bytes:
    """A zigzag varint, as records have them."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value & ~0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def batch(
    messages: Sequence[Message],
    *,
    timestamp: int | None = None,
    base_offset: int = 0,
    magic: int = 2,
    attributes: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    count: int | None = None,
    last_offset_delta: int | None = None,
    bad_checksum: bool = False,
) -> bytes:
    """A record batch v2, uncompressed, as right or as wrong as asked."""
    timestamp = int(time.time() * 1000) if timestamp is None else timestamp
    records = b"".join(_record(number, 0, key, value) for number, (key, value) in enumerate(messages))
    body = struct.pack(
        ">hiqqqhii",
        attributes,
        len(messages) - 1 if last_offset_delta is None else last_offset_delta,
        timestamp,
        timestamp,
        producer_id,
        epoch,
        sequence,
        len(messages) if count is None else count,
    )
    body += records
    checksum = crc32c(body) ^ (1 if bad_checksum else 0)
    return struct.pack(">qiibI", base_offset, len(body) + 9, 0, magic, checksum) + body


def _record(number: int, timestamp_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    parts = b"\0" + varint(timestamp_delta) + varint(number)
    for each in (key, value):
        parts += varint(-1) if each is None else varint(len(each)) + each
    parts += varint(0)
    return varint(len(parts)) + parts


def batch_at_times(messages: Sequence[tuple[bytes | None, bytes | None, int]]) -> bytes:
    """A record batch v2 of (key, value, milliseconds from now)."""
    now = int(time.time() * 1000)
    count, latest = len(messages), now + max(delta for _, _, delta in messages)
    body = struct.pack(">hiqqqhii", 0, count - 1, now, latest, -1, -1, -1, count)
    body += b"".join(_record(number, delta, key, value) for number, (key, value, delta) in enumerate(messages))
    return _with_batch_header(body)


def gzipped(plain: bytes) -> bytes:
    """A record batch v2 with its records compressed."""
    body = bytearray(plain[21:61]) + gzip.compress(plain[61:])
    body[1] = 1
    return _with_batch_header(bytes(body))


def _with_batch_header(body: bytes) -> bytes:
    """What follows the checksum of a batch, with what stands before it."""
    return struct.pack(">qiibI", 0, len(body) + 9, 0, 2, crc32c(body)) + body


def old_message(value: bytes) -> bytes:
    """A message set of magic 1 with one message, as clients before Kafka 0.11 sent."""
    body = struct.pack(">bbqii", 1, 0, 0, -1, len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def values_of(records: bytes | None) -> list[tuple[int, bytes | None]]:
    """(offset, value) of the records in whole, uncompressed batches; a batch that is cut off is passed over."""
    found: list[tuple[int, bytes | None]] = []
    data = records or b""
    position = 0
    while position + 61 <= len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        end = position + 12 + length
        if end > len(data):
            break
        (count,) = struct.unpack_from(">i", data, position + 57)
        at = position + 61
        for _ in range(count):
            _, at = _read_varint(data, at)
            at += 1
            _, at = _read_varint(data, at)
            delta, at = _read_varint(data, at)
            key_length, at = _read_varint(data, at)
            at += max(key_length, 0)
            length, at = _read_varint(data, at)
            found.append((base_offset + delta, data[at : at + length] if length >= 0 else None))
            at += max(length, 0)
            headers, at = _read_varint(data, at)
            assert headers == 0, "this reader knows no headers"
        position = end
    return found


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def create_topic(client: WireClient, name: str, partitions: int = 1, **config: str) -> Any:
    """Create a topic; its id."""
    answer = client.call(
        "CreateTopics",
        7,
        topics=[
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "assignments": [],
                "configs": [{"name": key.replace("_", "."), "value": value} for key, value in config.items()],
            }
        ],
        timeout=20_000,
        validate_only=False,
    )
    assert code(answer.topics[0].error_code) == 0, answer
    await_leaders(client, name, partitions)
    return answer.topics[0].topic_id


def await_leaders(client: WireClient, topic: str, partitions: int) -> None:
    """Wait until all partitions answer: Apache Kafka acknowledges a topic before its broker leads it."""
    wait_until(lambda: not any(leader_errors(client, topic, partitions)), timeout_s=20)


def leader_errors(client: WireClient, topic: str, partitions: int) -> list[int]:
    """Return the error of each partition at this broker: 0 where the broker leads it, and has begun to."""
    asked = [{"partition_index": index, "timestamp": -2} for index in range(partitions)]
    answer = client.call("ListOffsets", 6, replica_id=-1, topics=[{"name": topic, "partitions": asked}])
    found = sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
    return [code(each.error_code) for each in found]


def produce(
    client: WireClient, topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1, version: int = 9
) -> Any:
    """Send one batch; the partition's answer."""
    answer = client.call("Produce", version, **produce_values(topic, records, partition=partition, acks=acks))
    return answer.responses[0].partition_responses[0]


def produce_values(topic: str, records: bytes | None, *, partition: int = 0, acks: int = -1) -> dict[str, Any]:
    """The fields of a Produce request with one batch."""
    return {
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    }


def fetch(
    client: WireClient,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    version: int = 12,
    max_wait: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50_000_000,
    partition_max_bytes: int = 1_048_576,
    leader_epoch: int = -1,
    isolation_level: int = 0,
) -> Any:
    """Fetch one partition without a session; its answer."""
    answer = client.call(
        "Fetch",
        version,
        max_wait=max_wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=-1,
        topics=[
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": partition,
                        "current_leader_epoch": leader_epoch,
                        "fetch_offset": offset,
                        "last_fetched_epoch": -1,
                        "log_start_offset": -1,
                        "partition_max_bytes": partition_max_bytes,
                    }
                ],
            }
        ],
        forgotten_topics_data=[],
        rack_id="",
    )
    return answer.responses[0].partitions[0]
