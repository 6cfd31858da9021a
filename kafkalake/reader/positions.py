"""Computes how far a stream reads in one step: pure arithmetic on offsets by partition.

    positions   {topic: {partition: next offset to read}}, in JSON as Spark's Kafka source writes them:
                {"clicks": {"0": 23, "1": 17}}; topics and partitions in order, because Spark compares the text
    topic ids   beside them, as a topic without partitions: {"clicks#qLgPoSNLQmGwWbvXL1kcpQ": {}}. No topic has a `#` in its name,
                and Spark's Kafka source, which has no ids, ignores such an entry, so checkpoints work in both directions
    edges       the current readable range of each partition

A name does not identify a topic: if the ids differ, the topic was deleted and created again, and its offsets start at 0 again.
A step never passes the readable end (for `read_committed`: the last stable offset), and never goes back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkalake.errors import OffsetOutOfRangeError
from kafkalake.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

Positions = dict[TopicPartition, int]
TopicIds = dict[str, str]
"""Topic ids by topic, in Kafka's format. Topics with an unknown id are absent."""
_ID_MARK = "#"


class Edge(NamedTuple):
    """The first available offset, the end of the readable offsets and the log end offset of a partition, and its topic id."""

    log_start: int
    readable_end: int
    log_end: int
    topic_id: str = ""


def to_json(
    positions: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None
) -> dict[str, dict[str, int]]:
    """Return the positions as Spark stores them, in a deterministic order, with the known ids of their topics."""
    found: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(positions):
        found.setdefault(topic, {})[str(partition)] = positions[topic, partition]
    for topic in list(found):
        if topic_id := (topic_ids or {}).get(topic, ""):
            found[f"{topic}{_ID_MARK}{topic_id}"] = {}
    return dict(sorted(found.items()))


def from_json(offsets: Mapping[str, Mapping[str, Any]]) -> Positions:
    """Return the positions in offsets written by `to_json` or by Spark's Kafka source."""
    return {
        (topic, int(partition)): int(offset)
        for topic, numbers in offsets.items()
        for partition, offset in numbers.items()
    }


def ids_from_json(offsets: Iterable[str]) -> TopicIds:
    """Return the topic ids given to `to_json`. Offsets written by version 0.1 or by Spark's Kafka source have none."""
    return {topic: topic_id for topic, mark, topic_id in (name.partition(_ID_MARK) for name in offsets) if mark}


def is_another(topic: str, topic_id: str, known: Mapping[str, str]) -> bool:
    """Return whether the topic is another one than the `known` topic of the same name. False if one of the ids is unknown."""
    return bool(topic_id) and known.get(topic, topic_id) != topic_id


def made_anew(topics: Iterable[str], fail: bool) -> None:
    """Raise `OffsetOutOfRangeError` for topics that were deleted and created again. Unless `fail`, log a warning instead."""
    for topic in sorted(set(topics)):
        what = f"topic {topic} was deleted and created again since it was read"
        if fail:
            raise OffsetOutOfRangeError(f"{what}: with failOnDataLoss=false the new one is read from its beginning")
        logger.warning("%s: the new one is read from its beginning", what)


def next_end(
    start: Mapping[TopicPartition, int],
    edges: Mapping[TopicPartition, Edge],
    *,
    topic_ids: Mapping[str, str] | None = None,
    offsets_max: int | None = None,
    target: Mapping[TopicPartition, int] | None = None,
    fail_on_data_loss: bool = True,
) -> Positions:
    """Return the end of a step that begins at `start`: at the edges, after about `offsets_max` offsets, or at `target`.

    A partition absent from `start` is new and read from its first offset. With a `target` (`Trigger.AvailableNow`) no record after
    it is read, and no partition absent from it. `topic_ids`: ids of the topics in `start`. Raise `OffsetOutOfRangeError` if a
    partition is gone, ends before `start` or belongs to another topic, unless `fail_on_data_loss` is false: then a partition that
    is gone is left out, and the others are read from their beginning.
    """
    begins: Positions = {}
    ends: Positions = {}
    anew = {topic for (topic, _), edge in edges.items() if is_another(topic, edge.topic_id, topic_ids or {})}
    made_anew(anew, fail_on_data_loss)
    start = {partition: offset for partition, offset in start.items() if partition[0] not in anew}
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
        # If the isolation changed between two runs, the last stable offset may lie before the last read offset.
        ends[partition] = max(end, begin)
    for partition in start.keys() - edges.keys():
        _lost(partition, "it is gone", fail_on_data_loss)
    return ends if offsets_max is None else shared_out(begins, ends, offsets_max)


class BatchDelay:
    """Delays a step of fewer than `offsets_min` offsets, until `delay_ms_max` have passed since the last step that was not delayed.

    As in Spark's Kafka source (`minOffsetsPerTrigger`, `maxTriggerDelay`), the first step is not delayed. `clock`: returns ms.
    """

    def __init__(self, offsets_min: int, delay_ms_max: int, clock: Callable[[], int]) -> None:
        self._offsets_min = offsets_min
        self._delay_ms_max = delay_ms_max
        self._clock = clock
        self._last_ms: int | None = None

    def delays(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> bool:
        """Return whether the step from `start` to `end` is to wait for more."""
        now_ms = self._clock()
        offsets = sum(max(0, offset - start.get(partition, 0)) for partition, offset in end.items())
        if offsets < self._offsets_min and self._last_ms is not None and now_ms - self._last_ms < self._delay_ms_max:
            return True
        self._last_ms = now_ms
        return False


def shared_out(begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], offsets_max: int) -> Positions:
    """Return `ends`, limited to about `offsets_max` offsets in proportion to partition sizes, at least one each.

    >>> shared_out({("clicks", 0): 0, ("clicks", 1): 0}, {("clicks", 0): 300, ("clicks", 1): 100}, 100)
    {('clicks', 0): 75, ('clicks', 1): 25}
    """
    sizes = {partition: max(0, end - begins[partition]) for partition, end in ends.items()}
    total = sum(sizes.values())
    if total <= offsets_max:
        return dict(ends)
    found, before = {}, 0
    for partition, size in sizes.items():
        # Take shares of the running sum, so that a partition's rounding error passes to the next one.
        share = (before + size) * offsets_max // total - before * offsets_max // total
        found[partition] = begins[partition] + min(size, max(1, share)) if size else ends[partition]
        before += size
    return found


def _lost(partition: TopicPartition, what: str, fail: bool) -> None:
    if fail:
        raise OffsetOutOfRangeError(
            f"{partition[0]}-{partition[1]}: {what}: it was deleted, or made anew; with failOnDataLoss=false the stream goes on"
        )
