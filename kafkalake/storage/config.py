"""The settings of a log: a frozen value, with Kafka's names of topic settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The settings of one partition's log, with Kafka's defaults. Units as in the names: bytes and milliseconds."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    segment_compression: str = "none"
    """Arrow body compression of written messages: none, lz4 or zstd."""
    flush_messages: int = (1 << 63) - 1
    flush_ms: int = (1 << 63) - 1
    message_timestamp_type: str = "CreateTime"
    """CreateTime, or LogAppendTime: the broker's time replaces the producer's."""
    producer_id_expiration_ms: int = 24 * 3600 * 1000
    file_delete_delay_ms: int = 60_000
    """The time that a deleted segment's files stay for readers that planned with them."""
