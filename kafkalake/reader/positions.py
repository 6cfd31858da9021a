"""How far a stream goes in one step: pure arithmetic on offsets by partition.

    positions   {topic: {partition: next offset to read}}, in JSON as Spark's Kafka source writes them:
                {"clicks": {"0": 23, "1": 17}}; topics and partitions in order, because Spark compares the text
    topic ids   beside them, as a topic without partitions: {"clicks#qLgPoSNLQmGwWbvXL1kcpQ": {}}. No topic has a `#` in its name,
                and Spark's Kafka source, which knows no ids, reads such an entry as nothing, so checkpoints still go both ways
    edges       what there is to read of each partition now

A name is no identity: where the ids differ, the topic was deleted and created again, and its offsets count from 0 once more.
A step never passes what is readable (for `read_committed`: the last stable offset), and never goes back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafkalake.errors import OffsetOutOfRangeError

_log = logging.getLogger(__name__)

Partition = tuple[str, int]
"""Topic and partition."""
Positions = dict[Partition, int]
TopicIds = dict[str, str]
"""By topic, as Kafka writes them; a topic whose id is not known is not in it."""
_ID_MARK = "#"


class Edge(NamedTuple):
    """Of a partition: first offset that is there, end of what a reader may see, end of the log; the id of its topic."""

    log_start: int
    readable_end: int
    log_end: int
    topic_id: str = ""


def to_json(
    positions: Mapping[Partition, int], topic_ids: Mapping[str, str] | None = None
) -> dict[str, dict[str, int]]:
    """As Spark keeps them, in an order that only depends on what they are; with the ids of their topics, where they are known."""
    found: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(positions):
        found.setdefault(topic, {})[str(partition)] = positions[topic, partition]
    for topic in list(found):
        if topic_id := (topic_ids or {}).get(topic, ""):
            found[f"{topic}{_ID_MARK}{topic_id}"] = {}
    return dict(sorted(found.items()))


def from_json(offsets: Mapping[str, Mapping[str, Any]]) -> Positions:
    """Positions of what `to_json` gave, or Spark's Kafka source."""
    return {
        (topic, int(partition)): int(offset)
        for topic, numbers in offsets.items()
        for partition, offset in numbers.items()
    }


def ids_from_json(offsets: Iterable[str]) -> TopicIds:
    """The ids of topics that `to_json` was given; none of them in what 0.1, or Spark's Kafka source, has written."""
    return {topic: topic_id for topic, mark, topic_id in (name.partition(_ID_MARK) for name in offsets) if mark}


def is_another(topic: str, topic_id: str, known: Mapping[str, str]) -> bool:
    """Whether this is another topic than the one of the name that was `known`; where one of the ids is not, it is not."""
    return bool(topic_id) and known.get(topic, topic_id) != topic_id


def made_anew(topics: Iterable[str], fail: bool) -> None:
    """What is to be said of topics that were created again. Raises `OffsetOutOfRangeError`; unless `fail`, warns."""
    for topic in sorted(set(topics)):
        what = f"topic {topic} was deleted and created again since it was read"
        if fail:
            raise OffsetOutOfRangeError(f"{what}: with failOnDataLoss=false the new one is read from its beginning")
        _log.warning("%s: the new one is read from its beginning", what)


def next_end(
    start: Mapping[Partition, int],
    edges: Mapping[Partition, Edge],
    *,
    topic_ids: Mapping[str, str] | None = None,
    offsets_max: int | None = None,
    target: Mapping[Partition, int] | None = None,
    fail_on_data_loss: bool = True,
) -> Positions:
    """Where a step that begins at `start` ends: at the edges, or after about `offsets_max` offsets, or at `target`.

    A partition that `start` lacks is new, and read from its first offset. With a `target` (`Trigger.AvailableNow`) nothing behind
    it is read, and nothing of partitions that it lacks. `topic_ids`: of the topics that `start` is of. Raises
    `OffsetOutOfRangeError` where a partition is gone, ends before `start` or is another topic's, unless `fail_on_data_loss` is
    false: then the first is left out, and the others begin anew.
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
