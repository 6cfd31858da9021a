"""The produced batches that the journal has already: the newest batches of each producer of each source partition.

A producer has at most five batches under way, so it repeats none below the five newest. They may arrive in another order than
they were sent in: a hand-in that fails is repeated after later ones. At most `PRODUCERS_MAX` producers are remembered, those with
the newest batches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

import numpy as np

from kafkalake.delayed_journal import BATCHES_REMEMBERED, NO_SEQUENCE, PRODUCER_FIELDS, Fields, HandInKey, source_of
from kafkalake.record.arrays import Int64s
from kafkalake.record.sequences import is_before
from kafkalake.topic_partition import PartitionId

PRODUCERS_MAX = 20_000
"""The maximum number of producers that a journal partition remembers."""


class _Producer(NamedTuple):
    source: PartitionId[UUID]
    producer_id: int


class _Batches(NamedTuple):
    """The newest batches of a producer: first sequences, oldest first."""

    epoch: int
    first_sequences: tuple[int, ...]


class Doubles:
    """The newest batches of producers."""

    def __init__(self) -> None:
        self._producers: OrderedDict[_Producer, _Batches] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers)

    def has(self, key: HandInKey) -> bool:
        """Return whether the journal has the batch, or had it."""
        known = self._producers.get(_Producer(key.source, key.producer_id))
        if known is None or key.producer_epoch > known.epoch:
            return False
        if key.producer_epoch < known.epoch or key.first_sequence in known.first_sequences:
            return True
        is_full = len(known.first_sequences) == BATCHES_REMEMBERED
        return is_full and all(is_before(key.first_sequence, each) for each in known.first_sequences)

    def add(self, key: HandInKey) -> None:
        """Remember a batch, unless it is older than those remembered."""
        if not key.is_idempotent or self.has(key):
            return
        producer = _Producer(key.source, key.producer_id)
        known = self._producers.get(producer)
        earlier = known.first_sequences if known is not None and known.epoch == key.producer_epoch else ()
        self._remember(producer, _Batches(key.producer_epoch, _in_order(earlier, key.first_sequence)))

    def _remember(self, producer: _Producer, batches: _Batches) -> None:
        self._producers[producer] = batches
        self._producers.move_to_end(producer)
        if len(self._producers) > PRODUCERS_MAX:
            self._producers.popitem(last=False)

    def follow(self, fields: Fields) -> None:
        """Remember the batches of which these are the fields of one row each, in the journal's order."""
        idempotent = fields[(fields["producer_id"] >= 0) & (fields["first_sequence"] != NO_SEQUENCE)]
        if len(idempotent):
            for row in idempotent[_newest(idempotent)]:
                self.add(
                    HandInKey(
                        source_of(row), int(row["producer_id"]), int(row["producer_epoch"]), int(row["first_sequence"])
                    )
                )

    def restore(self, producers: Fields) -> None:
        """Remember what a PRODUCERS note has."""
        for row in producers:
            source = UUID(bytes=row["id"].tobytes()), int(row["partition"])
            for first in row["first"].tolist():
                self.add(HandInKey(source, int(row["producer_id"]), int(row["epoch"]), first))

    def snapshots(self, producers_max: int) -> Iterator[Fields]:
        """Yield all that is remembered as `PRODUCER_FIELDS`, at most `producers_max` at once, oldest first."""
        every = list(self._producers.items())
        for begin in range(0, len(every), producers_max):
            part = every[begin : begin + producers_max]
            found = np.zeros(len(part), dtype=PRODUCER_FIELDS)
            for row, (producer, batches) in zip(found, part, strict=True):
                row["id"], row["partition"] = np.void(producer.source[0].bytes), producer.source[1]
                row["producer_id"], row["epoch"] = producer.producer_id, batches.epoch
                missing = BATCHES_REMEMBERED - len(batches.first_sequences)
                row["first"] = [NO_SEQUENCE] * missing + list(batches.first_sequences)
            yield found


def _in_order(earlier: tuple[int, ...], sequence: int) -> tuple[int, ...]:
    """Return the sequences with one more in its place, the newest of them."""
    place = sum(is_before(each, sequence) for each in earlier)
    return (*earlier[:place], sequence, *earlier[place:])[-BATCHES_REMEMBERED:]


def _newest(fields: Fields) -> Int64s:
    """Return the places of the last rows of each producer of a source, ascending: twice as many as remembered, in any order."""
    producers = np.zeros(len(fields), dtype=[("id", "V16"), ("partition", "<i4"), ("producer", "<i8")])
    producers["id"], producers["partition"] = fields["source_id"], fields["source_partition"]
    producers["producer"] = fields["producer_id"]
    words = np.ascontiguousarray(producers).view(np.uint32).reshape(len(fields), -1)
    _, of_row = np.unique(words, axis=0, return_inverse=True)
    order = np.argsort(of_row, kind="stable")
    sorted_rows = of_row[order]
    ends = np.searchsorted(sorted_rows, sorted_rows, side="right")
    found: Int64s = np.sort(order[ends - np.arange(len(order)) <= 2 * BATCHES_REMEMBERED])
    return found
