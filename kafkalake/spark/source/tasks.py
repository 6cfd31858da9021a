"""What a task is to Spark: the slices of segments that it reads, how they are read in Python, and what a worker loads once."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalake.reader.columns import Projection
    from kafkalake.reader.plan import SegmentSlice
    from kafkalake.reader.predicate import Selection


FORMAT = 2
"""Of the JSON that a task travels as. A jar that knows another one refuses the task."""


class Slices(InputPartition):
    """What one task reads. in_jvm: whether the scan's jar can do it alone, where a driver has it.

    It travels as JSON, which both Python workers and the jar (`jvm/.../SlicesPartition.java`) read.
    """

    def __init__(self, slices: Sequence[SegmentSlice], *, in_jvm: bool) -> None:
        self.slices = slices
        # A JVM whose locale is not UTF-8 cannot name other files.
        self.in_jvm = in_jvm and all(piece.path.isascii() for piece in slices)

    def __reduce__(self) -> tuple[Callable[[str], Slices], tuple[str]]:
        slices = [asdict(piece) for piece in self.slices]
        return slices_from_json, (json.dumps({"format": FORMAT, "in_jvm": self.in_jvm, "slices": slices}),)


def slices_from_json(text: str) -> Slices:
    """The task that pickled itself as this text."""
    from kafkalake.reader.plan import SegmentSlice

    task = json.loads(text)
    slices = [SegmentSlice(**piece | {"aborted": tuple(map(tuple, piece["aborted"]))}) for piece in task["slices"]]
    return Slices(slices, in_jvm=task["in_jvm"])


def tasks_of(groups: Iterable[Sequence[SegmentSlice]], projection: Projection) -> list[Slices]:
    """A task a group of slices. Fields of JSON values are Python's to make."""
    return [Slices(group, in_jvm=not projection.json_fields) for group in groups]


def read_task(task: InputPartition, projection: Projection, selection: Selection) -> Iterator[pa.RecordBatch]:
    """The records of a task, read in this process. Raises what `SliceReader.read` does."""
    # Only here: the process that plans does without it, and all of Python does where the JVM reads.
    from kafkalake.reader.slice_reader import SliceReader

    assert isinstance(task, Slices)
    load_compiled_code()
    return SliceReader(projection, selection).read(task.slices)


@cache
def load_compiled_code() -> None:
    """Once a worker: what the first record would wait for, kept out of the garbage collector's sight.

    A worker collects garbage after every task. With numba loaded that took 65 ms a task, more than reading 64 MiB does.
    """
    import kafkalake.record.message_set  # noqa: F401

    gc.freeze()
