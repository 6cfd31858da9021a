"""Every public method of every client refuses arguments of a wrong type or value by an error of its own, and soon.

The cases are made of the methods' annotations: a method that is added is tested, a new kind of argument has to be added.
"""

from __future__ import annotations

import asyncio
import inspect
import linecache
import math
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest

import kafkalake
from kafkalake import aio
from kafkalake.client.administration.reassignments import Election, Move
from kafkalake.errors import KafkaLakeError

NOWHERE = "127.0.0.1:1"
CLIENTS = (kafkalake.Producer, kafkalake.Consumer, kafkalake.Admin, aio.Producer, aio.Consumer, aio.Admin)
SETTINGS: dict[str, dict[str, Any]] = {
    "Producer": {"transactional_id": "t", "max_block_ms": 10},
    "Consumer": {"group_id": "g", "enable_auto_commit": False, "default_api_timeout_ms": 10},
    "Admin": {"first_contact_ms": 0},
}
NOT_CALLED = {"run", "send_and_wait"}
"""One takes operations, the other is `send`."""
ANYTHING = {"object", "Any"}

PLACE = ("t", 0)
WRONG_PLACES: list[object] = ["t", 5, ("t", "0"), ("t",), (None, 0), ("t", -1)]
WRONG_TIMES: list[object] = ["x", -1, -0.5, math.nan, -math.inf, [1]]
WRONG_NUMBERS: list[object] = ["x", 1.5, math.nan, [1]]
WRONG_DICTIONARIES: list[object] = ["x", 5, ["t"], {"t": 0}, {PLACE: "x"}, {PLACE: 1.5}]
SEVERAL_PLACES: list[object] = ["t", 5, ["t"], *([each] for each in WRONG_PLACES)]
SEVERAL_BROKERS: list[object] = ["0", 0, ["0"], [-1], [None]]
SEVERAL_NAMES: list[object] = ["t", 5, [5], [None]]


class Kind(NamedTuple):
    """A right value of an annotation, and wrong ones."""

    right: object
    wrong: list[object]


KINDS = {
    "BrokerId": Kind(0, [*WRONG_NUMBERS, -1]),
    "Collection[BrokerId]": Kind([0], SEVERAL_BROKERS),
    "Collection[TopicPartition]": Kind([PLACE], SEVERAL_PLACES),
    "Collection[int]": Kind([0], ["0", 0, ["0"], [None]]),
    "Collection[str]": Kind(["t"], SEVERAL_NAMES),
    "CommitCallback": Kind(print, [5, "x"]),
    "ConsumerGroupMetadata | str": Kind("g", [5, "", ["g"]]),
    "Election": Kind(Election.PREFERRED, ["preferd", 0, ["preferred"]]),
    "GivenOffsets": Kind({PLACE: 1}, [*WRONG_DICTIONARIES, {PLACE: -1}]),
    "Iterable[BrokerId]": Kind([0], SEVERAL_BROKERS),
    "Iterable[TopicPartition]": Kind([PLACE], SEVERAL_PLACES),
    "Iterable[str]": Kind(["t"], SEVERAL_NAMES),
    "Iterable[str] | str": Kind(["t"], [5, [5], "", [""]]),
    "Mapping[TopicPartition, Move]": Kind({PLACE: Move((0,), (1,))}, [*WRONG_DICTIONARIES, {PLACE: None}]),
    "Mapping[TopicPartition, OffsetAndMetadata | int]": Kind({PLACE: 1}, [*WRONG_DICTIONARIES, {PLACE: -1}]),
    "Mapping[TopicPartition, Sequence[int] | None]": Kind({PLACE: [1]}, [*WRONG_DICTIONARIES, {PLACE: ["1"]}]),
    "Mapping[TopicPartition, int]": Kind({PLACE: 0}, WRONG_DICTIONARIES),
    "Mapping[str, str]": Kind({"a": "b"}, ["x", 5, ["a"], {5: "b"}, {"a": 5}]),
    "OnDelivery": Kind(print, [5, "x"]),
    "RebalanceListener": Kind(None, [5, "x"]),
    "Seconds": Kind(0.0, WRONG_TIMES),
    "Sequence[Header]": Kind([], [5, "x", [("a",)], {"a": b"b"}]),
    "Sequence[str]": Kind(["t"], SEVERAL_NAMES),
    "TopicPartition": Kind(PLACE, WRONG_PLACES),
    "UUID": Kind(UUID(int=1), ["t", 5]),
    "bool": Kind(False, ["x", 5, []]),
    "float": Kind(0.0, WRONG_TIMES),
    "int": Kind(1, WRONG_NUMBERS),
    "pa.RecordBatch | pa.Table": Kind(None, [5, "x", {"value": [b"1"]}]),
    "str": Kind("t", [5, b"t", ["t"]]),
}


class Case(NamedTuple):
    """A call with one wrong argument."""

    client: type
    method: str
    parameter: str
    arguments: dict[str, object]


def cases(client: type) -> Iterator[Case]:
    for name, method in inspect.getmembers(client, inspect.isfunction):
        if name.startswith("_") or name in NOT_CALLED:
            continue
        parameters = list(inspect.signature(method).parameters.values())[1:]
        kinds = {each.name: each.annotation for each in parameters if each.annotation not in ANYTHING}
        needed = {
            each.name: KINDS[kinds[each.name]].right for each in parameters if each.default is inspect.Parameter.empty
        }
        for parameter, kind in kinds.items():
            about = kind.removesuffix(" | None")
            for value in [*KINDS[about].wrong, *([None] if about == kind and parameter in needed else [])]:
                yield Case(client, name, parameter, {**needed, parameter: value})


def complaint(case: Case, error: Exception | None) -> list[str]:
    """What is wrong about the end of a call with a wrong argument."""
    if error is None:
        return [f"taken: {case}"]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    is_ours = "raise " in linecache.getline(frame.filename, frame.lineno or 0) and "kafkalake" in frame.filename
    is_clear = isinstance(error, KafkaLakeError) or (isinstance(error, TypeError | ValueError) and is_ours)
    return [] if is_clear else [f"{case}: {error!r} of {frame}"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("client", [kafkalake.Producer, kafkalake.Consumer, kafkalake.Admin])
def test_wrong_arguments_of_clients(client: Callable[..., Any]) -> None:
    complaints: list[str] = []
    with client(bootstrap_servers=NOWHERE, **SETTINGS[client.__name__]) as used:
        for case in cases(client):  # type: ignore[arg-type]
            try:
                getattr(used, case.method)(**case.arguments)
            except Exception as error:
                complaints += complaint(case, error)
            else:
                complaints += complaint(case, None)
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize("client", [aio.Producer, aio.Consumer, aio.Admin])
def test_wrong_arguments_of_clients_of_an_event_loop(client: Callable[..., Any]) -> None:
    async def run() -> None:
        complaints: list[str] = []
        async with client(bootstrap_servers=NOWHERE, **SETTINGS[client.__name__]) as used:
            for case in cases(client):  # type: ignore[arg-type]
                try:
                    found = getattr(used, case.method)(**case.arguments)
                    await found if inspect.isawaitable(found) else None
                except Exception as error:
                    complaints += complaint(case, error)
                else:
                    complaints += complaint(case, None)
        assert not complaints, "\n".join(complaints)

    asyncio.run(asyncio.wait_for(run(), 60))
