"""Sequence numbers of an idempotent producer that begin again at 0: after 2^31 records to a partition, some minutes of Arrow."""

from __future__ import annotations

import pytest

from kafkalake.client.producing.batch import Batch
from kafkalake.client.producing.idempotence import Identity, Sequences
from kafkalake.record.sequences import SEQUENCE_MAX

BEFORE_END = 10
"""Numbers left when the tests begin."""


def numbered(sequences: Sequences, records: int) -> Batch:
    batch = Batch("t", 0, 0, 0, lambda: None, is_transactional=True)
    batch.take_encoded(bytearray(), records)
    sequences.number(batch)
    return batch


@pytest.fixture
def sequences() -> Sequences:
    """Of a transactional producer that has `BEFORE_END` numbers left."""
    sequences = Sequences(is_transactional=True)
    sequences.begin(Identity(7, 0))
    sequences.acknowledged(numbered(sequences, SEQUENCE_MAX + 1 - BEFORE_END), 0)
    return sequences


def test_the_numbers_behind_a_lost_batch_move_up_across_the_end(sequences: Sequences) -> None:
    lost, across, after = (numbered(sequences, records) for records in (6, 6, 3))
    assert [each.base_sequence for each in (lost, across, after)] == [SEQUENCE_MAX - 9, SEQUENCE_MAX - 3, 2]
    sequences.failed(lost, can_renumber=True)
    assert [each.base_sequence for each in (across, after)] == [SEQUENCE_MAX - 9, SEQUENCE_MAX - 3]
    assert numbered(sequences, 1).base_sequence == SEQUENCE_MAX


def test_what_is_acknowledged_behind_the_end_closes_the_gap_of_a_batch_that_was_given_up(sequences: Sequences) -> None:
    sequences.acknowledged(numbered(sequences, 2 * BEFORE_END), 0)
    given_up, later = numbered(sequences, 1), numbered(sequences, 1)
    sequences.expired(given_up)
    sequences.acknowledged(later, 0)
    assert not sequences.resolve(), "the broker has the later one, so it has the one before"
    assert numbered(sequences, 1).base_sequence == BEFORE_END + 2
