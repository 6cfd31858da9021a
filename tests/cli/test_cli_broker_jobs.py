"""`broker start --jobs`: the schedule beside the broker comes again when it ends, and ends with the broker, however that ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from kafka_reference import Kafkalake
from waiting import wait_until

pytestmark = pytest.mark.process


class KafkalakeWithJobs(Kafkalake):
    def _command(self) -> Sequence[str]:
        return [*super()._command(), "--jobs"]


def schedules(parent: int) -> list[int]:
    """The processes that run jobs for a broker."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and _parent(process) == parent:
                words = (process / "cmdline").read_bytes().split(b"\0")
                found += [int(process.name)] if b"schedule" in words else []
        except OSError:
            continue
    return found


def _parent(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def is_gone(pid: int) -> bool:
    """Ended, or a zombie that nobody has asked about yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def only_schedule(broker: Kafkalake, *, but: int = 0) -> int:
    wait_until(lambda: [pid for pid in schedules(broker.pid) if pid != but and not is_gone(pid)], broker.stderr_tail)
    return next(pid for pid in schedules(broker.pid) if pid != but)


def test_the_schedule_comes_again_and_ends_with_the_broker(tmp_path: Path) -> None:
    """However the broker ends: two brokers, because the second pause before a schedule comes again is a minute."""
    brokers = [KafkalakeWithJobs(tmp_path / f"lake-{i}", directory=tmp_path / f"broker-{i}") for i in range(2)]
    try:
        ended = [0, 0]
        for broker in brokers:
            broker.start()
        for _ in range(2):
            ended = [only_schedule(broker, but=before) for broker, before in zip(brokers, ended, strict=True)]
            for schedule in ended:
                os.kill(schedule, signal.SIGKILL)
        last = [only_schedule(broker, but=before) for broker, before in zip(brokers, ended, strict=True)]
        for broker, end, schedule in zip(brokers, (Kafkalake.stop, Kafkalake.kill), last, strict=True):
            assert "the process that runs jobs has ended with code -9" in broker.stderr_tail(100)
            end(broker)
            wait_until(lambda schedule=schedule: is_gone(schedule), broker.stderr_tail)  # type: ignore[misc]
    finally:
        for broker in brokers:
            broker.close()


def test_a_broker_says_what_it_does_not_do(kafkalake_broker: Callable[..., Kafkalake]) -> None:
    broker = kafkalake_broker()
    wait_until(lambda: "jobs schedule --lake" in broker.stderr_tail(100), broker.stderr_tail)
