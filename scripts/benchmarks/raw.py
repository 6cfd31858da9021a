"""Requests on a socket of our own: where a client's own buffers and threads would hide what one request costs."""

from __future__ import annotations

import io
import socket
import struct
import time
from types import TracebackType
from typing import Any

from kio.schema.fetch.v11.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.fetch.v11.response import FetchResponse
from kio.schema.request_header.v1.header import RequestHeader
from kio.schema.response_header.v0.header import ResponseHeader
from kio.serial import entity_reader, entity_writer

TIMEOUT_S = 30.0


class Connection:
    """A blocking connection that has one request in flight."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def call(self, request: Any) -> tuple[memoryview, float]:
        """Send a request (a kio entity with header version 1); returns the answer behind its header, and the seconds it took."""
        self._correlation_id += 1
        frame = io.BytesIO()
        header = RequestHeader(
            request_api_key=request.__api_key__,
            request_api_version=request.__version__,
            correlation_id=self._correlation_id,
            client_id="benchmark",
        )
        entity_writer(RequestHeader)(frame, header)
        entity_writer(type(request))(frame, request)
        sent = struct.pack(">i", frame.tell()) + frame.getvalue()
        started = time.perf_counter()
        self._socket.sendall(sent)
        (size,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(size)
        elapsed = time.perf_counter() - started
        received, header_size = entity_reader(ResponseHeader)(answer, 0)
        if received.correlation_id != self._correlation_id:
            raise ConnectionError(f"answer {received.correlation_id} to request {self._correlation_id}")
        return memoryview(answer)[header_size:], elapsed

    def fetch(self, topic: str, partition: int, offset: int, max_bytes: int) -> tuple[bytes, float]:
        """The raw record batches at an offset, and the seconds it took. Raises `LookupError` for an error code."""
        wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        answer, elapsed = self.call(
            FetchRequest(
                max_wait=_milliseconds(500),
                min_bytes=1,
                max_bytes=max_bytes,
                session_epoch=-1,
                topics=(FetchTopic(topic=topic, partitions=(wanted,)),),
                forgotten_topics_data=(),
                rack_id="",
            )
        )
        response, _ = entity_reader(FetchResponse)(answer, 0)
        found = response.responses[0].partitions[0]
        if found.error_code != 0:
            raise LookupError(f"fetch {topic}-{partition} at {offset}: {found.error_code!r}")
        return bytes(found.records or b""), elapsed

    def _receive(self, size: int) -> bytes:
        parts = bytearray(size)
        view = memoryview(parts)
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionError("the broker closed the connection")
            view = view[count:]
        return bytes(parts)


def offsets_of_first_batch(records: bytes) -> tuple[int, int]:
    """Base and last offset of the first record batch (format v2: base offset at 0, last offset delta at 23)."""
    (base,) = struct.unpack_from(">q", records, 0)
    (delta,) = struct.unpack_from(">i", records, 23)
    return base, base + delta


def _milliseconds(value: int) -> Any:
    import datetime

    from kio.static.primitive import i32Timedelta

    return i32Timedelta.parse(datetime.timedelta(milliseconds=value))
