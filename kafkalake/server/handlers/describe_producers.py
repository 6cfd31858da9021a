"""DescribeProducers (61), version 0: the producers in a partition's state, and where open transactions begin (KIP-664).

Any replica answers, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.errors import KafkaError
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import find_described_topic
from kafkalake.wire.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(request: Request[DescribeProducersRequest]) -> Generator[None, None, DescribeProducersResponse]:
    asked: dict[str, dict[int, None]] = {}
    for topic in request.body.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    answers: list[TopicResponse] = []
    for name, indexes in asked.items():
        answers.append(TopicResponse(name=name, partitions=(partitions := [])))
        for index in indexes:
            partitions.append((yield from _partition(request, name, index)))
            yield
    return DescribeProducersResponse(topics=answers)


def _partition(
    request: Request[DescribeProducersRequest], name: str, index: int
) -> Generator[None, None, PartitionResponse]:
    """Return a partition's producers. It yields after each: there may be a hundred thousand."""
    try:
        log = request.context.broker.replicas.find_log(find_described_topic(request, name), index)
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=request.error_text(error))
    found = []
    for producer_id, producer in log.producers():
        found.append(
            ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.batches[-1].last_sequence if producer.batches else -1,
                last_timestamp=producer.last_append_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction_offset,
            )
        )
        yield
    return PartitionResponse(partition_index=index, active_producers=found)
