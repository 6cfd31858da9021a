"""The client's side of AppendStaged: describes topics and appends staged files, retrying until there is an answer.

Standard library only, because a Spark driver starts a fresh interpreter to run this. The broker's address comes from the lake, so
a broker restarted on another port is found again. A request with the id of the lake's cluster is answered by its brokers only.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafkalake.errors import (
    BrokerUnavailableError,
    InconsistentClusterIdError,
    KafkaLakeError,
    error_for_code,
    with_retriable,
)
from kafkalake.wire.staged_append import BODY_BYTES_MAX, decode_response, encode_request

CONNECT_TIMEOUT_S = 5.0
DESCRIBE_TIMEOUT_S = 30.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0

Addresses = Callable[[], Sequence[tuple[str, int]]]
"""Returns the candidate addresses of a broker, (host, port). Called before each attempt."""


class OutcomeUnknownError(KafkaLakeError):
    """The append may have succeeded, may still succeed, or may have failed. Repeating the request tells which."""


class _NoAnswerError(Exception):
    """No broker answers, or the connection broke. The request may be repeated."""


def ask_once(addresses: Sequence[tuple[str, int]], body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """Return the answer of the first broker that gives one. Raise `BrokerUnavailableError`, `KafkaError` or `KafkaLakeError`."""
    failures = []
    for host, port in addresses:
        try:
            answer = _exchange(host, port, body, timeout_s)
            if coordinator := answer.get("coordinator"):  # the broker that keeps the application's commits
                answer = _exchange(str(coordinator[0]), int(coordinator[1]), body, timeout_s)
            return _checked(answer)
        except _NoAnswerError as error:
            failures.append(f"{host}:{port}: {error}")
    raise BrokerUnavailableError("; ".join(failures) or "no broker of this lake is running")


def ask_until(addresses: Addresses, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    """Return the answer, retrying transient failures until `timeout_s`.

    Raise the error with which the broker refused the request, or `OutcomeUnknownError` on timeout.
    """
    deadline = time.monotonic() + timeout_s
    pause = FIRST_PAUSE_S
    while True:
        try:
            return ask_once(addresses(), body, max(deadline - time.monotonic(), 1.0))
        except KafkaLakeError as error:
            may_pass = isinstance(error, BrokerUnavailableError) or bool(getattr(error, "retriable", False))
            if not may_pass:
                raise
            if time.monotonic() + pause > deadline:
                raise OutcomeUnknownError(f"no answer in {timeout_s:g} s; the last failure: {error}") from error
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    code = answer.get("error")
    if code == 0:
        return answer
    message = str(answer.get("message", "the broker gave no reason"))
    if code == InconsistentClusterIdError.code:
        raise _NoAnswerError(message)
    if not isinstance(code, int) or code < 0:
        raise KafkaLakeError(message)
    raise with_retriable(error_for_code(code, message), bool(answer.get("retriable")))


def _exchange(host: str, port: int, body: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    request = encode_request(0, "kafkalake-spark", body)
    try:
        with socket.create_connection((host, port), min(CONNECT_TIMEOUT_S, timeout_s)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.settimeout(timeout_s)
            connection.sendall(request)
            size = int.from_bytes(_read(connection, 4), "big", signed=True)
            if not 4 <= size <= BODY_BYTES_MAX:
                raise _NoAnswerError("what answers there is no kafkalake broker")
            return decode_response(0, _read(connection, size))
    except (OSError, UnicodeError) as error:
        reason = (
            "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
        )
        raise _NoAnswerError(reason) from error
    except ValueError as error:
        raise _NoAnswerError(f"what answers there is no kafkalake broker: {error}") from error


def _read(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionResetError("connection closed by the broker")
        data += part
    return bytes(data)
