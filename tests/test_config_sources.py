"""Where a broker's settings come from: Kafka's own files, the environment, and which of them counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from server_properties import BROKER_PROPERTIES, CONTROLLER_PROPERTIES, SERVER_PROPERTIES

from kafkalake.config.broker import BROKER_SETTINGS
from kafkalake.config.layers import Settings
from kafkalake.config.listener import parse_listeners
from kafkalake.config.properties import read_properties
from kafkalake.config.sources import combine, read_environment
from kafkalake.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "broker_id", "listeners"),
    [
        (SERVER_PROPERTIES, 1, ["PLAINTEXT://:9092", "CONTROLLER://:9093"]),
        (BROKER_PROPERTIES, 2, ["PLAINTEXT://localhost:9092"]),
        (CONTROLLER_PROPERTIES, 1, ["CONTROLLER://:9093"]),
    ],
)
def test_kafkas_own_files_are_understood(tmp_path: Path, text: str, broker_id: int, listeners: list[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text(text)
    given = read_properties(file)
    config = Settings(given).broker
    assert config.id == broker_id
    assert list(map(str, parse_listeners(config))) == listeners
    assert parse_listeners(config)[0].advertised_host == "localhost"
    assert {name for name in given if not BROKER_SETTINGS[name].has_effect} == {
        "controller.quorum.bootstrap.servers",
        "log.dirs",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "share.coordinator.state.topic.min.isr",
        "share.coordinator.state.topic.replication.factor",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
    }


@pytest.mark.parametrize(
    ("line", "pair"),
    [
        ("a=b=c", ("a", "b=c")),
        ("  a  =  b  ", ("a", "b")),
        ("a : b", ("a", "b")),
        ("a b", ("a", "b")),
        ("a=", ("a", "")),
        ("a = x\\\n    y\\\n\n", ("a", "xy")),
        (r"a\=b\ c=d\\", ("a=b c", "d\\")),
        (r"a=\u0041\tb\q", ("a", "A\tbq")),
        ("a=1\na=2", ("a", "2")),
        ("#x=1\n! y=2\n\r\na=b\r\n", ("a", "b")),
    ],
)
def test_a_file_has_javas_format(tmp_path: Path, line: str, pair: tuple[str, str]) -> None:
    file = tmp_path / "p"
    file.write_bytes(line.encode())
    assert read_properties(file) == dict([pair])


def test_variables_name_settings_as_kafkas_images_do() -> None:
    settings, others = read_environment(
        {
            "KAFKA_NUM_PARTITIONS": "3",
            "KAFKA_RETENTION_MS": "5",
            "KAFKA_SSL_KEYSTORE_LOCATION": "/x",
            "KAFKA_LISTENER_NAME_MY__LISTENER_SSL_KEY___TYPE": "y",
            "KAFKA_HEAP_OPTS": "-Xmx1g",
            "KAFKA_NUM_PARTITON": "3",
            "NUM_PARTITIONS": "4",
            "KAFKALAKE_LAKE": "/lake",
        }
    )
    assert settings == {
        "num.partitions": "3",
        "retention.ms": "5",
        "ssl.keystore.location": "/x",
        "listener.name.my_listener.ssl.key-type": "y",
    }
    assert others == {"KAFKA_HEAP_OPTS": "heap.opts", "KAFKA_NUM_PARTITON": "num.partiton"}
    with pytest.raises(ConfigurationError, match="there is no encryption"):
        Settings(settings)


def test_a_later_source_counts_under_either_name_of_the_brokers_id() -> None:
    file, environment, line = (
        {"broker.id": "1", "a": "file", "b": "file"},
        {"a": "variable", "c": "variable"},
        {"c": "x"},
    )
    assert combine(file, environment, line) == {"broker.id": "1", "a": "variable", "b": "file", "c": "x"}
    assert combine(file, {"node.id": "2"}) == {"a": "file", "b": "file", "node.id": "2"}
    assert combine({"node.id": "2"}, {"broker.id": "3"}, {"node.id": "4"}) == {"node.id": "4"}
