"""ReportChanges (10005, kafkalake's own), version 0: what this broker has to publish to the lake's tables. For the controller.

One request is one step, `server.report_server` has them. A request of an earlier controller is refused with NOT_CONTROLLER, and so
is one of an epoch that nobody has claimed: to take it for the newest would keep the real one out.
"""

from __future__ import annotations

from kafkalake.errors import ClusterAuthorizationError, KafkaError, NotControllerError
from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.wire.messages.reports import ReportChangesRequest, ReportChangesResponse


async def handle(request: Request[ReportChangesRequest]) -> ReportChangesResponse:
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        membership, epoch = request.context.broker.membership, request.body.controller_epoch
        if epoch > membership.newest.controller_epoch:
            await membership.look()
        if epoch > membership.newest.controller_epoch:
            raise NotControllerError()
        return await request.context.reports.answer(request.body)
    except KafkaError as error:
        return ReportChangesResponse(error_code=error.code)
