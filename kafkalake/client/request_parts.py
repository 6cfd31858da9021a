"""Requests about very many names or partitions: what one of them may have, and how the rest is cut into several.

A broker of kafkalake closes the connection of a request with more than 50,000 array elements in all (`ELEMENTS_MAX` of
`wire/messages/reading.py`): a bound on what a frame costs to decode. Apache Kafka bounds a request by its bytes only, so its
clients send one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

NAMED_AT_ONCE = 10_000
"""Names or partitions of a request. Where each partition needs an element for its topic too, they are 20,000 elements."""
COMMITTED_AT_ONCE = 1_000
"""Partitions of an OffsetCommit. A broker writes them as one batch of its journal, and refuses one larger than a message may be."""
CONFIGS_AT_ONCE = 1_000
"""Resources of a DescribeConfigs, whose response has every setting of each."""


def cut(items: Iterable[T], most: int = NAMED_AT_ONCE, elements: Callable[[T], int] = lambda _: 1) -> list[list[T]]:
    """Return `items`, in order, as the parts for one request each: one empty part if there are none.

    elements: the array elements that an item takes, of which a part with several items has no more than `most`.
    """
    parts: list[list[T]] = [[]]
    taken = 0
    for item in items:
        size = elements(item)
        if parts[-1] and taken + size > most:
            parts.append([])
            taken = 0
        parts[-1].append(item)
        taken += size
    return parts
