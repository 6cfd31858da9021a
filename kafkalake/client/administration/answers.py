"""The errors in brokers' responses, as the classes of `kafkalake.errors`, with the broker's message if it sends one."""

from __future__ import annotations

from typing import Protocol

from kafkalake.client.requests import error_name
from kafkalake.errors import KafkaError, error_for_code


class Result(Protocol):
    """A response, or a part of one, with an error of its own. 0: none."""

    error_code: int


def raise_error(code: int, subject: str) -> None:
    """Raise the class of `kafkalake.errors` for a response's error code, with `subject` in its text. 0 is no error."""
    if code:
        raise error_for_code(code, f"{subject}: {error_name(code)}")


def result_error(result: Result, subject: str) -> KafkaError | None:
    """Return a result's error with the broker's message, or else with the name of its error code and `subject`."""
    code = result.error_code
    if not code:
        return None
    said = getattr(result, "error_message", None)
    if said:
        return error_for_code(code, str(said).rstrip("."))
    return error_for_code(code, f"{subject}: {error_name(code)}")


def raise_result(result: Result, subject: str) -> None:
    """Raise the error of a result, as `result_error` returns it, if it has one."""
    error = result_error(result, subject)
    if error is not None:
        raise error
