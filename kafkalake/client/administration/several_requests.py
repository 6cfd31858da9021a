"""What is done by several requests, one after the other, with a result for each name or partition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from kafkalake.client.network.script import Script
from kafkalake.errors import KafkaLakeError, as_value

K = TypeVar("K")
V = TypeVar("V")


def ask_in_parts(
    parts: Sequence[Sequence[K]], ask: Callable[[Sequence[K]], Script[Mapping[K, V]]]
) -> Script[dict[K, V | KafkaLakeError]]:
    """Ask about parts in turn and return the results of all.

    Raise the error of the first request as a whole: nothing was done. That of a later one is the result of what it asked about
    and of what is left, which is not asked about any more: results of what was done before are returned with it.
    """
    found: dict[K, V | KafkaLakeError] = {}
    for number, part in enumerate(parts):
        try:
            found |= yield from ask(part)
        except KafkaLakeError as error:
            if number == 0:
                raise
            return found | dict.fromkeys((key for left in parts[number:] for key in left), as_value(error))
    return found
