"""The intents of one journal partition: which records are being handed over to which target, and under which sequences.

Exactly once needs no transaction over two logs. An intent names records and the sequences under which they are appended to the
target. It is journalled before they are sent, and repeated, after a kill too, until a FINISHED note is journalled behind it. A
target drops what it has by the sequences. At most one intent of a target is open, so a repeated one is always among the batches
that the target remembers.

    journal    INTENT t, sequences 0-2, records 5, 9, 7         open
               FINISHED t, sequence 0, records 5, 9, 7          no longer
               INTENT t, sequences 3-3, record 8                open
               INTENT t, sequences 3-3, record 11               instead of the one before, which the target has refused
               INTENT t, sequence 3, no records                 none is open: the target has refused this one, too

Pure: it follows the journal's notes, and says which note comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

import numpy as np

from kafkalake.delayed_journal import SEQUENCE_FIELDS, Fields, Kind, Note, Reason
from kafkalake.record.arrays import Int64s
from kafkalake.record.sequences import advance_sequence
from kafkalake.storage.producer_state import HAND_OVER_PRODUCER_ID_MIN
from kafkalake.topic_partition import PartitionId

Target = PartitionId[UUID]


class NextSequence(NamedTuple):
    """The sequence of the next record for a target."""

    epoch: int
    sequence: int


BEGINNING = NextSequence(0, 0)


def hand_over_producer_id(journal: PartitionId[UUID]) -> int:
    """Return the producer id of what a journal partition hands over. It needs no allocation: all others are below these."""
    topic_id, index = journal
    return HAND_OVER_PRODUCER_ID_MIN | ((topic_id.int ^ (topic_id.int >> 64)) + 0x9E3779B97F4A7C15 * index) & (
        HAND_OVER_PRODUCER_ID_MIN - 1
    )


@lru_cache(maxsize=8)
def hand_over_producer_ids(topic_id: UUID, partitions: int) -> frozenset[int]:
    """Return the producer ids of what a journal of so many partitions hands over."""
    return frozenset(hand_over_producer_id((topic_id, index)) for index in range(partitions))


class HandOvers:
    """The open intents by target, and the next sequence of each target."""

    def __init__(self) -> None:
        self.open: dict[Target, Note] = {}
        self._next: dict[Target, NextSequence] = {}
        self._deleted: set[Target] = set()

    def next_sequence(self, target: Target) -> NextSequence:
        """Return the sequence of the next record for a target."""
        return self._next.get(target, BEGINNING)

    def intent(self, target: Target, offsets: Int64s, error_code: int = 0) -> Note:
        """Return the intent to hand over records. error_code: why to the dead-letter topic, 0 if not.

        An open one of the target must be finished before, or be replaced: the target has none of its records.
        """
        epoch, sequence = self.next_sequence(target)
        reason = Reason.DEAD_LETTERED if error_code else Reason.HANDED_OVER
        return Note(Kind.INTENT, target, epoch, sequence, offsets, reason, error_code)

    def follow(self, note: Note) -> None:
        """Follow an INTENT or FINISHED note of the journal."""
        if note.kind is Kind.INTENT:
            self.open.pop(note.target, None)
            end = advance_sequence(note.first_sequence, len(note.offsets))
            self._next[note.target] = NextSequence(note.epoch, end)
            if len(note.offsets):
                self.open[note.target] = note
        elif note.reason in (Reason.HANDED_OVER, Reason.DEAD_LETTERED):
            opened = self.open.get(note.target)
            if opened is not None and is_same_hand_over(opened, note):
                del self.open[note.target]

    def forget_deleted(self, exists: Callable[[Target], bool]) -> None:
        """Forget the sequences of targets without an open intent that have been deleted, since the call before this one at least.

        None comes again: topic ids are unique. Records for them may still wait. They are refused by any sequence.
        """
        deleted = {each for each in self._next if each not in self.open and not exists(each)}
        for target in deleted & self._deleted:
            del self._next[target]
        self._deleted = deleted

    def restore(self, sequences: Fields) -> None:
        """Follow a SEQUENCES note."""
        for row in sequences:
            target = UUID(bytes=row["id"].tobytes()), int(row["partition"])
            self._next[target] = NextSequence(int(row["epoch"]), int(row["next"]))

    def snapshots(self, targets_max: int) -> Iterator[Fields]:
        """Yield the next sequences as `SEQUENCE_FIELDS`, at most `targets_max` at once, as the journal has them."""
        every = list(self._next.items())
        for begin in range(0, len(every), targets_max):
            part = every[begin : begin + targets_max]
            found = np.zeros(len(part), dtype=SEQUENCE_FIELDS)
            for row, (target, following) in zip(found, part, strict=True):
                row["id"], row["partition"] = np.void(target[0].bytes), target[1]
                row["epoch"], row["next"] = following
            yield found


def is_same_hand_over(one: Note, other: Note) -> bool:
    """Return whether two notes are of the same sequences at the same target."""
    return one[1:4] == other[1:4]
