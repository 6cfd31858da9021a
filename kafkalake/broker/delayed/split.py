"""Splits a produced batch: the records that are readable at once, and those that wait.

The first part keeps the header of the whole batch, with all its offsets and sequences, as compaction does: so the log goes on
where the producer does, and knows a batch that is sent again. The place of a record that waits stays empty. Its offset is its
order among those that are due at the same time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalake.broker.delayed.delay_headers import (
    BAD_ID,
    CANCELS,
    ID_BYTES_MAX,
    NO_ID,
    NOT_A_NUMBER,
    NOT_HERE,
    NOW,
    SEVERAL,
    find_delays,
)
from kafkalake.config.topic_rules import DelayRules
from kafkalake.delayed_headers import DELAY_ID, DELAY_MS, DELIVER_AT
from kafkalake.errors import InvalidRecordError, InvalidTimestampError, KafkaError
from kafkalake.record import layout as at
from kafkalake.record.arrays import Int64s
from kafkalake.record.arrow_body import body_from_arrow
from kafkalake.record.batch import ProducerBatch

NO_DUE_TIME = -1
"""The due time of a record that cancels others."""
LONGEST_MS = 100 * 365 * 86_400_000
"""The longest delay, whatever the settings are: due times are timestamps, which query engines have in microseconds."""
_NAMED_MAX = 10_000
"""Most records that an error names."""
_EXPLAINED_MAX = 100
"""Most records with a message of their own in an error. The others have only the error code."""
_FAULTS = {
    NOT_A_NUMBER: f"the value of {DELIVER_AT} or {DELAY_MS} is no number of milliseconds in decimal digits",
    SEVERAL: f"a record has one header of {DELIVER_AT} and {DELAY_MS}, not several",
    BAD_ID: f"a record has one {DELAY_ID}, of 1 to {ID_BYTES_MAX} bytes",
    NOT_HERE: f"all records of this topic have the same delay, none has {DELIVER_AT} or {DELAY_MS}",
}


class Split(NamedTuple):
    """The parts of a batch.

    immediate: may be without records. rows: those that wait or cancel, with the schema of a segment; column `offset` is the place
    in the batch. due: int64[rows], ms since 1970, or `NO_DUE_TIME`. delay_ids: binary, null where a record has none.
    """

    immediate: ProducerBatch
    rows: pa.RecordBatch
    due: Int64s
    delay_ids: pa.Array | None


def split_batch(batch: ProducerBatch, rules: DelayRules, now_ms: int) -> Split | None:
    """Return the parts of a batch that is received now (ms since 1970), None if no record of it waits.

    Raise `InvalidRecordError` if headers cannot be understood, `InvalidTimestampError` if a delay is longer than `delay.max.ms`.
    """
    due = np.empty(batch.rows, dtype=np.int64)
    ids = np.empty(batch.rows, dtype=np.int64)
    if not find_delays(batch.body, batch.layout, now_ms, rules.level_ms, due, ids):
        return None
    _check(due, now_ms, rules.max_ms)
    waits = due != NOW
    table = batch.to_arrow()
    rows = table if waits.all() else table.filter(pa.array(waits))
    due = np.where(due == CANCELS, NO_DUE_TIME, due)[waits]
    return Split(_immediate(batch, table, ~waits), rows, due, _delay_ids(table, ids[waits]))


def _check(due: Int64s, now_ms: int, max_ms: int) -> None:
    faulty = np.flatnonzero(due < CANCELS)
    if len(faulty):
        sentences = [_FAULTS[code] for code in due[faulty[:_EXPLAINED_MAX]].tolist()]
        raise _refusal(InvalidRecordError, faulty, sentences)
    limit_ms, limit = min((max_ms, f"delay.max.ms={max_ms}"), (LONGEST_MS, "a hundred years"))
    late = np.flatnonzero(due - now_ms > limit_ms)
    if len(late):
        sentences = [
            f"it is due in {each - now_ms} ms, which is more than {limit}"
            for each in due[late[:_EXPLAINED_MAX]].tolist()
        ]
        raise _refusal(InvalidTimestampError, late, sentences)


def _refusal(kind: type[KafkaError], faulty: Int64s, sentences: list[str]) -> KafkaError:
    numbers = faulty[:_NAMED_MAX].tolist()
    explained: list[str | None] = [*sentences, *[None] * (len(numbers) - len(sentences))]
    return kind(f"record {numbers[0]} of the batch: {sentences[0]}", tuple(zip(numbers, explained, strict=True)))


def _delay_ids(table: pa.RecordBatch, headers: Int64s) -> pa.Array | None:
    has_none = headers == NO_ID
    if has_none.all():
        return None
    values = table.column("headers").values.field("value")
    return values.take(pa.array(headers, mask=has_none))


def _immediate(batch: ProducerBatch, table: pa.RecordBatch, mask: npt.NDArray[np.bool_]) -> ProducerBatch:
    header = batch.header.copy()
    count = int(mask.sum())
    header[at.RECORDS] = count
    header[at.FLAGS] |= at.SPLIT
    if not count:
        header[at.ATTRIBUTES] &= ~at.ATTRIBUTE_COMPRESSION_MASK
        return ProducerBatch(np.zeros(0, dtype=np.uint8), np.zeros(at.LAYOUT_SIZE, dtype=np.int64), header)
    rows = table.filter(pa.array(mask))
    header[at.MAX_TIMESTAMP] = int(rows.column("timestamp").view(pa.int64()).to_numpy().max())
    return ProducerBatch(*body_from_arrow(rows), header)
