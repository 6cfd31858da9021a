"""`broker start` with Kafka's own file, the environment and options: which of them counts, and what the log says of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import Run
from contract.test_configs_contract import settings
from contract.wire_client import WireClient
from kafka_reference import Kafkalake, free_port
from server_properties import SERVER_PROPERTIES

pytestmark = pytest.mark.process
BROKER = 4


class PropertiesKafkalake(Kafkalake):
    """A broker that is started with a file of Kafka's, whose ports another broker may use."""

    def _command(self) -> Sequence[str]:
        start = super()._command()[:5]
        file = self.directory / "server.properties"
        file.write_text(SERVER_PROPERTIES)
        return [*start, "--lake", str(self.lake), "--config-file", str(file), "--config", "fetch.max.bytes=3000"]


def test_kafkas_server_properties_start_a_broker(tmp_path: Path) -> None:
    broker = PropertiesKafkalake(tmp_path / "lake", directory=tmp_path)
    controller = free_port()
    broker._environment = {
        "KAFKA_LISTENERS": f"PLAINTEXT://127.0.0.1:{broker.port},CONTROLLER://:{controller}",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{broker.port},CONTROLLER://localhost:{controller}",
        "KAFKA_NUM_PARTITIONS": "3",
        "KAFKA_FETCH_MAX_BYTES": "2000",
        "KAFKA_HEAP_OPTS": "-Xmx1g",
        "KAFKA_NUM_PARTITION": "4",
    }
    with broker.start(), WireClient(broker.bootstrap_servers) as client:
        found = settings(client, BROKER, "1")
        log = broker.stderr_tail(500)
    assert {name: found[name][0] for name in ("node.id", "num.partitions", "fetch.max.bytes", "log.dirs")} == {
        "node.id": "1",
        "num.partitions": "3",
        "fetch.max.bytes": "3000",
        "log.dirs": str(tmp_path / "lake" / "logs" / "1"),
    }
    assert 'without effect name=num.io.threads value=8 reason="Threads of Kafka\'s broker."' in log
    assert "without effect name=log.dirs value=/tmp/kraft-combined-logs reason='The directory of the logs" in log
    assert "KAFKA_HEAP_OPTS is no setting of a broker\n" in log
    assert "KAFKA_NUM_PARTITION is no setting of a broker; did you mean 'num.partitions'" in log.replace("\n", " ")
    assert f"CONTROLLER://:{controller}" in log


@pytest.mark.parametrize(
    ("arguments", "variables", "code", "said"),
    [
        (
            ("--listen", "127.0.0.1:0", "-c", "listeners=PLAINTEXT://h:1"),
            {},
            2,
            "--listen and --config listeners=... say the",
        ),
        (("--broker-id", "1", "-c", "broker.id=1"), {}, 2, "--broker-id and --config broker.id=... say the same"),
        ((), {"KAFKA_BROKER_ID": "x"}, 1, "Invalid value x for configuration broker.id: Not a number of type INT"),
        (
            (),
            {"KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN"},
            1,
            "sasl.enabled.mechanisms cannot be set: there is no encryption",
        ),
        (("-c", "listeners=PLAINTEXT://h:1,OTHER://h:2"), {}, 1, "no security protocol is defined for listener OTHER"),
        (("-c", "listeners=PLAINTEXT://no-such-host.invalid:0"), {}, 1, "cannot listen on no-such-host.invalid:0"),
    ],
)
def test_what_is_said_of_settings_that_cannot_be(
    tmp_path: Path, process: Run, arguments: tuple[str, ...], variables: dict[str, str], code: int, said: str
) -> None:
    ended = process("broker", "start", "--lake", str(tmp_path / "lake"), *arguments, environment=variables)
    assert (ended.code, ended.stdout) == (code, "")
    assert said in ended.stderr.replace("\n", " ")
