"""The rules of a topic for its producers: the one reading of its settings, for requests and for staged files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from kafkalake.codecs import NUMBERS
from kafkalake.config.topics import TopicConfig


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The rules of a topic.

    message_bytes_max: size of a batch as received. key_required: the topic is compacted, and takes no record without a key.
    timestamp_before_max_ms, timestamp_after_max_ms: allowed distance of a timestamp from now (KIP-937). None: no bound, because the
    broker writes its own. codec: number of the codec in which consumers get batches, None: the producer's.
    """

    message_bytes_max: int
    key_required: bool
    timestamp_before_max_ms: int | None
    timestamp_after_max_ms: int | None
    codec: int | None

    @classmethod
    def of(cls, config: TopicConfig) -> Self:
        """Return the rules of a topic with these settings."""
        has_create_time = config.message_timestamp_type == "CreateTime"
        return cls(
            message_bytes_max=config.max_message_bytes,
            key_required=config.compacts,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms if has_create_time else None,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms if has_create_time else None,
            codec=None if config.compression_type == "producer" else NUMBERS[config.compression_type],
        )
