"""The state of a journal partition of delayed delivery up to an offset: the records that wait, and what becomes of them.

The state always follows the journal, up to the high watermark, at a start and afterwards: there is no other way in. It reads the
columns offset, timestamp and headers, many messages at once, so that ten million waiting records are no objects. A record that
waits is a bit in `waiting` and an entry of `index`. An entry whose bit is gone is dropped when it comes due, so that notes change
bits only.

Records of a transaction count from its marker on, if that commits.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalake.broker.delayed.cancels import Cancels, SomeCancels, find_cancels
from kafkalake.broker.delayed.doubles import Doubles
from kafkalake.broker.delayed.due_index import DueIndex
from kafkalake.broker.delayed.due_runs import DUE, NO_ENTRIES, OFFSET, ORDER, Entries
from kafkalake.broker.delayed.hand_overs import HandOvers
from kafkalake.broker.delayed.offset_set import OffsetSet
from kafkalake.delayed_journal import (
    PRODUCER_FIELDS,
    SEQUENCE_FIELDS,
    Fields,
    Kind,
    Note,
    Reason,
    read_fields,
    read_note,
    read_tail,
)
from kafkalake.record import layout as at
from kafkalake.record.arrays import Int64s
from kafkalake.record.message_set import MessageSet, to_arrow

logger = logging.getLogger(__name__)

COLUMNS = at.OFFSET_COLUMN | at.TIMESTAMP_COLUMN | at.HEADERS_COLUMN
"""The columns that the state reads."""

CARRIED_REMEMBERED = 16
"""The number of the last batches of carried records among which one that was written twice is found."""

Mask = npt.NDArray[np.bool_]


@dataclass(slots=True)
class _Transaction:
    """The records of a producer in its open transaction."""

    first_offset: int
    entries: list[Entries] = field(default_factory=list)
    cancels: list[SomeCancels] = field(default_factory=list)


class _SomeRows(NamedTuple):
    """Rows behind each other, with those columns of which entries and cancels are made."""

    offsets: Int64s
    timestamps: Int64s
    headers: pa.ListArray
    fields: Fields

    def entries(self, rows: Mask) -> Entries:
        """Return the entries of those rows for which the mask is set."""
        found = np.empty((int(np.count_nonzero(rows)), 3), dtype=np.int64)
        found[:, DUE], found[:, OFFSET] = self.timestamps[rows], self.offsets[rows]
        found[:, ORDER] = self.fields["order"][rows]
        return found


class _Rows:
    """The rows of a message set with their columns."""

    def __init__(self, messages: MessageSet, position: int) -> None:
        """Read the rows at and above an offset."""
        table = to_arrow(messages, COLUMNS)
        headers = messages.headers
        batch_of_row = np.repeat(np.arange(len(headers)), headers[:, at.RECORDS])
        offsets = table.column("offset").to_numpy()
        first = int(np.searchsorted(offsets, position))
        self.offsets: Int64s = offsets[first:]
        self.timestamps: Int64s = table.column("timestamp").view(pa.int64()).to_numpy()[first:]
        self.headers: pa.ListArray = table.column("headers").slice(first)
        self.fields = read_fields(self.headers)
        self.batch_of_row: Int64s = batch_of_row[first:]
        transactional = (headers[:, at.ATTRIBUTES] & at.ATTRIBUTE_TRANSACTIONAL) != 0
        self.is_transactional: Mask = transactional[self.batch_of_row]
        kinds, flags = self.fields["kind"], self.fields["flags"]
        of_copies = np.zeros(len(headers), dtype=np.bool_)
        of_copies[self.batch_of_row[(kinds == Kind.FINISHED) & (flags == Reason.CARRIED)]] = True
        self.is_carried: Mask = of_copies[self.batch_of_row]

    def between(self, begin: int, end: int) -> _SomeRows:
        """Return the rows at offsets from `begin` to before `end`, at the cost of those only."""
        first, last = np.searchsorted(self.offsets, (begin, end)).tolist()
        some = slice(first, last)
        headers = self.headers.slice(first, last - first)
        return _SomeRows(self.offsets[some], self.timestamps[some], headers, self.fields[some])

    def entries(self, rows: Mask) -> Entries:
        """Return the entries of some rows."""
        return _SomeRows(self.offsets, self.timestamps, self.headers, self.fields).entries(rows)

    def firsts_of_batches(self) -> Fields:
        """Return the fields of the first row of each batch."""
        is_first = np.concatenate(([True], np.diff(self.batch_of_row) != 0)) if len(self.fields) else np.zeros(0, bool)
        found: Fields = self.fields[is_first & (self.fields["kind"] > 0) & (self.fields["kind"] <= Kind.CANCEL)]
        return found


def _from(headers: Int64s, position: int) -> Int64s:
    """Return the headers of the batches with an offset at or above `position`."""
    found: Int64s = headers[headers[:, at.BASE_OFFSET] + headers[:, at.LAST_OFFSET_DELTA] >= position]
    return found


class JournalState:
    """The state of one journal partition, as of `position`, the next offset to read."""

    def __init__(self, position: int, index: DueIndex) -> None:
        self.position = position
        self.waiting = OffsetSet(position)
        self.index = index
        self.hand_overs = HandOvers()
        self.doubles = Doubles()
        self.cancels = Cancels()
        self._transactions: dict[int, _Transaction] = {}
        self._claimed: Int64s = np.zeros(0, dtype=np.int64)
        self._begin = position
        self._carried: deque[Int64s] = deque(maxlen=CARRIED_REMEMBERED)
        self._superseded: list[Int64s] = []

    @property
    def first_undecided(self) -> int:
        """The first offset of an open transaction, `position` without one."""
        return min((each.first_offset for each in self._transactions.values()), default=self.position)

    def follow(self, messages: MessageSet) -> Entries:
        """Follow the next messages of the journal and return the entries that have begun to wait."""
        if not len(messages) or messages.next_offset <= self.position:
            return NO_ENTRIES
        rows = _Rows(messages, self.position)
        position, self.position = self.position, messages.next_offset
        found = [self._follow_records(rows)]
        found += self._follow_transactions(_from(messages.headers, position), rows)
        found += self._follow_notes(rows)
        added = np.concatenate([each for each in found if len(each)] or [NO_ENTRIES])
        self.index.add(added)
        return added

    def _follow_records(self, rows: _Rows) -> Entries:
        """Follow the waiting records and cancels outside of transactions."""
        kinds = rows.fields["kind"]
        entries = rows.entries((kinds == Kind.WAITING) & ~rows.is_transactional & ~rows.is_carried)
        self.waiting.add(entries[:, OFFSET])
        self.cancels.add(find_cancels(rows.headers, rows.fields, rows.offsets, ~rows.is_transactional))
        self.doubles.follow(rows.firsts_of_batches())
        return entries

    def _follow_transactions(self, headers: Int64s, rows: _Rows) -> list[Entries]:
        """Follow transactional batches and markers, and return the entries of those that were committed."""
        found: list[Entries] = []
        transactional = headers[(headers[:, at.ATTRIBUTES] & at.ATTRIBUTE_TRANSACTIONAL) != 0]
        for header in transactional.tolist():
            producer_id, base = header[at.PRODUCER_ID], header[at.BASE_OFFSET]
            if not header[at.ATTRIBUTES] & at.ATTRIBUTE_CONTROL:
                opened = self._transactions.setdefault(producer_id, _Transaction(base))
                of_batch = rows.between(base, base + header[at.LAST_OFFSET_DELTA] + 1)
                opened.entries.append(of_batch.entries(of_batch.fields["kind"] == Kind.WAITING))
                cancels = find_cancels(of_batch.headers, of_batch.fields, of_batch.offsets)
                opened.cancels += [cancels] if cancels.names else []
                continue
            ended = self._transactions.pop(producer_id, None)
            if ended is not None and header[at.CONTROL_TYPE] == 1:
                found += ended.entries
                for entries in ended.entries:
                    self.waiting.add(entries[:, OFFSET])
                for cancels in ended.cancels:
                    self.cancels.add(cancels)
        return found

    def _follow_notes(self, rows: _Rows) -> list[Entries]:
        """Follow the notes, which are in no transaction, and return the entries of carried records. One that cannot be read is
        passed over."""
        found: list[Entries] = []
        for row in np.flatnonzero(rows.fields["kind"] > Kind.CANCEL).tolist():
            try:
                found += self._follow_row(rows, row)
            except ValueError as error:
                logger.error("a note of delayed delivery cannot be read offset=%d error=%s", rows.offsets[row], error)
        return found

    def _follow_row(self, rows: _Rows, row: int) -> list[Entries]:
        fields = rows.fields[row]
        kind, tail = int(fields["kind"]), read_tail(rows.headers, row)
        found: list[Entries] = []
        if kind in (Kind.INTENT, Kind.FINISHED):
            note = read_note(fields, tail)
            if note.kind is Kind.FINISHED and note.reason is Reason.CARRIED:
                found.append(self._follow_carried(note, rows, row))
            self._follow_note(note)
        elif kind == Kind.SEQUENCES:
            self.hand_overs.restore(np.frombuffer(tail, dtype=SEQUENCE_FIELDS))
        elif kind == Kind.PRODUCERS:
            self.doubles.restore(np.frombuffer(tail, dtype=PRODUCER_FIELDS))
        elif kind == Kind.SETTLED:
            self.cancels.settle(int(fields["order"]))
        return found

    def _follow_carried(self, note: Note, rows: _Rows, row: int) -> Entries:
        """Return the entries of the copies in the note's batch, those whose originals have waited until now.

        Originals below the log's start have waited, unless another copy stands before. That is soon after the first, if at all.
        """
        copies = rows.entries((rows.batch_of_row == rows.batch_of_row[row]) & (rows.fields["kind"] == Kind.WAITING))
        is_gone = note.offsets < self._begin
        counts = self.waiting.contains(note.offsets) | is_gone
        for earlier in self._carried:
            counts[is_gone] &= ~np.isin(note.offsets[is_gone], earlier)
        self._carried.append(note.offsets)
        if not counts.all():
            self._superseded.append(copies[~counts, OFFSET])
        entries: Entries = copies[counts]
        self.waiting.add(entries[:, OFFSET])
        return entries

    @property
    def cancels_held(self) -> int:
        """The number of cancels in memory, with those of open transactions."""
        return len(self.cancels) + sum(len(some.names) for each in self._transactions.values() for some in each.cancels)

    def take_superseded(self) -> list[Int64s]:
        """Return the offsets of copies that do not count, once: a note is to say so."""
        found, self._superseded = self._superseded, []
        return found

    def _follow_note(self, note: Note) -> None:
        self.hand_overs.follow(note)
        if note.kind is Kind.FINISHED:
            self.waiting.discard(note.offsets)

    def skip(self, position: int) -> None:
        """Read on from a later offset: what was before it is lost."""
        self.position = max(self.position, position)

    def claim(self, parts: Iterable[Int64s]) -> None:
        """Note records of open intents, and originals of copies that are not followed yet: the index has entries of them, too."""
        self._claimed = np.concatenate([self._claimed, *parts])

    def is_free(self, offsets: Int64s) -> Mask:
        """Return bool[offsets]: the records that still wait, and are not claimed."""
        free: Mask = self.waiting.contains(offsets) & ~np.isin(offsets, self._claimed)
        return free

    def trim(self, start: int) -> None:
        """Forget what was below the journal's new start."""
        self.waiting.raise_start(start)
