"""Shares one snapshot among all scans of a query: a self-join must read the same records twice.

Spark plans each scan separately. The first scan of a query leaves the ends of its partitions here, and later ones end there. They
are in memory, of the latest queries: a planner that is started again in the middle of a query does not know its first scans.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace

from kafkalake.reader.read import PartitionSnapshot, Read

ENDS_MAX = 1_000_000
"""Ends of partitions that are kept, of all queries together; those of the latest query are kept anyway."""
QUERIES_MAX = 1_000

_Ends = dict[tuple[str, str], dict[int, int]]
"""Topic and its id -> partition -> end. Later topics of a name are other topics."""


class QuerySnapshots:
    """The ends that the first scan of each topic in a query has seen."""

    def __init__(self, queries_max: int = QUERIES_MAX, ends_max: int = ENDS_MAX) -> None:
        self._queries_max = queries_max
        self._ends_max = ends_max
        self._seen: OrderedDict[tuple[str, str, str], _Ends] = OrderedDict()
        self._changing = threading.Lock()

    def as_first_seen(self, read: Read, query: str) -> Read:
        """Return `read`, ending where the first scan of each topic in `query` ended. An empty `query` means no sharing."""
        options = read.options
        if not query or options.version is not None or options.as_of_ms is not None:
            return read
        key = (query, options.lake, options.isolation)
        with self._changing:
            seen = self._seen.setdefault(key, {})
            self._seen.move_to_end(key)
            first = {_topic(snapshot) for snapshot in read.partitions} - seen.keys()
            for snapshot in read.partitions:
                if _topic(snapshot) in first:
                    seen.setdefault(_topic(snapshot), {})[snapshot.partition] = snapshot.end_offset
            self._forget()
            return read.of(list(_ended(read, seen)))

    def _forget(self) -> None:
        """Remove the oldest queries while there are too many."""
        ends = sum(len(of_topic) for seen in self._seen.values() for of_topic in seen.values())
        while len(self._seen) > 1 and (len(self._seen) > self._queries_max or ends > self._ends_max):
            ends -= sum(map(len, self._seen.popitem(last=False)[1].values()))


def _ended(read: Read, seen: _Ends) -> Iterator[PartitionSnapshot]:
    """Yield the partitions up to their ends. One that the first scan did not see is left out, like a record that it did not see."""
    for snapshot in read.partitions:
        end = seen[_topic(snapshot)].get(snapshot.partition)
        if end is not None:
            yield replace(snapshot, end_offset=max(snapshot.start_offset, min(snapshot.end_offset, end)))


def _topic(snapshot: PartitionSnapshot) -> tuple[str, str]:
    return snapshot.topic, snapshot.topic_id
