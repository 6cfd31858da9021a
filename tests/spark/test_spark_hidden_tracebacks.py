"""Which errors lose their tracebacks on the way through Spark, without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from kafkalake.errors import ConfigurationError
from kafkalake.jobs.error_sentence import one_line_message
from kafkalake.spark.source.hidden_tracebacks import hide_tracebacks

HIDDEN = "SPARK_HIDE_TRACEBACK"


@hide_tracebacks
class Source:
    """A source."""

    def wrong(self, error: Exception) -> None:
        """Raise it."""
        raise error

    def numbers(self) -> Iterator[int]:
        yield from (1, 2)


@pytest.mark.parametrize(
    ("error", "debug", "hidden"),
    [(ConfigurationError("no"), "", True), (ConfigurationError("no"), "1", False), (KeyError("no"), "", False)],
)
def test_only_what_a_sentence_says_is_without_a_traceback(
    error: Exception, debug: str, hidden: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HIDDEN, "")
    monkeypatch.setenv("KAFKALAKE_DEBUG", debug)
    with pytest.raises(type(error)):
        Source().wrong(error)
    assert bool(os.environ[HIDDEN]) == hidden
    assert list(Source().numbers()) == [1, 2]
    assert Source.wrong.__doc__ == "Raise it."


def test_the_sentence_is_found_with_and_without_a_traceback() -> None:
    for said in (
        "[PYTHON_DATA_SOURCE_ERROR] Failed: kafkalake.errors.LakeError: no lake here\n SQLSTATE: 38000",
        "[X] Failed: Traceback (most recent call last):\n  File\nkafkalake.errors.LakeError: no lake here\n SQLSTATE: 38000",
    ):
        assert one_line_message(RuntimeError(said)) == "no lake here"
