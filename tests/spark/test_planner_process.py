"""The loop of the planning process: questions are answered, statements withdrawn, and nothing of one is lost to another."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, cast

import pytest

from kafkalake.errors import LakeError
from kafkalake.spark.planner.process import IS_WITHDRAWN, STATEMENT_THREADS, THREADS, encode, read_frame, serve
from kafkalake.spark.planner.requests import ANSWERS, function_of

TIMEOUT_S = 20


class Asked:
    """A process that answers in a thread, and the two ends of its connection."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], Any]) -> None:
        theirs, self._ours = os.pipe()
        mine, out = os.pipe()
        self._answers = cast(BinaryIO, os.fdopen(mine, "rb"))
        incoming, outgoing = os.fdopen(theirs, "rb"), os.fdopen(out, "wb")
        self._thread = threading.Thread(target=serve, args=(incoming, outgoing, answer))
        self._thread.start()

    def ask(self, **question: Any) -> None:
        os.write(self._ours, encode(question))

    def answers(self, count: int) -> dict[int, Any]:
        found = [read_frame(self._answers) for _ in range(count)]
        return {each["id"]: each for each in found}

    def close(self) -> None:
        os.close(self._ours)
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


def test_each_question_has_its_answer_whatever_becomes_of_others() -> None:
    def answer(question: Mapping[str, Any]) -> Any:
        match question["ask"]:
            case "load":
                return {"topic": question["topic"]}
            case "list":
                raise LakeError("no lake there")
            case "scan":
                return object()  # what JSON cannot hold
            case "read":
                raise PermissionError(errno.EACCES, "Permission denied", "/lake/x")
        raise ValueError("what?")

    asked = Asked(answer)
    for number, what in enumerate(["load", "list", "scan", "other", "load", "read"]):
        asked.ask(id=number, ask=what, topic=f"t{number}")
    found = asked.answers(6)
    assert [found[number]["answer"] for number in (0, 4)] == [{"topic": "t0"}, {"topic": "t4"}]
    assert (found[1]["error"], found[1]["message"]) == ("LakeError", "no lake there")
    assert found[2]["message"].startswith("no answer: ")
    assert found[3]["message"] == "ValueError: what?"
    assert found[5]["message"] == "/lake/x: Permission denied"
    asked.close()


def test_a_statement_that_was_withdrawn_is_not_carried_out(gate: threading.Event) -> None:
    done: list[int] = []

    def answer(question: Mapping[str, Any]) -> Any:
        if question.get("is_slow"):
            assert gate.wait(TIMEOUT_S)
        done.append(question["id"])

    asked = Asked(answer)
    for number in range(THREADS - 1):
        asked.ask(id=number, ask="scan", is_slow=True)
    for number in range(200, 200 + STATEMENT_THREADS):
        asked.ask(id=number, ask="create", is_statement=True, is_slow=True)
    asked.ask(id=300, ask="drop", is_statement=True)
    asked.ask(withdrawn=300)
    asked.ask(withdrawn=999)
    asked.ask(id=400, ask="drop", is_statement=True)
    asked.ask(id=500, ask="list")
    assert list(asked.answers(1)) == [500], "so all before it has been read"
    gate.set()
    asked.answers(THREADS + STATEMENT_THREADS)
    asked.ask(id=600, ask="drop", is_statement=True)
    asked.answers(1)
    asked.close()
    assert sorted(done) == [*range(THREADS - 1), *range(200, 200 + STATEMENT_THREADS), 400, 500, 600]


def test_scans_that_hang_hold_no_statement_back(gate: threading.Event) -> None:
    def answer(question: Mapping[str, Any]) -> None:
        assert question["ask"] == "drop" or gate.wait(TIMEOUT_S)

    asked = Asked(answer)
    for number in range(2 * THREADS):
        asked.ask(id=number, ask="scan")
    asked.ask(id=100, ask="drop", is_statement=True)
    assert list(asked.answers(1)) == [100]
    gate.set()
    asked.answers(2 * THREADS)
    asked.close()


def test_a_procedure_learns_that_it_was_withdrawn_and_delays_nothing_else(gate: threading.Event) -> None:
    ended: list[int] = []

    def answer(question: Mapping[str, Any]) -> None:
        while question.get("is_procedure") and not question[IS_WITHDRAWN]():
            assert not gate.wait(0.01)
        ended.append(question["id"])

    asked = Asked(answer)
    for number in range(THREADS):
        asked.ask(id=number, ask="call", is_statement=True, is_procedure=True)
    asked.ask(id=100, ask="drop", is_statement=True)
    asked.ask(id=200, ask="list")
    assert set(asked.answers(2)) == {100, 200}
    asked.ask(withdrawn=3)
    assert list(asked.answers(1)) == [3]
    asked.close()  # withdraws the others
    for _ in range(1000):
        if len(ended) == THREADS + 2:
            break
        threading.Event().wait(0.01)
    assert sorted(ended) == [*range(THREADS), 100, 200]


def test_what_had_not_begun_when_the_connection_ended_is_not_carried_out(gate: threading.Event) -> None:
    done: list[int] = []
    begun = threading.Semaphore(0)

    def answer(question: Mapping[str, Any]) -> Any:
        begun.release()
        assert gate.wait(TIMEOUT_S)
        done.append(question["id"])

    frames = b"".join(
        encode({"id": number, "ask": "drop", "is_statement": True}) for number in range(STATEMENT_THREADS + 5)
    )
    reader, writer = os.pipe()
    out = io.BytesIO()
    with os.fdopen(reader, "rb") as incoming:
        thread = threading.Thread(target=serve, args=(incoming, out, answer))
        thread.start()
        os.write(writer, frames)
        for _ in range(STATEMENT_THREADS):
            assert begun.acquire(timeout=TIMEOUT_S)
        os.close(writer)
        thread.join(TIMEOUT_S)
    gate.set()
    assert not thread.is_alive()
    for _ in range(1000):
        if len(done) == STATEMENT_THREADS:
            break
        threading.Event().wait(0.01)
    assert sorted(done) == list(range(STATEMENT_THREADS))


@pytest.mark.parametrize("length", [-1, 2**31 - 1])
def test_a_frame_of_an_impossible_size_ends_the_process(length: int) -> None:
    with pytest.raises(ValueError, match="a frame of"):
        read_frame(io.BytesIO(length.to_bytes(4, "big", signed=True)))


def test_every_question_has_a_function() -> None:
    assert all(callable(function_of(ask)) for ask in ANSWERS)


@pytest.mark.process
def test_the_first_query_of_a_driver_waits_for_no_compiled_kernels_and_no_client() -> None:
    code = (
        "import sys, kafkalake.spark.planner.requests as requests\n"
        "for ask in requests.FIRST: requests.function_of(ask)\n"
        "print([name for name in ('numba', 'kio', 'confluent_kafka') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    assert found.stdout.strip() == "[]"
