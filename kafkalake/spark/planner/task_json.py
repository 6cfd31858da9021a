"""Tasks as the jar (`jvm/.../SlicesPartition.java`) reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from kafkalake.reader.plan import SegmentSlice

FORMAT = 3
"""Version of the form. A jar with another version refuses the task."""


def encode_task(slices: Sequence[SegmentSlice]) -> dict[str, object]:
    """Return the task that reads these slices."""
    return {"format": FORMAT, "slices": [asdict(piece) for piece in slices]}
