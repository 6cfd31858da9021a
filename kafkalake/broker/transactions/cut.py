"""Up to where each partition is published, so that every transaction is shown in all its partitions or in none: pure.

The last stable offsets alone do not suffice. A transaction that is open in one partition only hides there what has ended behind it:

    a    t1 (open)   t2       last stable offset before t1
    b                t2  t3   last stable offset after t3

So t2 has to be hidden in b too, from its first record on, and with it t3, in all partitions of t3. `cut` lowers the positions until
nothing is shown in part. A transaction that had not ended in all its partitions is above all positions published before, so they
never go back. More is hidden than need be, and never less, where a range is wider than the transaction or two are taken for one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kafkalake.broker.transactions.linked_partitions import LinkedPartitions
from kafkalake.offset_range import OffsetRange
from kafkalake.topic_partition import TopicPartition

JournalPosition: TypeAlias = tuple[int, int]
"""A partition of the transactions' journal, and an offset in it."""

UNKNOWN = -1
UNFINISHED = (1 << 63) - 1


class EndedTransaction(NamedTuple):
    """A committed transaction, or several, that may not be published yet: its Prepare record, and its records by partition.

    first_offset `UNKNOWN`: not below the published position. last_offset `UNKNOWN`: below the log end as of now. `UNFINISHED`: its
    marker may not be written.
    """

    position: JournalPosition
    ranges: Mapping[TopicPartition, OffsetRange]


class Shown(NamedTuple):
    """A partition: its last stable offset as published and at most to be published, and its log end (None: not known now)."""

    published: int
    stable: int
    log_end: int | None


Seen: TypeAlias = Mapping[JournalPosition, Mapping[TopicPartition, OffsetRange]]
"""The ranges of transactions as they were when their end was first known. A coordinator that takes over does not know them."""


class Cut(NamedTuple):
    """The positions to publish, and what they do not show.

    positions: the last stable offsets of the partitions of hidden transactions, at most. hidden: the transactions that are not
    shown, None if they are not known. seen: for the next cut.
    """

    positions: Mapping[TopicPartition, int]
    hidden: frozenset[JournalPosition] | None
    seen: Seen


def decide_cut(transactions: Iterable[EndedTransaction], partitions: Mapping[TopicPartition, Shown], seen: Seen) -> Cut:
    """Return the cut below the last stable offsets. Partitions that are not in `partitions` are gone. seen: of the last cut.

    A transaction without a known last offset had ended before the log end at which it was first seen, whatever comes later. Records
    beyond the log end are those of an earlier topic of the name, or lost.
    """
    positions, ranges, ended = [], [], {}
    for position, of_partitions in transactions:
        before, known, bounded = seen.get(position, {}), {}, {}
        for partition, found in of_partitions.items():
            shown = partitions.get(partition)
            if shown is None:
                continue
            if found.last_offset in (UNKNOWN, UNFINISHED):
                found = before.get(partition, found)
            if found.last_offset == UNKNOWN:
                found = found._replace(last_offset=UNFINISHED if shown.log_end is None else shown.log_end - 1)
            if found.last_offset < UNFINISHED:
                known[partition] = found
                if shown.log_end is not None and shown.log_end <= found.last_offset:
                    continue
            bounded[partition] = found._replace(first_offset=max(found.first_offset, shown.published))
        positions.append(position)
        ranges.append(bounded)
        ended[position] = known
    lowered, hidden = cut({partition: shown.stable for partition, shown in partitions.items()}, ranges)
    touched = {partition: lowered[partition] for number in hidden for partition in ranges[number]}
    return Cut(touched, frozenset(positions[number] for number in hidden), ended)


def cut(
    stable: Mapping[TopicPartition, int], transactions: Sequence[Mapping[TopicPartition, OffsetRange]]
) -> tuple[dict[TopicPartition, int], set[int]]:
    """Return the largest positions, at most `stable`, that show each transaction whole or not, and the numbers of those hidden.

    A position is the first offset that is not shown.
    """
    positions = dict(stable)
    by_end: defaultdict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    for number, ranges in enumerate(transactions):
        for partition, of_partition in ranges.items():
            by_end[partition].append((of_partition.last_offset, number))
    for ends in by_end.values():
        ends.sort()
    hidden: set[int] = set()
    lowered = list(by_end)
    while lowered:
        partition = lowered.pop()
        ends = by_end[partition]
        while ends and ends[-1][0] >= positions[partition]:
            _, number = ends.pop()
            if number in hidden:
                continue
            hidden.add(number)
            for other, of_other in transactions[number].items():
                if of_other.first_offset < positions[other]:
                    positions[other] = of_other.first_offset
                    lowered.append(other)
    return positions, hidden


def group_by_links(transactions: Iterable[EndedTransaction]) -> list[list[EndedTransaction]]:
    """Return transactions by sets: those of a set share partitions, directly or through others."""
    found = list(transactions)
    number_of = {
        partition: number
        for number, linked in enumerate(LinkedPartitions(each.ranges for each in found).sets())
        for partition in linked
    }
    sets: defaultdict[int, list[EndedTransaction]] = defaultdict(list)
    for each in found:
        sets[number_of[next(iter(each.ranges))]].append(each)
    return list(sets.values())


def merge(transactions: Iterable[EndedTransaction]) -> dict[TopicPartition, OffsetRange]:
    """Return the ranges of ended transactions as those of one."""
    ranges: dict[TopicPartition, OffsetRange] = {}
    for transaction in transactions:
        for partition, (first, last) in transaction.ranges.items():
            known = ranges.get(partition)
            if known is not None:
                first = min(first, known.first_offset)
                last = UNKNOWN if UNKNOWN in (last, known.last_offset) else max(last, known.last_offset)
            ranges[partition] = OffsetRange(first, last)
    return ranges
