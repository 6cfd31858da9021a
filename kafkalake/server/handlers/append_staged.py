"""AppendStaged (10001, kafkalake's own), version 0: describe topics for a job that will write, then append its staged files.

One JSON object each way (`wire/staged_append.py`). `{"ask": "describe", "topics": ["clicks"]}` (null: all topics) returns the
cluster's id, the directory of its lake, and for each topic its id, its partitions and its limits. A request with a `cluster_id` is
refused by a broker of another cluster. `{"ask": "append", ...}` is `broker.staged.AppendRequest`, answered when all
of it is readable, or with an error: then none of it ever will be. A request may always be repeated. `again` in the response: the
version was committed before. `version` is the newest committed one. With NOT_COORDINATOR, `coordinator` is the address of the
broker that keeps the application's commits: the request must go there.
"""

from __future__ import annotations

import logging
from typing import Any

from kafkalake.broker.partitions.topics import Topic
from kafkalake.broker.staged.request import AppendRequest, decode
from kafkalake.broker.staged.service import TRANSACTIONAL_ID_PREFIX
from kafkalake.close_names import did_you_mean
from kafkalake.config.topic_rules import TopicRules
from kafkalake.errors import (
    InconsistentClusterIdError,
    KafkaError,
    KafkaLakeError,
    NotCoordinatorError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
    UnknownTopicOrPartitionError,
    with_retriable,
)
from kafkalake.internal_topics import INTERNAL
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.staged_append import encode_response

logger = logging.getLogger(__name__)

_COMPARED_MAX = 500
"""Most names compared with a missing one, 30 us each."""


def handle(request: Request[bytes]) -> None:
    request.start_task(_answer(request, request.body))


async def _answer(request: Request[bytes], text: bytes) -> None:
    """Reply in any case: later responses of the connection are sent only after this one."""
    asked: AppendRequest | None = None
    try:
        body, asked = await request.context.broker.run_blocking(lambda: decode(text))
        own = request.context.broker.cluster.cluster_id
        if body.get("cluster_id", own) != own:
            raise InconsistentClusterIdError(f"this is a broker of cluster {own}")
        answer = _describe(request, body["topics"]) if asked is None else await _append(request, asked)
    except KafkaLakeError as error:
        is_kafkas = isinstance(error, KafkaError)
        answer = {
            "error": error.code if isinstance(error, KafkaError) else KafkaError.code,
            "message": request.error_text(error),
            "retriable": is_kafkas and error.retriable,
        }
        if isinstance(error, NotCoordinatorError) and asked is not None:
            answer["coordinator"] = _coordinator(request, asked.application)
    except Exception:
        logger.exception("request failed peer=%s api=%s", request.connection.peer, request.api.name)
        answer = {"error": KafkaError.code, "message": "an unexpected error", "retriable": False}
    request.reply_buffers((encode_response(request.correlation_id, answer),))


def _coordinator(request: Request[bytes], application: str) -> tuple[str, int] | None:
    """Return the address of the broker that appends what an application has staged, None if it has none now."""
    broker = request.context.broker
    elsewhere = broker.staged.coordinator_elsewhere(application)
    address = None if elsewhere is None else broker.cluster.address(elsewhere, request.listener)
    return None if address is None else (address.host, address.port)


def _describe(request: Request[bytes], names: list[str] | None) -> dict[str, Any]:
    found = _writable(request).values() if names is None else [_topic(request, name) for name in names]
    broker = request.context.broker
    shows_lake = request.allows(Resource.CLUSTER, CLUSTER_NAME)
    return {
        "error": 0,
        "cluster_id": broker.cluster.cluster_id,
        "lake": str(broker.staged.lake) if shows_lake else None,
        "bytes_max": broker.staged.bytes_max,
        "topics": [_described(topic) for topic in found],
    }


def _writable(request: Request[bytes]) -> dict[str, Topic]:
    """Return the topics that the client may write to, by name."""
    return {
        topic.name: topic
        for topic in request.context.broker.topics
        if topic.name not in INTERNAL and request.allows(Resource.TOPIC, topic.name)
    }


def _topic(request: Request[bytes], name: str) -> Topic:
    if not request.allows(Resource.TOPIC, name):
        raise TopicAuthorizationError(f"not allowed to write to topic {name!r}")
    topic = request.context.broker.topics.find(name)
    if topic is None or name in INTERNAL:
        like = [each for each in _writable(request) if abs(len(each) - len(name)) <= 3][:_COMPARED_MAX]
        hint = did_you_mean(name, like, most=1)
        message = f"there is no topic {name!r} that could be written to"
        raise with_retriable(UnknownTopicOrPartitionError(f"{message}; {hint}" if hint else message), False)
    return topic


def _described(topic: Topic) -> dict[str, Any]:
    rules = TopicRules.of(topic.config)
    return {
        "name": topic.name,
        "id": str(topic.topic_id),
        "partitions": len(topic.registrations),
        "message_bytes_max": rules.message_bytes_max,
        "key_required": rules.key_required,
    }


async def _append(request: Request[bytes], asked: AppendRequest) -> dict[str, Any]:
    transactional_id = TRANSACTIONAL_ID_PREFIX + asked.application
    if not request.allows(Resource.TRANSACTIONAL_ID, transactional_id):
        raise TransactionalIdAuthorizationError(f"not allowed to write as {asked.application!r}")
    for number in {number for number, _ in asked.partitions}:
        name = asked.topics[number][0]
        if not request.allows(Resource.TOPIC, name):
            raise TopicAuthorizationError(f"not allowed to write to topic {name!r}")
    result = await request.context.broker.staged.append(asked)
    return {"error": 0, "records": result.records, "again": result.again, "version": result.version}
