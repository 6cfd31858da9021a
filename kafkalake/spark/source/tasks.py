"""A Spark task: its slices of segments, their reading in Python, and the code that a worker loads once."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkalake.reader.columns import Projection
    from kafkalake.reader.plan import SegmentSlice
    from kafkalake.reader.predicate import Selection


class Slices(InputPartition):
    """The slices of one task. in_jvm: whether the scan's jar can read them alone, if the driver has it. Serialized as JSON."""

    def __init__(self, slices: Sequence[SegmentSlice], *, in_jvm: bool) -> None:
        self.slices = slices
        self.in_jvm = in_jvm

    def __reduce__(self) -> tuple[Callable[[str], Slices], tuple[str]]:
        from kafkalake.spark.source.task_json import encode_task

        return slices_from_json, (json.dumps(encode_task(self.slices, in_jvm=self.in_jvm)),)


def slices_from_json(text: str) -> Slices:
    """Return the task that was serialized as this text."""
    from kafkalake.spark.source.task_json import decode_slices

    task = json.loads(text)
    return Slices(decode_slices(task), in_jvm=task["in_jvm"])


def tasks_of(groups: Iterable[Sequence[SegmentSlice]], projection: Projection) -> list[Slices]:
    """Return one task per group of slices. Fields of JSON values require Python."""
    return [Slices(group, in_jvm=not projection.json_fields) for group in groups]


def read_task(task: InputPartition, projection: Projection, selection: Selection) -> Iterator[pa.RecordBatch]:
    """Return the records of a task, read in this process. Raise the errors of `SliceReader.read`."""
    # Imported here: the planning process does not need it, and no Python does if the JVM reads.
    from kafkalake.reader.slice_reader import SliceReader

    assert isinstance(task, Slices)
    load_compiled_code()
    return SliceReader(projection, selection).read(task.slices)


@cache
def load_compiled_code() -> None:
    """Load compiled code before the first record, once per worker, and exempt it from garbage collection.

    A worker collects garbage after every task. With numba loaded that took 65 ms per task, more than reading 64 MiB.
    """
    import kafkalake.record.message_set  # noqa: F401

    gc.freeze()
