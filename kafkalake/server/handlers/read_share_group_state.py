"""ReadShareGroupState (84), version 0: refused, see `server/share_state.py`."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.server.share_state import Refusal
from kafkalake.wire.messages.share_groups import (
    ReadPartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadTopicResult,
)


def handle(
    request: Request[ReadShareGroupStateRequest],
) -> Generator[None, None, ReadShareGroupStateResponse]:
    is_authorized = request.allows(Resource.CLUSTER, CLUSTER_NAME)
    refusal = Refusal(request.body, "read share group state", is_authorized=is_authorized)
    code, message = refusal.error.code, str(refusal.error)
    found: list[ReadTopicResult] = []
    for topic_id, partitions in refusal.list_topics():
        found.append(ReadTopicResult(topic_id=topic_id, partitions=(results := [])))
        for each in partitions:
            results.append(ReadPartitionResult(partition=each, error_code=code, error_message=message))
            yield
        yield
    return ReadShareGroupStateResponse(results=found)
