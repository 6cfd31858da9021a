"""How far a stream goes in one step: pure arithmetic on offsets by partition.

    positions   {topic: {partition: next offset to read}}, in JSON as Spark's Kafka source writes them:
                {"clicks": {"0": 23, "1": 17}}; topics and partitions in order, because Spark compares the text
    edges       what there is to read of each partition now

A step never passes what is readable (for `read_committed`: the last stable offset), and never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kafkalake.errors import OffsetOutOfRangeError

Partition = tuple[str, int]
"""Topic and partition."""
Positions = dict[Partition, int]


class Edge(NamedTuple):
    """Of a partition: first offset that is there, end of what a reader may see, end of the log."""

    log_start: int
    readable_end: int
    log_end: int


def to_json(positions: Mapping[Partition, int]) -> dict[str, dict[str, int]]:
    """As Spark keeps them, in an order that only depends on what they are."""
    found: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(positions):
        found.setdefault(topic, {})[str(partition)] = positions[topic, partition]
    return found


def from_json(offsets: Mapping[str, Mapping[str, Any]]) -> Positions:
    """Positions of what `to_json` gave, or Spark's Kafka source."""
    return {
        (topic, int(partition)): int(offset)
        for topic, numbers in offsets.items()
        for partition, offset in numbers.items()
    }


def next_end(
    start: Mapping[Partition, int],
    edges: Mapping[Partition, Edge],
    *,
    offsets_max: int | None = None,
    target: Mapping[Partition, int] | None = None,
    fail_on_data_loss: bool = True,
) -> Positions:
    """Where a step that begins at `start` ends: at the edges, or after about `offsets_max` offsets, or at `target`.

    A partition that `start` lacks is new, and read from its first offset. With a `target` (`Trigger.AvailableNow`) nothing behind
    it is read, and nothing of partitions that it lacks. Raises `OffsetOutOfRangeError` where a partition is gone or ends before
    `start`, unless `fail_on_data_loss` is false: then the one is left out, and the other begins anew.
    """
    begins: Positions = {}
    ends: Positions = {}
    for partition, edge in edges.items():
        if target is not None and partition not in target:
            if partition in start:
                begins[partition] = ends[partition] = start[partition]
            continue
        begin = start.get(partition, edge.log_start)
        if begin > edge.log_end:
            _lost(
                partition, f"it ends at offset {edge.log_end}, and {begin} offsets of it were read", fail_on_data_loss
            )
            begin = min(edge.log_start, edge.readable_end)
        end = edge.readable_end if target is None else min(edge.readable_end, target[partition])
        begins[partition] = max(begin, min(edge.log_start, edge.readable_end))
        # Where the isolation was changed between two runs, what is stable may lie before what was read.
        ends[partition] = max(end, begin)
    for partition in start.keys() - edges.keys():
        _lost(partition, "it is gone", fail_on_data_loss)
    return ends if offsets_max is None else shared_out(begins, ends, offsets_max)


def shared_out(begins: Mapping[Partition, int], ends: Mapping[Partition, int], offsets_max: int) -> Positions:
    """`ends`, or about `offsets_max` offsets behind `begins`, shared out by how much each partition has, at least one each.

    >>> shared_out({("clicks", 0): 0, ("clicks", 1): 0}, {("clicks", 0): 300, ("clicks", 1): 100}, 100)
    {('clicks', 0): 75, ('clicks', 1): 25}
    """
    sizes = {partition: max(0, end - begins[partition]) for partition, end in ends.items()}
    total = sum(sizes.values())
    if total <= offsets_max:
        return dict(ends)
    found, before = {}, 0
    for partition, size in sizes.items():
        # Shares of the running sum: what rounding takes from one partition the next one gets.
        share = (before + size) * offsets_max // total - before * offsets_max // total
        found[partition] = begins[partition] + min(size, max(1, share)) if size else ends[partition]
        before += size
    return found


def _lost(partition: Partition, what: str, fail: bool) -> None:
    if fail:
        raise OffsetOutOfRangeError(
            f"{partition[0]}-{partition[1]}: {what}: it was deleted, or made anew; with failOnDataLoss=false the stream goes on"
        )
