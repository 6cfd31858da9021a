"""DescribeDelayed (10010, kafkalake's own), version 0: how much waits in the journal partitions of this broker.

And how late the records of the last minute were handed over, for `kafkalake delayed metrics`.
"""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.delayed import DescribeDelayedRequest, DescribeDelayedResponse, DescribedJournal


def handle(request: Request[DescribeDelayedRequest]) -> DescribeDelayedResponse:
    if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
        return DescribeDelayedResponse(error_code=ClusterAuthorizationError.code)
    broker = request.context.broker
    metrics = broker.delayed_metrics
    lateness = metrics.lateness(broker.clock.now_ms())
    return DescribeDelayedResponse(
        handed_over=metrics.handed_over_records,
        dead_letters=metrics.dead_letters,
        recent=lateness.records,
        lateness_p50=lateness.p50_ms,
        lateness_p99=lateness.p99_ms,
        lateness_max=lateness.max_ms,
        partitions=[
            DescribedJournal(
                partition_index=each.index,
                is_loaded=each.is_loaded,
                waiting=each.waiting,
                overdue=each.overdue,
                next_due=-1 if each.next_due_ms is None else each.next_due_ms,
            )
            for each in broker.delayed.describe()
        ],
    )
