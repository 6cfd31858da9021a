"""The checks of produced batches for those that come to a broker as columns: staged by jobs, or delivered later."""

from __future__ import annotations

from kafkalake.config.broker import BrokerConfig
from kafkalake.config.topic_rules import TopicRules
from kafkalake.errors import InvalidRecordError, InvalidTimestampError, MessageTooLargeError
from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.timestamps import NO_TIMESTAMP, allowed_timestamps
from kafkalake.storage.producer_state import HAND_OVER_PRODUCER_ID_MIN
from kafkalake.storage.staged_file import data_bytes

OWN_PRODUCER_IDS_FROM = HAND_OVER_PRODUCER_ID_MIN
"""Producer ids that no client may use: their state is kept for ever."""

_UNCOMPRESSED_BYTES_MIN = 16 * 1024 * 1024
_UNCOMPRESSED_RATIO = 10
_BATCH_OVERHEAD_BYTES = 61
_RECORD_BYTES_MIN = 7


def uncompressed_bytes_max(rules: TopicRules, broker: BrokerConfig) -> int:
    """Return the largest decompressed size of a batch's records, never below `max.message.bytes` of the topic."""
    bytes_max = broker.max_message_uncompressed_bytes
    if bytes_max < 0:
        bytes_max = max(_UNCOMPRESSED_BYTES_MIN, _UNCOMPRESSED_RATIO * rules.message_bytes_max)
        bytes_max = min(bytes_max, broker.socket_request_max_bytes)
    return max(bytes_max, rules.message_bytes_max)


def check_batch(rules: TopicRules, batch: ProducerBatch, bytes_max: int | None = None) -> None:
    """Apply the checks of produced batches. bytes_max: the limit of one that its producer has compressed.

    Raise `MessageTooLargeError` above it or max.message.bytes, `InvalidRecordError` if a compacted topic gets a null key.
    """
    size = data_bytes(batch) + _RECORD_BYTES_MIN * batch.rows + _BATCH_OVERHEAD_BYTES
    limit = rules.message_bytes_max if bytes_max is None else bytes_max
    if size > limit:
        raise MessageTooLargeError(f"a batch of {size} bytes, max.message.bytes is {rules.message_bytes_max}")
    check_keys(rules, batch)


def check_timestamps(rules: TopicRules, batch: ProducerBatch, now_ms: int) -> None:
    """Raise `InvalidTimestampError` if a record's time is farther from now than its topic allows (KIP-937)."""
    before_ms, after_ms = rules.timestamp_before_max_ms, rules.timestamp_after_max_ms
    earliest, latest = allowed_timestamps(before_ms, after_ms, now_ms)
    timestamps = batch.timestamps
    newest = int(timestamps.max())
    if newest > latest:
        raise InvalidTimestampError(
            f"a record of {newest} ms since 1970 is too far in the future: message.timestamp.after.max.ms is {after_ms}"
        )
    given = timestamps[timestamps != NO_TIMESTAMP]
    if len(given) and int(given.min()) < earliest:
        raise InvalidTimestampError(
            f"a record of {given.min()} ms since 1970 is too old: message.timestamp.before.max.ms is {before_ms}"
        )


def check_keys(rules: TopicRules, batch: ProducerBatch) -> None:
    """Raise `InvalidRecordError` if a compacted topic gets a null key."""
    if batch.layout[at.KEY_NULLS] and rules.key_required:
        raise InvalidRecordError("a compacted topic takes no record without a key")
