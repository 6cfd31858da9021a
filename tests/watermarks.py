"""The ends of a partition as a client asks for them."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, TopicPartition
from waiting import wait_until


def watermarks(consumer: Consumer, topic: str, partition: int, timeout_s: float = 60.0) -> tuple[int, int]:
    """Return the first offset and the end of a partition. One that has no known leader for a moment is asked for again."""
    found: list[tuple[int, int]] = []
    faults: list[KafkaException] = []

    def is_found() -> bool:
        try:
            where = TopicPartition(topic, partition)
            found.append(consumer.get_watermark_offsets(where, timeout=timeout_s, cached=False))
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            faults.append(error)
        return bool(found)

    wait_until(is_found, lambda: faults[-1], timeout_s)
    return found[0]
