"""Listeners: their names, addresses and protocols, what is advertised, and Kafka's rules for all of them together."""

from __future__ import annotations

import socket

import pytest

from kafkalake.config.layers import Settings
from kafkalake.config.listener import Listener, parse_listeners
from kafkalake.errors import ConfigurationError

INTERNAL_EXTERNAL = {"listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:plaintext,SECURE:SSL"}


def listeners_of(settings: dict[str, str]) -> tuple[Listener, ...]:
    return parse_listeners(Settings(settings).broker)


def test_a_broker_listens_on_the_loopback_address_where_nothing_is_said() -> None:
    (listener,) = listeners_of({})
    assert (str(listener), listener.address) == ("PLAINTEXT://127.0.0.1:9092", "127.0.0.1:9092")


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("PLAINTEXT://:9093", "", 9093, ":9093"),
        ("plaintext://0.0.0.0:0", "0.0.0.0", 0, "0.0.0.0:0"),
        ("PLAINTEXT://[::1]:1", "::1", 1, "[::1]:1"),
        ("PLAINTEXT://[fe80::1%eth0]:1", "fe80::1%eth0", 1, "[fe80::1%eth0]:1"),
        (" PLAINTEXT://my-host_1.example:65535 ", "my-host_1.example", 65_535, "my-host_1.example:65535"),
    ],
)
def test_forms_of_an_address(text: str, host: str, port: int, shown: str) -> None:
    (listener,) = listeners_of({"listeners": text})
    assert (listener.name, listener.host, listener.port, listener.address) == ("PLAINTEXT", host, port, shown)


@pytest.mark.parametrize(
    ("advertised", "address"),
    [
        (None, ("10.0.0.1", 9092)),
        ("", ("10.0.0.1", 9092)),
        ("PLAINTEXT://kafka.example:1234", ("kafka.example", 1234)),
        ("kafka.example:1234", ("kafka.example", 1234)),
        ("PLAINTEXT://[::1]:1", ("::1", 1)),
        ("PLAINTEXT://:1", (socket.gethostname(), 1)),
    ],
)
def test_what_clients_are_told(advertised: str | None, address: tuple[str, int]) -> None:
    given = {} if advertised is None else {"advertised.listeners": advertised}
    (found,) = listeners_of({"listeners": "PLAINTEXT://10.0.0.1:9092", **given})
    assert (found.advertised_host, found.advertised_port) == address


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_every_address_is_told_as_the_machines_name(host: str) -> None:
    (listener,) = listeners_of({"listeners": f"PLAINTEXT://{host}:0"})
    bound = listener.bound_to(5)
    assert (bound.advertised_host, bound.advertised_port) == (socket.gethostname(), 5)
    assert str(bound) == f"PLAINTEXT://{host}:5"
    (listener,) = listeners_of({"listeners": "PLAINTEXT://h:0", "advertised.listeners": "PLAINTEXT://outside:7"})
    assert listener.bound_to(5).advertised_port == 7


def test_the_listener_for_other_brokers_is_the_first() -> None:
    both = {**INTERNAL_EXTERNAL, "listeners": "EXTERNAL://a:1,INTERNAL://a:2"}
    assert [each.name for each in listeners_of(both)] == ["EXTERNAL", "INTERNAL"]
    named = {**both, "inter.broker.listener.name": "internal"}
    assert [each.name for each in listeners_of(named)] == ["INTERNAL", "EXTERNAL"]
    plain = {
        "listener.security.protocol.map": "EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "listeners": "EXTERNAL://a:1,PLAINTEXT://a:2",
    }
    assert [each.name for each in listeners_of(plain)] == ["PLAINTEXT", "EXTERNAL"]


def test_a_listener_that_is_not_advertised_is_told_to_nobody_unless_it_is_a_controllers() -> None:
    settings = {
        **INTERNAL_EXTERNAL,
        "listeners": "INTERNAL://a:1,EXTERNAL://a:2,CONTROLLER://:3",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "advertised.listeners": "EXTERNAL://b:2",
        "controller.listener.names": "CONTROLLER",
    }
    found = listeners_of(settings)
    assert [(each.name, each.is_advertised) for each in found] == [
        ("EXTERNAL", True),
        ("INTERNAL", False),
        ("CONTROLLER", True),
    ]
    assert [each.name for each in found if each.is_for_controllers] == ["CONTROLLER"]


def test_a_controllers_listener_needs_no_protocol_where_there_is_no_map() -> None:
    settings = {"listeners": "CONTROLLER://a:1,PLAINTEXT://a:2", "controller.listener.names": "CONTROLLER"}
    assert [each.name for each in listeners_of(settings)] == ["PLAINTEXT", "CONTROLLER"]
    only = {"listeners": "CONTROLLER://a:1", "controller.listener.names": "CONTROLLER"}
    assert [each.name for each in listeners_of(only)] == ["CONTROLLER"]


def test_an_ipv4_and_an_ipv6_address_share_a_port() -> None:
    settings = {**INTERNAL_EXTERNAL, "listeners": "INTERNAL://127.0.0.1:9092,EXTERNAL://[::1]:9092"}
    assert [each.port for each in listeners_of(settings)] == [9092, 9092]
    free = {**INTERNAL_EXTERNAL, "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0"}
    assert [each.port for each in listeners_of(free)] == [0, 0]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listeners": ""}, "at least one listener"),
        ({"listeners": "PLAINTEXT://a"}, "PLAINTEXT://a is not NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:70000"}, "is not NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://::1:9092"}, "is not NAME://HOST:PORT"),
        ({"listeners": "PLAINTEXT://a:1,"}, "the empty text is not NAME://HOST:PORT"),
        ({"listeners": "EXTERNAL://a:1"}, "no security protocol is defined for listener EXTERNAL"),
        ({"listeners": "SSL://a:1"}, "listener SSL has the protocol SSL, and there is no encryption"),
        ({**INTERNAL_EXTERNAL, "listeners": "SECURE://a:1"}, "listener SECURE has the protocol SSL"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:TLS"},
            "PLAINTEXT:TLS is not NAME:PROTOCOL; there are PLAINTEXT, SSL",
        ),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "PLAINTEXT is not NAME:PROTOCOL"),
        ({"listeners": "PLAINTEXT://a:1,plaintext://b:2"}, "PLAINTEXT is there 2 times"),
        (
            {**INTERNAL_EXTERNAL, "listeners": "INTERNAL://a:1,EXTERNAL://b:1"},
            "a port of its own, and 1 is there 2 times",
        ),
        (
            {**INTERNAL_EXTERNAL, "listeners": "INTERNAL://127.0.0.1:1,EXTERNAL://127.0.0.2:1"},
            "a port of its own, and 1 is there 2 times",
        ),
        ({"advertised.listeners": "PLAINTEXT://a"}, "advertised.listeners: PLAINTEXT://a is not NAME://HOST:PORT"),
        ({"advertised.listeners": "SSL://a:1"}, "SSL is none of the listeners, which are PLAINTEXT"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "clients cannot connect to 0.0.0.0"),
        ({"inter.broker.listener.name": "INTERNAL"}, "none of the advertised listeners, which are PLAINTEXT"),
        (
            {
                **INTERNAL_EXTERNAL,
                "listeners": "INTERNAL://a:1,EXTERNAL://a:2",
                "advertised.listeners": "EXTERNAL://a:2",
                "inter.broker.listener.name": "INTERNAL",
            },
            "none of the advertised listeners, which are EXTERNAL",
        ),
        (
            {
                "listeners": "PLAINTEXT://a:1,CONTROLLER://a:2",
                "controller.listener.names": "CONTROLLER",
                "inter.broker.listener.name": "CONTROLLER",
            },
            "none of the advertised listeners, which are PLAINTEXT",
        ),
    ],
)
def test_what_is_said_of_listeners_that_cannot_be(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        listeners_of(settings)
    assert said in str(raised.value)
