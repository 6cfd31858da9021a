"""The errors in brokers' responses, as the classes of `kafkalake.errors`, with the broker's message if it sends one.

A response that lacks what was asked about is no success: Kafka's client raises UNKNOWN_SERVER_ERROR for it, and so do operations.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Protocol, TypeVar

from kafkalake.client.requests import error_name
from kafkalake.errors import KafkaError, error_for_code
from kafkalake.topic_partition import TopicPartition, partition_name

R = TypeVar("R")


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


def no_result(subject: str) -> KafkaError:
    """Return the error for a response that lacks what was asked about."""
    return KafkaError(f"the broker's response says nothing about {subject}")


def find_result(results: Iterable[R], is_asked: Callable[[R], bool], subject: str) -> R:
    """Return the first result that `is_asked`. Raise `KafkaError` if there is none."""
    for each in results:
        if is_asked(each):
            return each
    raise no_result(subject)


def missing_partitions(
    asked: Iterable[TopicPartition], found: Container[TopicPartition]
) -> dict[TopicPartition, KafkaError]:
    """Return the errors of partitions that were asked about and are not among those found."""
    return {each: no_result(f"partition {partition_name(each)}") for each in asked if each not in found}


def require_partitions(asked: Iterable[TopicPartition], found: Container[TopicPartition]) -> None:
    """Raise `KafkaError` if a partition that was asked about is not among those found."""
    for error in missing_partitions(asked, found).values():
        raise error
