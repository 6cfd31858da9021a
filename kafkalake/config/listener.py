"""The address on which a broker listens, and the one at which its clients reach it: `listeners` and `advertised.listeners`."""

from __future__ import annotations

import socket
from dataclasses import dataclass, replace
from enum import Enum

from kafkalake.errors import ConfigurationError

_WILDCARDS = ("", "0.0.0.0", "::", "*")


class SecurityProtocol(Enum):
    """Kafka's security protocols, as far as a broker speaks them. PLAINTEXT: no encryption and no authentication."""

    PLAINTEXT = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener. Port 0 is chosen by the system (see `bound_to`)."""

    name: str
    security_protocol: SecurityProtocol
    host: str
    port: int
    advertised_host: str
    advertised_port: int

    def __str__(self) -> str:
        """Return the listener as `listeners` has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"

    def bound_to(self, port: int) -> Listener:
        """Return the listener with the port that the system has chosen."""
        return replace(self, port=port, advertised_port=self.advertised_port or port)


def parse_listener(host: str, port: int, advertised: str | None) -> Listener:
    """Return the listener on `host` and `port`, with the value of `advertised.listeners`.

    Raise `ConfigurationError` if that is not PLAINTEXT://HOST:PORT.
    """
    protocol = SecurityProtocol.PLAINTEXT
    if advertised is None or not advertised.strip():
        name = socket.gethostname() if host in _WILDCARDS else host
        return Listener(protocol.value, protocol, host, port, name, port)
    given, separator, address = advertised.strip().rpartition("://")
    name, colon, number = address.rpartition(":")
    name = name.removeprefix("[").removesuffix("]")
    if (separator and given != protocol.value) or not (colon and name and number.isdecimal() and int(number) < 65536):
        raise ConfigurationError(
            f"Invalid value {advertised} for configuration advertised.listeners: it must be one PLAINTEXT://HOST:PORT"
        )
    return Listener(protocol.value, protocol, host, port, name, int(number))
