"""A door before a broker, at which a job's request to append what it staged can be stopped."""

from __future__ import annotations

import contextlib
import socket
import threading

from kafka_reference import Kafkalake, free_port


class Door:
    """Stands before a broker: passes requests on, keeps the answer to an append to itself, and may keep the request too."""

    def __init__(self, broker: Kafkalake, *, forwards_append: bool) -> None:
        self.asked = threading.Event()
        self._port = free_port()
        self._broker = broker
        self._forwards_append = forwards_append
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._kept: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *error: object) -> None:
        for each in (self._listener, *self._kept):
            each.close()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                self._kept.append(client)
                request = frame(client)
                is_append = b'"ask": "append"' in request
                if not is_append or self._forwards_append:
                    server = socket.create_connection(("127.0.0.1", self._broker.port))
                    self._kept.append(server)
                    server.sendall(request)
                    if not is_append:
                        client.sendall(frame(server))
                        client.close()
                        continue
                self.asked.set()


def frame(connection: socket.socket) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        part = connection.recv(1 << 20)
        if not part:
            raise ConnectionResetError
        data += part
    return data
