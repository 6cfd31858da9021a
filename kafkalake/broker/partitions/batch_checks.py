"""The checks of produced batches for those that come to a broker as columns: staged by jobs, or delivered later."""

from __future__ import annotations

from kafkalake.config.topic_rules import TopicRules
from kafkalake.errors import InvalidRecordError, MessageTooLargeError
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.storage.producer_state import HAND_OVER_PRODUCER_ID_MIN
from kafkalake.storage.staged_file import data_bytes

OWN_PRODUCER_IDS_FROM = HAND_OVER_PRODUCER_ID_MIN
"""Producer ids that no client may use: their state is kept for ever."""

_BATCH_OVERHEAD_BYTES = 61
_RECORD_BYTES_MIN = 7


def check_batch(rules: TopicRules, batch: ProducerBatch) -> None:
    """Apply the checks of produced batches.

    Raise `MessageTooLargeError` above max.message.bytes, `InvalidRecordError` if a compacted topic gets a null key.
    """
    size = data_bytes(batch) + _RECORD_BYTES_MIN * batch.rows + _BATCH_OVERHEAD_BYTES
    if size > rules.message_bytes_max:
        raise MessageTooLargeError(f"a batch of {size} bytes, max.message.bytes is {rules.message_bytes_max}")
    if batch.layout[at.KEY_NULLS] and rules.key_required:
        raise InvalidRecordError("a compacted topic takes no record without a key")
