"""The ends of a partition as a client asks for them."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from waiting import wait_until

_OF_AN_ELECTION = {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE}
"""What a broker says that has heard of an election before the client; librdkafka does not call it retriable."""


def may_pass(error: KafkaException) -> bool:
    """Return whether offsets are to be asked for again after an error."""
    return bool(error.args[0].retriable()) or error.args[0].code() in _OF_AN_ELECTION


def watermarks(consumer: Consumer, topic: str, partition: int, timeout_s: float = 60.0) -> tuple[int, int]:
    """Return the first offset and the end of a partition. One that has no known leader for a moment is asked for again."""
    found: list[tuple[int, int]] = []
    faults: list[KafkaException] = []

    def is_found() -> bool:
        try:
            where = TopicPartition(topic, partition)
            found.append(consumer.get_watermark_offsets(where, timeout=timeout_s, cached=False))
        except KafkaException as error:
            if not may_pass(error):
                raise
            faults.append(error)
        return bool(found)

    wait_until(is_found, lambda: faults[-1], timeout_s)
    return found[0]
