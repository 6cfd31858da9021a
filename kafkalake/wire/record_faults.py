"""Invalid records of a produced batch: which ones, and the error of each (KIP-467).

Clients report the records listed in a response as invalid, and the others of the batch as part of a refused batch. Computed only
once the batch is known to hold an invalid record.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kafkalake.errors import InvalidRecordError, InvalidTimestampError, KafkaError
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.timestamps import NO_TIMESTAMP

NAMED_MAX = 10_000
"""Most records listed in a response: bounds its size whatever the batch holds."""
_EXPLAINED_MAX = 100
"""Most records with a message of their own. The others have only the error code."""


def refuse_records(batch: ProducerBatch, earliest: int, latest: int, *, key_required: bool) -> KafkaError:
    """Return the error for a batch that holds records without a key, or timestamps outside `[earliest, latest]`.

    Timestamps are ms since 1970. As in Apache Kafka, one invalid timestamp makes the batch's error INVALID_TIMESTAMP.
    """
    timestamps = batch.timestamps
    keyless = _keyless(batch) if key_required else np.zeros(len(timestamps), dtype=np.bool_)
    outside = ((timestamps < earliest) & (timestamps != NO_TIMESTAMP) | (timestamps > latest)) & ~keyless
    faulty = np.flatnonzero(keyless | outside)
    named = faulty[:NAMED_MAX].tolist()
    sentences = [
        _KEYLESS if keyless[index] else _outside(int(timestamps[index]), index, earliest, latest)
        for index in named[:_EXPLAINED_MAX]
    ]
    explained: list[str | None] = [*sentences, *[None] * (len(named) - len(sentences))]
    record_errors = tuple(zip(named, explained, strict=True))
    if outside.any():
        return InvalidTimestampError("One or more records have been rejected due to invalid timestamp", record_errors)
    return InvalidRecordError(
        f"One or more records have been rejected due to {len(faulty)} record errors in total, "
        f"the first is record {named[0]} of the batch: {sentences[0]}",
        record_errors,
    )


_KEYLESS = "Compacted topic cannot accept message without key"


def _outside(timestamp: int, index: int, earliest: int, latest: int) -> str:
    return (
        f"Timestamp {timestamp} of message with offset {index} is out of range. "
        f"The timestamp should be within [{earliest}, {latest}]"
    )


def _keyless(batch: ProducerBatch) -> npt.NDArray[np.bool_]:
    begin, length = batch.layout[at.FIRST_BUFFER + 2 * at.KEY_VALIDITY :][:2].tolist()
    if not length:
        return np.zeros(batch.rows, dtype=np.bool_)
    has_key = np.unpackbits(batch.body[begin : begin + length], count=batch.rows, bitorder="little")
    return np.equal(has_key, 0)
