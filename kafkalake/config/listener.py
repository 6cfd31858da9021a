"""The addresses on which a broker listens, and those at which its clients reach it, by the names of its listeners.

`listeners`, `advertised.listeners`, `listener.security.protocol.map`, `inter.broker.listener.name` and `controller.listener.names`
are read together, with Kafka's rules. Source: Apache Kafka 4.1, `KafkaConfig` and `SocketServerConfigs`.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from kafkalake.config.membership import DEFAULT_PROTOCOL_MAP, MembershipConfig
from kafkalake.config.setting_texts import members_of
from kafkalake.errors import ConfigurationError

_EVERY_ADDRESS = ("", "0.0.0.0", "::")
_ADDRESS = re.compile(
    r"(?:(?P<name>[^:/\s]+)://)?(?:\[(?P<ipv6>[0-9a-fA-F:.]+(?:%\w+)?)\]|(?P<host>[\w.%-]*)):(?P<port>[0-9]+)"
)
KAFKAS_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""The names of Kafka's security protocols, by number."""


class SecurityProtocol(Enum):
    """Kafka's security protocols, as far as a broker speaks them. PLAINTEXT: no encryption and no authentication."""

    PLAINTEXT = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener. Port 0 is chosen by the system (see `bound_to`). An empty host is every address.

    is_advertised: clients and brokers learn its address. is_for_controllers: it is one of `controller.listener.names`.
    """

    name: str
    security_protocol: SecurityProtocol
    host: str
    port: int
    advertised_host: str
    advertised_port: int
    is_advertised: bool = True
    is_for_controllers: bool = False

    def __str__(self) -> str:
        """Return the listener as `listeners` has it."""
        return f"{self.name}://{self.address}"

    @property
    def address(self) -> str:
        """The address that is listened on, HOST:PORT."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def bound_to(self, port: int) -> Listener:
        """Return the listener with the port that the system has chosen."""
        return replace(self, port=port, advertised_port=self.advertised_port or port)


@dataclass(frozen=True, slots=True)
class _Address:
    name: str
    host: str
    port: int


def parse_listeners(config: MembershipConfig) -> tuple[Listener, ...]:
    """Return the listeners that the settings describe. The first is the one for other brokers, the others follow in their order.

    Raise `ConfigurationError` if a listener is malformed or its protocol is not spoken, or the settings contradict each other.
    """
    text = config.listeners
    addresses = _parse_addresses("listeners", text)
    if not addresses:
        raise _invalid("listeners", text, "a broker has at least one listener")
    _check_names_and_ports(text, addresses)
    controllers = {name.upper() for name in members_of(config.controller_listener_names or "")}
    protocols = _parse_protocols(config, controllers)
    advertised = _parse_advertised(config, addresses, controllers)
    listeners = [
        Listener(
            name=each.name,
            security_protocol=_spoken(text, each.name, protocols),
            host=each.host,
            port=each.port,
            advertised_host=_reachable_host(advertised.get(each.name, each).host),
            advertised_port=advertised.get(each.name, each).port,
            is_advertised=each.name in advertised,
            is_for_controllers=each.name in controllers,
        )
        for each in addresses
    ]
    _check_roles(config, listeners)
    first = _find_inter_broker_listener(config, listeners)
    return (first, *(each for each in listeners if each is not first))


def _parse_addresses(setting: str, text: str) -> list[_Address]:
    found = []
    for member in members_of(text):
        address = _ADDRESS.fullmatch(member)
        if address is None or int(address["port"]) > 65_535:
            raise _invalid(setting, text, f"{member or 'the empty text'} is not NAME://HOST:PORT")
        name = (address["name"] or SecurityProtocol.PLAINTEXT.value).upper()
        found.append(_Address(name, address["ipv6"] or address["host"] or "", int(address["port"])))
    return found


def _check_names_and_ports(text: str, addresses: list[_Address]) -> None:
    names = Counter(each.name for each in addresses)
    if (name := names.most_common(1)[0])[1] > 1:
        raise _invalid(
            "listeners", text, f"each listener has a name of its own, and {name[0]} is there {name[1]} times"
        )
    by_port: dict[int, list[str]] = {}
    for each in addresses:
        by_port.setdefault(each.port, []).append(each.host)
    for port, hosts in by_port.items():
        if port and len(hosts) > 1 and sorted(map(_version_of, hosts)) != [4, 6]:
            raise _invalid(
                "listeners",
                text,
                f"each listener has a port of its own, and {port} is there {len(hosts)} times; only an IPv4 and an IPv6 address "
                "share a port",
            )


def _version_of(host: str) -> int:
    """Return 4 or 6 for an IP address, 0 for a name."""
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0


def _parse_protocols(config: MembershipConfig, controllers: set[str]) -> dict[str, str]:
    """Return the security protocols by the names of listeners. Those of controllers need no entry in a map that is not set."""
    setting, text = "listener.security.protocol.map", config.listener_security_protocol_map
    found = dict.fromkeys(controllers, SecurityProtocol.PLAINTEXT.value) if text == DEFAULT_PROTOCOL_MAP else {}
    for member in members_of(text):
        name, colon, protocol = member.partition(":")
        if not colon or not name.strip() or protocol.strip().upper() not in KAFKAS_PROTOCOLS:
            raise _invalid(
                setting,
                text,
                f"{member or 'the empty text'} is not NAME:PROTOCOL; there are {', '.join(KAFKAS_PROTOCOLS)}",
            )
        found[name.strip().upper()] = protocol.strip().upper()
    return found


def _spoken(text: str, name: str, protocols: Mapping[str, str]) -> SecurityProtocol:
    protocol = protocols.get(name)
    if protocol is None:
        raise _invalid(
            "listeners", text, f"no security protocol is defined for listener {name} in listener.security.protocol.map"
        )
    try:
        return SecurityProtocol(protocol)
    except ValueError:
        raise _invalid(
            "listeners",
            text,
            f"listener {name} has the protocol {protocol}, and there is no encryption and no authentication",
        ) from None


def _parse_advertised(
    config: MembershipConfig, addresses: list[_Address], controllers: set[str]
) -> dict[str, _Address]:
    """Return the advertised addresses by the names of listeners. A controller's listener needs none of its own."""
    setting, text = "advertised.listeners", config.advertised_listeners
    bound = {each.name: each for each in addresses}
    if text is None or not text.strip():
        return bound
    advertised = {name: each for name, each in bound.items() if name in controllers}
    for each in _parse_addresses(setting, text):
        if each.name not in bound:
            raise _invalid(setting, text, f"{each.name} is none of the listeners, which are {', '.join(bound)}")
        if each.host in _EVERY_ADDRESS[1:]:
            raise _invalid(setting, text, f"clients cannot connect to {each.host}; give an address or a name")
        advertised[each.name] = each
    return advertised


def _check_roles(config: MembershipConfig, listeners: list[Listener]) -> None:
    """Raise `ConfigurationError` if a process has a listener of a role that it does not have, with Kafka's rules."""
    if config.is_broker and config.is_voter:
        return
    setting, names = "controller.listener.names", config.controller_listener_names or ""
    if not config.is_broker and not all(each.is_for_controllers for each in listeners):
        raise ConfigurationError(
            f"The listeners config must only contain KRaft controller listeners from {setting} when process.roles=controller"
        )
    if not config.is_voter and any(each.is_for_controllers for each in listeners):
        raise _invalid(setting, names, "none of them is among the listeners when process.roles=broker")


def _reachable_host(host: str) -> str:
    return socket.gethostname() if host in _EVERY_ADDRESS else host


def _find_inter_broker_listener(config: MembershipConfig, listeners: list[Listener]) -> Listener:
    """Return the listener that is named, else PLAINTEXT, else the first. A controller's listener serves if there are no others."""
    eligible = [each for each in listeners if each.is_advertised and not each.is_for_controllers]
    eligible = eligible or [each for each in listeners if each.is_advertised]
    if not eligible:
        raise _invalid("advertised.listeners", config.advertised_listeners, "it names no listener")
    by_name = {each.name: each for each in eligible}
    name = config.inter_broker_listener_name if config.is_broker else None
    if name is None:
        return by_name.get(SecurityProtocol.PLAINTEXT.value, eligible[0])
    if name.upper() not in by_name:
        raise _invalid(
            "inter.broker.listener.name",
            name,
            f"it is none of the advertised listeners, which are {', '.join(by_name)}",
        )
    return by_name[name.upper()]


def _invalid(setting: str, text: str | None, reason: str) -> ConfigurationError:
    return ConfigurationError(f"Invalid value {text} for configuration {setting}: {reason}")
