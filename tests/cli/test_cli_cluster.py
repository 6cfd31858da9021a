"""`kafkalake cluster`: the brokers of a lake as processes on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import Ended, Run, environment_with
from waiting import wait_until

pytestmark = pytest.mark.process


@contextmanager
def started(lake: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `cluster start` and yield its process and the addresses of its brokers."""
    command = [sys.executable, "-m", "kafkalake", "cluster", "start", "--lake", str(lake), "--port", "0", *more]
    log = lake.with_suffix(".log")
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment_with(None)
        ) as process,
    ):
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("listening on "), log.read_text()
            yield process, said.split()[-1]
        finally:
            process.kill()


def test_a_cluster_from_start_to_stop(tmp_path: Path, kafkalake: Run) -> None:
    lake = tmp_path / "lake"

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(kafkalake("cluster", "status", "--lake", str(lake), "--json").stdout)
        return found

    with started(lake, "--brokers", "2", "--config", "num.partitions=4") as (process, addresses):
        brokers = status()["brokers"]
        assert status()["pid"] == process.pid
        assert [f"{each['host']}:{each['port']}" for each in brokers] == addresses.split(",")
        assert [each["running"] for each in brokers] == [True, True]
        assert [each["controller"] for each in brokers].count(True) == 1
        assert all(
            f"{address} " in kafkalake("cluster", "status", "--lake", str(lake)).stdout
            for address in addresses.split(",")
        )
        assert kafkalake("topics", "create", "clicks", "-b", addresses).code == 0

        described: list[Ended] = []

        def is_described() -> bool:
            described.append(kafkalake("topics", "describe", "clicks", "-b", addresses, "--json"))
            return described[-1].code == 0

        wait_until(is_described)  # by the broker that is asked
        partitions = json.loads(described[-1].stdout)[0]["partitions"]
        assert {each["leader"] for each in partitions} == {0, 1}
        assert all(sorted(each["replicas"]) == [0, 1] for each in partitions)
        os.kill(brokers[1]["pid"], signal.SIGKILL)

        def is_back() -> bool:
            return (
                all(each["running"] for each in status()["brokers"])
                and status()["brokers"][1]["pid"] != brokers[1]["pid"]
            )

        wait_until(is_back, timeout_s=30)
        second = kafkalake("cluster", "start", "--lake", str(lake), "--brokers", "1")
        assert second.code == 1 and f"are run by process {process.pid} of " in second.stderr
        stopped = kafkalake("cluster", "stop", "--lake", str(lake))
        assert (stopped.code, stopped.stdout) == (0, f"Stopped the brokers of {lake}.\n")
        assert process.wait(20) == 0
    assert status() == {"pid": None, "brokers": []}
    again = kafkalake("cluster", "stop", "--lake", str(lake))
    assert again.code == 1 and f"no `cluster start` runs on {lake}" in again.stderr
    log = lake.with_suffix(".log").read_text()
    assert "broker 1 | it has ended with signal SIGKILL; it is started again in 1 s\n" in log
    assert "they survive the end of a process, not the loss of the disk" in log.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--port", "65535", "--brokers", "2"), 2, "--port 65535 leaves no port for broker 1"),
        (
            ("--config", "advertised.listeners=PLAINTEXT://a:1"),
            1,
            "advertised.listeners is of one broker, not of a cluster",
        ),
        (("--config", "num.partition=1"), 1, "did you mean 'num.partitions'"),
        (("--config", "log.retention.ms=x"), 1, "log.retention.ms"),
    ],
)
def test_what_is_said_of_a_cluster_that_cannot_be(
    tmp_path: Path, kafkalake: Run, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = kafkalake("cluster", "start", "--lake", str(tmp_path / "lake"), *arguments)
    assert (ended.code, ended.stdout) == (code, "")
    assert said in ended.stderr.replace("\n", " ")
    assert not (tmp_path / "lake").exists()


def test_a_directory_with_other_files_is_left_as_it_is(tmp_path: Path, kafkalake: Run, process: Run) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    ended = process("cluster", "start", "--lake", str(tmp_path), "--brokers", "1")
    assert ended.code == 1 and "it already holds other files (notes.txt)" in ended.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]
    assert "no lake at" in kafkalake("cluster", "stop", "--lake", str(tmp_path)).stderr
