"""DescribeTransactions (65), version 0: transactional ids, their producer, state, and the partitions of the open transaction."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from kafkalake.errors import KafkaError
from kafkalake.server.authorizer import Operation
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import allows_topic
from kafkalake.server.transaction_lookup import check_transactional_id


def handle(request: Request) -> Generator[None, None, dict[str, Any]]:
    answers = []
    for each in dict.fromkeys(request.body.transactional_ids):
        answers.append(_describe(request, each))
        yield
    return {"transaction_states": answers}


def _describe(request: Request, transactional_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"error_code": 0, "transactional_id": transactional_id}
    try:
        check_transactional_id(request, Operation.DESCRIBE, transactional_id)
        found = request.context.broker.transactions.coordinator.describe(transactional_id)
    except KafkaError as error:
        answer["error_code"] = error.code
        return answer
    topics: dict[str, list[int]] = {}
    for topic, partition in found.partitions:
        if allows_topic(request, Operation.DESCRIBE, topic):
            topics.setdefault(topic, []).append(partition)
    answer.update(
        transaction_state=found.state,
        transaction_timeout=found.timeout_ms,
        transaction_start_time=found.started_at_ms,
        producer_id=found.producer_id,
        producer_epoch=found.epoch,
        topics=[{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()],
    )
    return answer
