"""Tasks, and formats of values, as the jar (`jvm/.../SlicesPartition.java`, `AvroValues.java`) reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from kafkalake.config.topic_values import AvroFormat
from kafkalake.reader.plan import SegmentSlice

FORMAT = 4
"""Version of the form. A jar with another version refuses the task."""


def encode_task(slices: Sequence[SegmentSlice], avro: AvroFormat | None = None) -> dict[str, object]:
    """Return the task that reads these slices. avro: how values are read that are Avro (None: as the query was analyzed)."""
    return {"format": FORMAT, "slices": [asdict(piece) for piece in slices], "avro": avro_answer(avro)}


def avro_answer(avro: AvroFormat | None) -> dict[str, Any] | None:
    """Return how the jar reads and writes values in Avro; None if they are JSON."""
    return None if avro is None else {"schema": avro.schema, "schema_id": avro.schema_id}
