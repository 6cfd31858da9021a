"""The JSON form of a task, which Python workers and the jar (`jvm/.../SlicesPartition.java`) read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kafkalake.reader.plan import SegmentSlice

FORMAT = 2
"""Version of the form. A jar with another version refuses the task."""


def encode_task(slices: Sequence[SegmentSlice], *, in_jvm: bool) -> dict[str, Any]:
    """Return the task. in_jvm: whether the jar can read it alone. A JVM whose locale is not UTF-8 opens ASCII names only."""
    return {
        "format": FORMAT,
        "in_jvm": in_jvm and all(piece.path.isascii() for piece in slices),
        "slices": [asdict(piece) for piece in slices],
    }


def decode_slices(task: Mapping[str, Any]) -> list[SegmentSlice]:
    """Return the slices of a task."""
    return [SegmentSlice(**piece | {"aborted": tuple(map(tuple, piece["aborted"]))}) for piece in task["slices"]]
