"""Addresses of brokers, and the errors of those that cannot be connected to."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass

from kafkalake.client.requests import MalformedResponseError
from kafkalake.errors import BrokerRefusedError, BrokerUnavailableError

CONNECT_TIMEOUT_MS = 5_000


@dataclass(frozen=True)
class Address:
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def unreachable(address: Address, error: OSError | UnicodeError) -> BrokerUnavailableError:
    """Return the error for an address to which no connection could be made, because of `error`."""
    kind = BrokerRefusedError if isinstance(error, ConnectionRefusedError) else BrokerUnavailableError
    return kind(f"no broker answers at {address}: {reason(error)}")


def not_kafkas(address: Address, error: MalformedResponseError) -> BrokerUnavailableError:
    """Return the error for an address at which something else than a broker answers."""
    return BrokerUnavailableError(f"what answers at {address} does not speak Kafka's protocol: {error}")


def reason(error: Exception) -> str:
    """Return why a connection failed, in words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return "this host name is not known"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # asyncio has a text of its own
    return str(error)


def parse_addresses(bootstrap_servers: str) -> list[Address]:
    """Parse `host:port[,host:port...]`, with `[::1]:9092` for IPv6. Raise `ValueError` with one sentence if it is malformed."""
    addresses = []
    for part in bootstrap_servers.split(","):
        text = part.strip()
        if not text:
            continue
        host, colon, port = text.rpartition(":")
        if not colon:
            host, port = text, "9092"
        if not host or not port.isdecimal() or not 0 < int(port) < 65_536 or (":" in host and not host.startswith("[")):
            raise ValueError(f"'{text}' is not HOST:PORT")
        addresses.append(Address(host.strip("[]"), int(port)))
    if not addresses:
        raise ValueError("no HOST:PORT given")
    return addresses
