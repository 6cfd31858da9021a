"""`kafkalake brokers` where a broker has ended: it is listed and described as fenced until it is unregistered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from node_in_thread import NodeInThread

pytestmark = pytest.mark.process


def test_a_broker_that_has_ended_is_shown_until_it_is_unregistered(tmp_path: Path, kafkalake: Run) -> None:
    lake = tmp_path / "lake"
    with NodeInThread(lake, {"node.id": "0", "broker.rack": "here"}) as first:

        def on(*arguments: str, servers: str = first.servers) -> Any:
            return kafkalake("brokers", *arguments, "-b", servers)

        def fenced(**by: str) -> dict[int, bool]:
            found = json.loads(on("list", "--json", **by).stdout)
            assert found["controllerId"] == 0
            return {each["id"]: each["fenced"] for each in found["brokers"]}

        with NodeInThread(lake, {"node.id": "1"}) as second:
            assert fenced() == fenced(servers=second.servers) == {0: False, 1: False}
            described = json.loads(on("describe", "--json", servers=second.servers).stdout)
            assert [each["controller"] for each in described] == [True, False]
            assert kafkalake("topics", "create", "clicks", "--partitions", "4", "-b", first.servers).code == 0
        assert fenced() == {0: False, 1: True}
        lines = on("list").stdout.splitlines()
        assert [line.split("\t")[0::4] for line in lines] == [["Id", "State"], ["0", "unfenced"], ["1", "fenced"]]
        here, ended = (
            dict(field.split(": ", 1) for field in line.split("\t")) for line in on("describe").stdout.splitlines()
        )
        assert [here[name] for name in ("Broker", "Rack", "State", "Controller", "Leaders")] == [
            *("0", "here", "unfenced", "yes", "2")
        ]
        assert [ended[name] for name in ("Broker", "State", "Leaders", "Replicas")] == ["1", "fenced", "0", "2"]
        said = on("unregister", "1")
        assert (said.code, said.stdout) == (0, "Broker 1 is no longer registered.\n")
        assert fenced() == {0: False}
        again = on("unregister", "1", "--json")
        assert again.code == 1 and "1 is not" in again.stderr
        unknown = on("describe", "1")
        assert unknown.code == 1 and "no broker 1 is registered; there are 0" in unknown.stderr
        with NodeInThread(lake, {"node.id": "1"}):
            assert fenced() == {0: False, 1: False}, "it may come back"
