"""Rebuilds index entries, producers, leader epochs and aborted transactions from a run of messages.

The visitor of recovery's `scan_segment`. It visits each message once, in append order.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kafkalake.record import layout as at
from kafkalake.record.arrays import Int64s
from kafkalake.record.message_set import MessageSet
from kafkalake.storage.index import indexed_messages
from kafkalake.storage.leader_epochs import LeaderEpochs
from kafkalake.storage.producer_state import (
    AbortedTransaction,
    Attempt,
    EndMarker,
    Producers,
    aborted_among,
)
from kafkalake.storage.segment import FIRST_MESSAGE

_FEW_HEADERS = 16
"""Up to so many headers are looked at one by one: numpy takes longer, and a follower gets a few at a time."""


def attempt_of(header: list[int]) -> Attempt:
    """Return the producer state's view of a data batch's header."""
    return Attempt(
        header[at.PRODUCER_ID],
        header[at.PRODUCER_EPOCH],
        header[at.BASE_SEQUENCE],
        header[at.LAST_OFFSET_DELTA] + 1,
        bool(header[at.ATTRIBUTES] & at.ATTRIBUTE_TRANSACTIONAL),
        bool(header[at.FLAGS] & at.SPLIT),
    )


def marker_of(header: list[int]) -> EndMarker:
    """Return the producer state's view of a control batch's header."""
    return EndMarker(
        header[at.PRODUCER_ID], header[at.PRODUCER_EPOCH], header[at.CONTROL_TYPE], header[at.COORDINATOR_EPOCH]
    )


def replay_headers(headers: Int64s, producers: Producers, from_offset: int, now_ms: int) -> list[AbortedTransaction]:
    """Apply the batches at and above `from_offset` to `producers` and return the transactions that they aborted."""
    aborted: list[AbortedTransaction] = []
    if len(headers) > _FEW_HEADERS:
        headers = headers[(headers[:, at.PRODUCER_ID] >= 0) & (headers[:, at.BASE_OFFSET] >= from_offset)]
    for header in headers.tolist():
        if header[at.PRODUCER_ID] < 0 or header[at.BASE_OFFSET] < from_offset:
            continue
        if header[at.ATTRIBUTES] & at.ATTRIBUTE_CONTROL:
            transaction = producers.end(marker_of(header), header[at.BASE_OFFSET], now_ms)
            if transaction is not None:
                aborted.append(transaction)
        else:
            producers.replay(attempt_of(header), header[at.BASE_OFFSET], header[at.MAX_TIMESTAMP], now_ms)
    return aborted


def replay_epochs(headers: Int64s, epochs: LeaderEpochs) -> None:
    """Add the leader epochs of batches to `epochs`."""
    if int(headers[-1, at.LEADER_EPOCH]) > epochs.latest:
        for epoch, offset in headers[:, [at.LEADER_EPOCH, at.BASE_OFFSET]].tolist():
            epochs.assign(epoch, offset)


def aborted_by_headers(headers: Int64s, producers: Producers) -> list[AbortedTransaction]:
    """Return the transactions that the batches would abort after `producers`, which stay as they are."""
    aborted: list[AbortedTransaction] = []
    transactions = producers.open_transactions()
    attributes = headers[:, at.ATTRIBUTES]
    relevant = (headers[:, at.PRODUCER_ID] >= 0) & ((attributes & at.ATTRIBUTE_TRANSACTIONAL) != 0)
    for header in headers[relevant].tolist():
        producer_id, offset = header[at.PRODUCER_ID], header[at.BASE_OFFSET]
        if not header[at.ATTRIBUTES] & at.ATTRIBUTE_CONTROL:
            transactions.setdefault(producer_id, offset)
            continue
        transaction = aborted_among(transactions, marker_of(header), offset)
        transactions.pop(producer_id, None)
        if transaction is not None:
            aborted.append(transaction)
    return aborted


@dataclass(slots=True)
class Replay:
    """A visitor that collects the content of a segment's index files, producers and leader epochs."""

    base_offset: int
    index_interval_bytes: int
    producers: Producers
    producers_offset: int
    epochs: LeaderEpochs
    now_ms: int
    offset_entries: list[tuple[int, int]] = field(default_factory=list)
    time_entries: list[tuple[int, int]] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    indexed_at: int = FIRST_MESSAGE
    max_timestamp: int = -1
    has_losses: bool = False
    """Whether some of the messages mark lost records."""

    def __call__(self, messages: MessageSet, origin: int) -> None:
        """Visit whole messages. Message m is at position origin + messages.positions[m] of the file."""
        headers = messages.headers
        self._index(messages, origin)
        self.has_losses |= bool((headers[:, at.CONTROL_TYPE] == at.LOST_RECORDS).any())
        self.aborted += replay_headers(headers, self.producers, self.producers_offset, self.now_ms)
        replay_epochs(headers, self.epochs)

    def force_entry(self) -> None:
        """Index the next message at any position: it follows damage that readers must get past."""
        self.indexed_at = -self.index_interval_bytes

    def _index(self, messages: MessageSet, origin: int) -> None:
        headers = messages.headers
        positions = messages.positions[:-1] + origin
        tops = np.where(headers[:, at.RECORDS] > 0, headers[:, at.MAX_TIMESTAMP], -1)
        tops = np.maximum.reduceat(tops, messages.first_batch[:-1])
        before = np.maximum.accumulate(np.concatenate(([self.max_timestamp], tops)))
        for message in indexed_messages(positions, self.indexed_at, self.index_interval_bytes):
            offset = int(headers[messages.first_batch[message], at.BASE_OFFSET])
            self.indexed_at = int(positions[message])
            self.offset_entries.append((offset, self.indexed_at))
            self.time_entries.append((int(before[message]), offset - self.base_offset))
        self.max_timestamp = int(before[-1])
