"""The log: lines that cannot be forged, and no more of them than somebody reads."""

from __future__ import annotations

import ast
import io
import logging
import threading

import pytest
from sources import ON_ONE_WORKER, nodes, sources

from kafkalake.process import log_limits
from kafkalake.process.logs import LimitedHandler

pytestmark = ON_ONE_WORKER

CLOSED = "connection closed peer=%s reason=%r"


class Log:
    """A handler on a text, and a clock that is set."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._text = io.StringIO()
        self.handler = LimitedHandler(self._text, lambda: self.now_s)

    def write(self, template: str, *arguments: object, level: int = logging.WARNING, error: bool = False) -> None:
        exc_info = None
        if error:
            try:
                raise ValueError(*arguments)
            except ValueError as raised:
                exc_info = (type(raised), raised, raised.__traceback__)
        self.handler.handle(logging.LogRecord("kafkalake.a", level, "", 0, template, arguments, exc_info))

    @property
    def text(self) -> str:
        return self._text.getvalue()

    @property
    def lines(self) -> list[str]:
        """What the lines say, without time, level and logger."""
        return [line.split(" ", 3)[3] for line in self.text.splitlines()]


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_plain_line(log: Log) -> None:
    log.write("topic created topic=%s partitions=%d", "clicks", 4, level=logging.INFO)
    assert log.text.endswith("Z INFO a topic created topic=clicks partitions=4\n")


HOSTILE = (
    "x\n2026-11-21T00:00:00.000Z ERROR node forged",
    "\x1b[2Jgone",
    "\x9b31m",
    "\u202egnp.exe",
    "a\r\0b",
    "\ud800",
    " ",
    "",
)


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("template", ["append failed application=%s", "append failed application=%r"])
def test_what_a_client_sends_makes_no_line_and_no_control_sequence(log: Log, template: str, value: str) -> None:
    log.write(template, value)
    log.write(template, ValueError(value))
    assert log.text.count("\n") == 2
    assert log.text.replace("\n", "").isprintable()
    assert log.lines[0] == f"append failed application={value!r}"


def test_a_tracebacks_lines_are_none_of_the_log(log: Log) -> None:
    log.write("request failed name=%s", HOSTILE[0], error=True)
    _, *others = log.text.splitlines()
    assert others
    assert all(line.startswith("    ") for line in others)
    assert "\n2026" not in log.text[1:]


def test_a_long_value_is_cut(log: Log) -> None:
    log.write("refused name=%s", "x" * 30_000_000)
    assert len(log.text) < 700
    assert "and 29999500 characters" in log.text


@pytest.mark.exhaustive
def test_a_flood_from_one_client_is_a_few_lines_and_a_number(log: Log) -> None:
    for port in range(20_000):
        log.write(CLOSED, f"10.0.0.1:{port}", f"version {port} is not supported")
    assert len(log.lines) == 5
    log.write(CLOSED, "10.0.0.2:1", "other")
    assert len(log.lines) == 6
    log.now_s = 59.9
    log.write(CLOSED, "10.0.0.1:1", "again")
    assert len(log.lines) == 6
    log.now_s = 60
    log.write(CLOSED, "10.0.0.1:2", "in the next minute")
    assert "lines=19996" in log.lines[6]
    assert "10.0.0.1:5 " in log.lines[6]
    assert log.lines[7:] == ["connection closed peer=10.0.0.1:2 reason='in the next minute'"]


@pytest.mark.exhaustive
def test_a_flood_from_many_clients_is_bounded_in_lines_and_memory(log: Log) -> None:
    for number in range(20_000):
        log.write(CLOSED, f"10.{number >> 8}.{number & 255}.1:5", "bad")
    assert len(log.lines) == log_limits.LINES_OF_TEMPLATE
    assert log.handler._repeats.subjects <= log_limits.SUBJECTS_MAX
    log.handler.close()
    assert sum(int(line.split("lines=")[1].split()[0]) for line in log.lines[log_limits.LINES_OF_TEMPLATE :]) == (
        20_000 - log_limits.LINES_OF_TEMPLATE
    )


def test_each_of_many_subjects_is_named(log: Log) -> None:
    for number in range(50):
        for _ in range(3):
            log.write("log not closed partition=%s error=%s", f"t-{number}", OSError("no space"))
    assert len(log.lines) == 100
    assert len({line.split()[3] for line in log.lines}) == 34


def test_reasons_and_numbers_make_no_other_subject(log: Log) -> None:
    for number in range(50):
        log.write("not published topic=%s failures=%d error=%s", "t", number, f"error {number}")
    assert len(log.lines) == 5


def test_lines_that_somebody_asked_for_are_not_limited(log: Log) -> None:
    for _ in range(500):
        log.write("request peer=%s", "10.0.0.1:1", level=logging.DEBUG)
    assert len(log.lines) == 500


def test_what_was_left_out_is_said_when_nothing_else_comes() -> None:
    written = threading.Event()

    class Text(io.StringIO):
        def write(self, text: str) -> int:
            if "left out lines=3" in text:
                written.set()
            return super().write(text)

    handler = LimitedHandler(Text(), window_s=0.05)
    for _ in range(8):
        handler.handle(logging.LogRecord("kafkalake.a", logging.WARNING, "", 0, CLOSED, ("10.0.0.1:1", "x"), None))
    assert written.wait(30)
    handler.close()


def test_every_line_has_a_template() -> None:
    """Values in a template would be trusted, and each would be a template of its own."""
    wrong = []
    for path, source in sources().items():
        for node in nodes(source, ast.Call):
            if (
                isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("logger", "logging")
                and node.func.attr in ("debug", "info", "warning", "error", "exception", "critical")
                and not (isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str))
            ):
                wrong.append(f"{path}:{node.lineno}")
    assert wrong == []
