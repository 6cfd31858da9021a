"""A full disk under a running broker: producers get an error, the broker lives, nothing acknowledged is lost, and it recovers."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from kafka_clients import create_topic
from kafka_reference import BrokerFailed
from recording_producer import read_all

from kafkalake.metadata import paths

DISK_BYTES = 48 * 1024 * 1024
BALLAST_BYTES = 16 * 1024 * 1024
FULL_S = float(os.environ.get("FULL_S", "12"))
LEASE_MS = 5_000
"""Without `FULL_S` the disk stays full for more than two leases; with the three minutes of `scripts/soak` leases are of 30 s."""
NO_SPACE_ERRORS = {"KAFKA_STORAGE_ERROR", "_MSG_TIMED_OUT"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 48 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root; tests/storage covers a full disk with a double of the files")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def produce(servers: str, topic: str, count: int, start: int, timeout_ms: int) -> tuple[dict[int, bytes], list[Any]]:
    """Write `count` values of 10 kB with acks=all: what was acknowledged by offset, and the errors of the others."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": servers, "acks": "all", "message.timeout.ms": timeout_ms, "retry.backoff.ms": 50}
    )
    acknowledged: dict[int, bytes] = {}
    errors: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            acknowledged[message.offset()] = message.value()
        else:
            errors.append(error)

    for number in range(start, start + count):
        producer.produce(topic, b"%d:" % number + os.urandom(5_000).hex().encode(), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    return acknowledged, errors


def test_a_full_disk_refuses_writes_and_loses_nothing(
    small_disk: Path, kafkalake_broker: Callable[..., Any], topic: str
) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    broker = kafkalake_broker(small_disk / "lake", settings={"log.segment.bytes": "4000000"})
    servers = broker.bootstrap_servers
    create_topic(servers, topic)

    acknowledged, errors = produce(servers, topic, 6_000, 0, timeout_ms=3_000)
    assert acknowledged and errors, "the disk should have become full on the way"
    assert {error.name() for error in errors} <= NO_SPACE_ERRORS
    assert broker.is_running()
    found = read_all(servers, topic, 0)
    assert {offset: found.get(offset) for offset in acknowledged} == acknowledged

    ballast.unlink()
    more, errors = produce(servers, topic, 100, 6_000, timeout_ms=30_000)
    assert len(more) == 100 and not errors
    broker.kill()
    broker.start()
    found = read_all(servers, topic, 0)
    expected = acknowledged | more
    assert {offset: found.get(offset) for offset in expected} == expected
    broker.stop()
    verified = subprocess.run([sys.executable, "-m", "kafkalake", "log", "verify", broker.lake], capture_output=True)
    assert verified.returncode == 0, verified.stderr


def test_a_topic_that_is_deleted_on_a_full_disk_and_created_again_keeps_its_records(
    small_disk: Path, kafkalake_broker: Callable[..., Any], topic: str
) -> None:
    """The disk is too full for the footer of the old log; nothing of the new one may go into the old one's files."""
    broker = kafkalake_broker(small_disk / "lake")
    servers = broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    create_topic(servers, topic)
    producer = confluent_kafka.Producer(  # a message in the segment for each record: a footer of 60 KB
        {"bootstrap.servers": servers, "linger.ms": 0, "batch.num.messages": 1, "max.in.flight": 1}
    )
    for _ in range(2_500):
        producer.produce(topic, b"old")
    assert producer.flush(60) == 0
    disk = os.statvfs(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(disk.f_bavail * disk.f_frsize - 45_000))  # Delta's commit of the deletion still fits
    admin.delete_topics([topic])[topic].result(30)
    ballast.unlink()
    create_topic(servers, topic)
    acknowledged, errors = produce(servers, topic, 100, 0, timeout_ms=30_000)
    assert len(acknowledged) == 100 and not errors
    assert read_all(servers, topic, 0) == acknowledged
    broker.kill()
    broker.start()
    assert read_all(servers, topic, 0) == acknowledged


def fill(disk: Path) -> Path:
    """Take every byte that is left."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 512, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
    return filler


@pytest.mark.long
def test_a_disk_that_stays_full_costs_only_the_writing(
    small_disk: Path, kafkalake_broker: Callable[..., Any], topic: str
) -> None:
    lease_ms = LEASE_MS if FULL_S < 60 else 30_000
    broker = kafkalake_broker(small_disk / "lake", settings={"lease.duration.ms": str(lease_ms)})
    servers = broker.bootstrap_servers
    create_topic(servers, topic)
    expected, errors = produce(servers, topic, 500, 0, timeout_ms=30_000)
    assert len(expected) == 500 and not errors
    pid, filler = broker.pid, fill(small_disk)
    until, number = time.monotonic() + FULL_S, 500
    while time.monotonic() < until:
        more, _ = produce(servers, topic, 20, number, timeout_ms=500)
        expected |= more
        number += 20
        found = read_all(servers, topic, 0)
        assert {offset: found.get(offset) for offset in expected} == expected, "reads go on"
    assert broker.is_running() and broker.pid == pid
    said = broker.stderr_path.read_text()
    assert "lease renewed in the lock file alone" in said and "lease lost" not in said

    filler.unlink()
    began = time.monotonic()
    more, errors = produce(servers, topic, 100, number, timeout_ms=30_000)
    assert len(more) == 100 and not errors
    assert time.monotonic() - began < 5, "writing goes on when there is space"
    expected |= more

    filler = fill(small_disk)
    for first in range(number + 100, number + 160, 20):
        broker.kill()
        broker.start()
        found = read_all(servers, topic, 0)
        assert {offset: found.get(offset) for offset in expected} == expected, "it starts on a full disk, and again"
        more, _ = produce(servers, topic, 20, first, timeout_ms=500)
        expected |= more
    broker.kill()
    paths.reserve_path(broker.lake, 0).unlink()
    fill(small_disk)
    with pytest.raises(BrokerFailed, match="No space left on device"):
        broker.start()
    assert "Traceback" not in broker.stderr_path.read_text()
    filler.unlink()
    broker.start()
    found = read_all(servers, topic, 0)
    assert {offset: found.get(offset) for offset in expected} == expected
    broker.stop()
    verified = subprocess.run([sys.executable, "-m", "kafkalake", "log", "verify", broker.lake], capture_output=True)
    assert verified.returncode == 0, verified.stderr
