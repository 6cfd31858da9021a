"""The rules of a topic for its producers: the one reading of its settings, for requests and for staged files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Self

from kafkalake.codecs import NUMBERS
from kafkalake.config.delay_levels import level_ms
from kafkalake.config.topics import TopicConfig


class DelayRules(NamedTuple):
    """The delays of a topic's records: of their headers, at most max_ms; or of all of them level_ms, then to `target`."""

    max_ms: int
    level_ms: int = -1
    target: str | None = None


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The rules of a topic.

    message_bytes_max: size of a batch as received. key_required: the topic is compacted, and takes no record without a key.
    timestamp_before_max_ms, timestamp_after_max_ms: allowed distance of a timestamp from now (KIP-937). None: no bound, because the
    broker writes its own. codec: number of the codec in which consumers get batches, None: the producer's. delays: None if its
    records are never delayed.
    """

    message_bytes_max: int
    key_required: bool
    timestamp_before_max_ms: int | None
    timestamp_after_max_ms: int | None
    codec: int | None
    delays: DelayRules | None = None

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
            delays=_delay_rules(config),
        )


def _delay_rules(config: TopicConfig) -> DelayRules | None:
    if config.delay_level is not None:
        return DelayRules(config.delay_max_ms, level_ms(config.delay_level), config.delay_target)
    return DelayRules(config.delay_max_ms) if config.delayed_delivery_enable else None
