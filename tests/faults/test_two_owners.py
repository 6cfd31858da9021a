"""Two machines and one lake: whoever may not be its owner any more neither writes nor answers, and its successor loses nothing.

A machine is a namespace with a host name and a boot id of its own. Its locks do not reach the other one: the lock file is removed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from broker_that_hangs import hanging_command
from kafka_clients import create_topic
from kafka_reference import BrokerFailed, Kafkalake
from recording_producer import read_all
from waiting import wait_until

from kafkalake.dataset import topic_dataset
from kafkalake.metadata import paths
from kafkalake.metadata.delta import DeltaMetadataStore
from kafkalake.storage.state import read_state

LEASE_MS = 5_000
TOPIC = "clicks"
SCRIPT = 'hostname "$0" && mount --bind "$1" /proc/sys/kernel/random/boot_id && shift && exec "$@"'


class OnMachine(Kafkalake):
    """A broker on a machine of its own. `hangs`: the flag and the part of the path for `broker_that_hangs`."""

    def __init__(self, name: str, lake: Path, directory: Path, hangs: tuple[Path, str] | None = None) -> None:
        settings = {"lease.duration.ms": str(LEASE_MS), "lease.wait.ms": "60000"}
        super().__init__(lake, directory=directory / name, settings=settings)
        self.machine = name
        self._hangs = hangs
        self._boot_id = self.directory / "boot-id"
        self._boot_id.write_text(f"{uuid.uuid4()}\n")

    def _command(self) -> Sequence[str]:
        command = list(super()._command())
        if self._hangs is not None:
            command = hanging_command(command, *self._hangs)
        return ["unshare", "--uts", "--mount", "sh", "-c", SCRIPT, self.machine, str(self._boot_id), *command]

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait_for_end(self) -> int:
        assert self._process is not None
        return self._process.wait(30)

    def text(self) -> str:
        return self.stderr_path.read_text()


pytestmark = pytest.mark.process
Machines = Callable[..., OnMachine]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machines]:
    if os.geteuid() != 0:
        pytest.skip("a machine of its own needs root; tests/metadata covers the decisions")
    started: list[OnMachine] = []

    def make(name: str, hangs: tuple[Path, str] | None = None) -> OnMachine:
        started.append(OnMachine(name, tmp_path / "lake", tmp_path, hangs))
        return started[-1]

    yield make
    for broker in started:
        broker.close()


class Acknowledged:
    """What a producer got for each value it sent."""

    def __init__(self, servers: str) -> None:
        self.offsets: dict[int, bytes] = {}
        self.errors = 0
        # No timeout: what is sent to a paused broker waits until that goes on.
        settings = {"linger.ms": 0, "retries": 0, "acks": "all", "message.timeout.ms": 0, "socket.timeout.ms": 300_000}
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers, **settings})

    def send(self, *values: bytes) -> None:
        for value in values:
            self._producer.produce(TOPIC, value, partition=0, on_delivery=self._delivered)
        self._producer.poll(0.2)

    def wait(self, *, broker_ended: bool = False) -> Acknowledged:
        if broker_ended:
            self._producer.purge(in_flight=False)
        assert self._producer.flush(60) == 0
        return self

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.offsets[message.offset()] = message.value()
        else:
            self.errors += 1


def remove_lock(lake: Path) -> None:
    """From here on the lock of whoever runs reaches nobody."""
    paths.lock_path(lake, 0).unlink()


def check_everywhere(broker: OnMachine, expected: dict[int, bytes]) -> None:
    """What was acknowledged is what Kafka's clients and Spark's reader find, before and after a SIGKILL."""
    for is_started_again in (False, True):
        if is_started_again:
            broker.kill()
            broker.start()
        assert read_all(broker.bootstrap_servers, TOPIC, 0) == expected
        rows = topic_dataset(broker.lake, TOPIC).to_table().to_pylist()
        assert {row["offset"]: row["value"] for row in rows} == expected
    assert "which has ended" in broker.text()  # its own lock: no waiting, no new segment


def check_log(lake: Path) -> None:
    verified = subprocess.run([sys.executable, "-m", "kafkalake", "log", "verify", lake], capture_output=True)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_a_broker_that_was_paused_beyond_its_lease_is_succeeded(machine: Machines) -> None:
    first, second = machine("host-a"), machine("host-b")
    first.start()
    create_topic(first.bootstrap_servers, TOPIC)
    theirs = Acknowledged(first.bootstrap_servers)
    theirs.send(b"base")
    theirs.wait()
    epoch = read_state(first.lake / "logs/0" / f"{TOPIC}-0").leader_epoch

    first.send(signal.SIGSTOP)
    theirs.send(*(b"first-%d" % number for number in range(5)))  # they wait in its socket
    remove_lock(first.lake)
    began = time.monotonic()
    second.start()
    assert time.monotonic() - began > LEASE_MS / 1000
    assert "waiting for the lease" in second.text()
    published = [row for row in DeltaMetadataStore(first.lake, create=False).load_partitions() if row.topic == TOPIC]
    assert published[0].leader_epoch > epoch  # before it serves
    ours = Acknowledged(second.bootstrap_servers)
    ours.send(*(b"second-%d" % number for number in range(4)))
    ours.wait()

    assert theirs.errors == 0, "they still wait"
    first.send(signal.SIGCONT)
    assert first.wait_for_end() == 1
    assert "lease lost, stopping" in first.text() and "host-b" in first.text()
    theirs.wait(broker_ended=True)
    assert theirs.offsets == {0: b"base"} and theirs.errors == 5
    ours.send(*(b"second-%d" % number for number in range(4, 8)))
    ours.wait()
    expected = theirs.offsets | ours.offsets
    assert sorted(expected) == list(range(9))
    check_everywhere(second, expected)
    first.kill()
    with pytest.raises(BrokerFailed, match="host-b"):
        refused = machine("host-c")
        refused._settings["lease.wait.ms"] = "0"
        refused.start()
    second.stop()
    check_log(second.lake)
    first.start()
    again = Acknowledged(first.bootstrap_servers)
    again.send(b"again")
    assert read_all(first.bootstrap_servers, TOPIC, 0) == expected | again.wait().offsets
    assert again.offsets == {9: b"again"}


@pytest.mark.long
def test_who_is_killed_as_it_takes_files_over_leaves_that_to_its_next_start(machine: Machines, tmp_path: Path) -> None:
    """The lock proves that this one has ended, and nothing of the one before it, which still has the files open."""
    flag = tmp_path / "hang"
    first, second = machine("host-a"), machine("host-b", (flag, f"/{TOPIC}-0/"))
    first.start()
    create_topic(first.bootstrap_servers, TOPIC)
    theirs = Acknowledged(first.bootstrap_servers)
    theirs.send(b"base")
    theirs.wait()
    directory = first.lake / "logs/0" / f"{TOPIC}-0"
    opened = {path.stat().st_ino for path in (directory / "state", *directory.glob("*.arrow"))}
    first.send(signal.SIGSTOP)
    remove_lock(first.lake)
    flag.touch()
    second.launch()
    wait_until(lambda: any(directory.glob("*.tmp")))
    second.kill()
    flag.unlink()
    second.start()
    assert not opened & {path.stat().st_ino for path in directory.iterdir()}
    first.kill()
    ours = Acknowledged(second.bootstrap_servers)
    ours.send(b"second")
    check_everywhere(second, theirs.offsets | ours.wait().offsets)


@pytest.mark.long
def test_a_broker_whose_renewal_hangs_is_succeeded(machine: Machines, tmp_path: Path) -> None:
    flag = tmp_path / "hang"
    first, second = machine("host-a", (flag, "/metadata/brokers/")), machine("host-b")
    first.start()
    create_topic(first.bootstrap_servers, TOPIC)
    theirs = Acknowledged(first.bootstrap_servers)
    theirs.send(b"base")
    theirs.wait()
    flag.touch()
    remove_lock(first.lake)
    while first.is_running():
        theirs.send(b"first")
    theirs.wait(broker_ended=True)
    assert first.wait_for_end() == 1
    assert "could not be renewed before it expired" in first.text()
    assert theirs.offsets and theirs.errors
    second.start()
    ours = Acknowledged(second.bootstrap_servers)
    ours.send(b"second")
    expected = theirs.offsets | ours.wait().offsets
    found = read_all(second.bootstrap_servers, TOPIC, 0)
    assert {offset: found[offset] for offset in expected} == expected
    check_everywhere(second, found)
    second.stop()
    check_log(second.lake)


def test_a_pause_that_nobody_used_costs_nothing(machine: Machines) -> None:
    """A laptop that slept: the lease is renewed before anything is written or answered."""
    broker = machine("host-a").start()
    create_topic(broker.bootstrap_servers, TOPIC)
    sent = Acknowledged(broker.bootstrap_servers)
    sent.send(b"base")
    sent.wait()
    os.kill(broker.pid, signal.SIGSTOP)
    time.sleep(LEASE_MS / 1000)  # the lease runs out by the clock of the paused process itself
    os.kill(broker.pid, signal.SIGCONT)
    retrying = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    retrying.produce(TOPIC, b"after", partition=0)
    assert retrying.flush(30) == 0
    assert broker.is_running()
    assert read_all(broker.bootstrap_servers, TOPIC, 0) == {0: b"base", 1: b"after"}
