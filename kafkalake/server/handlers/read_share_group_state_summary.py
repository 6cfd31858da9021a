"""ReadShareGroupStateSummary (87), version 0: refused, see `server/share_state.py`."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.server.share_state import Refusal
from kafkalake.wire.messages.share_groups import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    SummarizedPartition,
    SummarizedTopic,
)


def handle(
    request: Request[ReadShareGroupStateSummaryRequest],
) -> Generator[None, None, ReadShareGroupStateSummaryResponse]:
    is_authorized = request.allows(Resource.CLUSTER, CLUSTER_NAME)
    refusal = Refusal(request.body, "read share group state summary", is_authorized=is_authorized)
    code, message = refusal.error.code, str(refusal.error)
    found: list[SummarizedTopic] = []
    for topic_id, partitions in refusal.list_topics():
        found.append(SummarizedTopic(topic_id=topic_id, partitions=(results := [])))
        for each in partitions:
            results.append(SummarizedPartition(partition=each, error_code=code, error_message=message))
            yield
        yield
    return ReadShareGroupStateSummaryResponse(results=found)
