"""Shares one snapshot among all scans of a query: a self-join must read the same records twice.

Spark plans each scan separately. The first scan of a query leaves the ends of its partitions here, and later ones end there. They
are in memory, of the latest queries: a planner that is started again in the middle of a query does not know its first scans.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kafkalake.reader.read import PartitionSnapshot, Read

ENDS_MAX = 1_000_000
"""Ends of partitions that are kept, of all queries together; those of the latest query are kept anyway."""
QUERIES_MAX = 1_000

_Topic = tuple[str, str]
"""Topic and its id. Later topics of a name are other topics."""


@dataclass(slots=True)
class _Seen:
    """Ends of partitions, as the first scan of each in a query saw them. whole: topics of which a scan saw every partition."""

    ends: dict[_Topic, dict[int, int]] = field(default_factory=dict)
    whole: set[_Topic] = field(default_factory=set)


class QuerySnapshots:
    """The ends that the first scan of each partition in a query has seen."""

    def __init__(self, queries_max: int = QUERIES_MAX, ends_max: int = ENDS_MAX) -> None:
        self._queries_max = queries_max
        self._ends_max = ends_max
        self._seen: OrderedDict[tuple[str, str, str], _Seen] = OrderedDict()
        self._changing = threading.Lock()

    def as_first_seen(self, read: Read, query: str) -> Read:
        """Return `read`, ending where the first scan of each partition in `query` ended. An empty `query` means no sharing."""
        options = read.options
        if not query or options.version is not None or options.as_of_ms is not None:
            return read
        key = (query, options.lake, options.isolation)
        with self._changing:
            seen = self._seen.setdefault(key, _Seen())
            self._seen.move_to_end(key)
            first = {_topic(snapshot) for snapshot in read.partitions} - seen.whole
            for snapshot in read.partitions:
                if _topic(snapshot) in first:
                    seen.ends.setdefault(_topic(snapshot), {}).setdefault(snapshot.partition, snapshot.end_offset)
            if options.assigned is None:
                seen.whole |= first
            self._forget()
            return read.of(list(_ended(read, seen)))

    def _forget(self) -> None:
        """Remove the oldest queries while there are too many."""
        ends = sum(len(of_topic) for seen in self._seen.values() for of_topic in seen.ends.values())
        while len(self._seen) > 1 and (len(self._seen) > self._queries_max or ends > self._ends_max):
            ends -= sum(map(len, self._seen.popitem(last=False)[1].ends.values()))


def _ended(read: Read, seen: _Seen) -> Iterator[PartitionSnapshot]:
    """Yield the partitions up to their ends. One that was not there yet is left out, like a record that was not."""
    for snapshot in read.partitions:
        end = seen.ends[_topic(snapshot)].get(snapshot.partition)
        if end is not None:
            yield replace(snapshot, end_offset=max(snapshot.start_offset, min(snapshot.end_offset, end)))


def _topic(snapshot: PartitionSnapshot) -> _Topic:
    return snapshot.topic, snapshot.topic_id
