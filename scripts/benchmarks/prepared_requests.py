"""Produce requests that are made once and sent again and again: the most that a broker takes, whatever client is before it.

A socket, with `in_flight` requests that have no response. Nothing is encoded between two requests, no checksum computed, so that
the rate is that of the broker's own work: to receive a request, check its records and append them.
"""

from __future__ import annotations

import socket
import time

from benchmarks.client_readers import Client, Round
from kafkalake.record.build import build_batch
from kafkalake.wire.messages.records import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalake.wire.produce_encoding import encode_produce
from kafkalake.wire.record_batch import encode_batch

TIMEOUT_S = 60.0
VERSION = 8
ROWS = 8_000
"""Records of a request: 0.88 MB of batches as most topics take them, up to 1 MiB."""


class PreparedRequests:
    """A connection that sends the same Produce request (acks=all, partition 0) again and again."""

    def __init__(self, servers: str, topic: str, value: bytes, *, rows: int = ROWS, in_flight: int = 5) -> None:
        host, port = servers.split(",")[0].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._in_flight = in_flight
        batch = encode_batch(build_batch([(None, value)] * rows, int(time.time() * 1000)))
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        message = ProduceRequest(transactional_id=None, acks=-1, timeout=30_000, topic_data=[data])
        self._frame = b"".join(encode_produce(VERSION, 1, "prepared", message))

    def send(self, requests: int) -> None:
        """Send the request so often, and return when all are acknowledged. Raise `ConnectionError` for another response."""
        for number in range(requests):
            if number >= self._in_flight:
                self._receive()
            self._socket.sendall(self._frame)
        for _ in range(min(requests, self._in_flight)):
            self._receive()

    def _receive(self) -> None:
        size = int.from_bytes(self._receive_bytes(4), "big")
        response = self._receive_bytes(size)
        # Correlation id, one topic with its name, one partition with its index; then the error code.
        name_length = int.from_bytes(response[8:10], "big")
        error_code = int.from_bytes(response[18 + name_length : 20 + name_length], "big")
        if error_code:
            raise ConnectionError(f"error {error_code} to a prepared request")

    def _receive_bytes(self, size: int) -> bytes:
        found = self._socket.recv(size, socket.MSG_WAITALL)
        if len(found) < size:
            raise ConnectionError("the broker closed the connection")
        return found


def prepared_requests(servers: str, records: int) -> Client:
    """A client of `benchmarks.client_process`: 100-byte values in prepared requests."""

    def begin(topic: str) -> Round:
        prepared = PreparedRequests(servers, topic, bytes(100))
        return lambda: prepared.send(records // ROWS)

    return begin
