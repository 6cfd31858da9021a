"""AppendStaged (10001, kafkalake's own), version 0: describe topics to a job that will write, then append what it staged.

One JSON object each way (`wire/staged_append.py`). `{"ask": "describe", "topics": ["clicks"]}` (null: all that there are) says of
each topic its id, its partitions and what it takes; `{"ask": "append", ...}` is `broker.staged.AppendRequest`, answered when all
of it can be read, or with an error: then nothing of it will be. Asking again is always right.
"""

from __future__ import annotations

import difflib
import json
from typing import Any

from kafkalake.broker.staged.request import AppendRequest
from kafkalake.broker.staged.service import TRANSACTIONAL_ID_PREFIX
from kafkalake.broker.topics import Topic
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    InvalidRequestError,
    KafkaError,
    KafkaLakeError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
    UnknownTopicOrPartitionError,
)
from kafkalake.internal_topics import INTERNAL
from kafkalake.server.authorizer import Operation, Resource
from kafkalake.server.request import Request
from kafkalake.server.topic_lookup import allows_topic
from kafkalake.wire.staged_append import encode_response


def handle(request: Request) -> None:
    request.context.start_task(_answer(request, request.body))


async def _answer(request: Request, text: bytes) -> None:
    try:
        body = await request.context.broker.run_blocking(lambda: _parse(text))
        if body["ask"] == "describe":
            answer = _describe(request, body["topics"])
        else:
            answer = await _append(request, body)
    except KafkaLakeError as error:
        is_kafkas = isinstance(error, KafkaError)
        answer = {
            "error": error.code if isinstance(error, KafkaError) else KafkaError.code,
            "message": str(error),
            "retriable": is_kafkas and error.retriable,  # type: ignore[attr-defined]
        }
    request.reply_buffers((encode_response(request.correlation_id, answer),))


def _parse(text: bytes) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"malformed AppendStaged request: {error}") from None
    if not isinstance(body, dict) or body.get("ask") not in ("describe", "append"):
        raise InvalidRequestError("malformed AppendStaged request: it asks for nothing that is known")
    topics = body.get("topics")
    if body["ask"] == "append":
        body["request"] = AppendRequest.parse(body)
    elif topics is not None and (not isinstance(topics, list) or not all(isinstance(name, str) for name in topics)):
        raise InvalidRequestError("malformed AppendStaged request: topics is no list of names")
    return body


def _describe(request: Request, names: list[str] | None) -> dict[str, Any]:
    found = _writable(request).values() if names is None else [_topic(request, name) for name in names]
    return {"error": 0, "bytes_max": _service(request).bytes_max, "topics": [_described(topic) for topic in found]}


def _writable(request: Request) -> dict[str, Topic]:
    """The topics that the client may write to, by name."""
    return {
        topic.name: topic
        for topic in request.context.broker.topics
        if topic.name not in INTERNAL and allows_topic(request, Operation.WRITE, topic.name)
    }


def _topic(request: Request, name: str) -> Topic:
    if not allows_topic(request, Operation.WRITE, name):
        raise TopicAuthorizationError(f"not allowed to write to topic {name!r}")
    topic = request.context.broker.topics.find(name)
    if topic is None or name in INTERNAL:
        near = difflib.get_close_matches(name, _writable(request), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        error = UnknownTopicOrPartitionError(f"there is no topic {name!r} that could be written to{hint}")
        error.retriable = False
        raise error
    return topic


def _described(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": str(topic.topic_id),
        "partitions": len(topic.partitions),
        "message_bytes_max": topic.config.max_message_bytes,
        "key_required": "compact" in topic.config.cleanup_policy,
    }


async def _append(request: Request, body: dict[str, Any]) -> dict[str, Any]:
    asked: AppendRequest = body["request"]
    allows = request.context.authorizer.allows
    transactional_id = TRANSACTIONAL_ID_PREFIX + asked.application
    if not allows(request.connection.principal, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id):
        raise TransactionalIdAuthorizationError(f"not allowed to write as {asked.application!r}")
    for number in {number for number, _ in asked.partitions}:
        name = asked.topics[number][0]
        if not allows_topic(request, Operation.WRITE, name):
            raise TopicAuthorizationError(f"not allowed to write to topic {name!r}")
    result = await _service(request).append(asked)
    return {"error": 0, "records": result.records, "again": result.again}


def _service(request: Request) -> Any:
    service = request.context.broker.staged
    if service is None:
        raise CoordinatorNotAvailableError("the broker is starting")
    return service
