"""DeleteAcls (31), versions 1-3: SECURITY_DISABLED, as in Kafka without an authorizer."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.server.access_control_lists import refusal
from kafkalake.server.request import Request
from kafkalake.wire.messages.security import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle(request: Request[DeleteAclsRequest]) -> Generator[None, None, DeleteAclsResponse]:
    error = refusal(request, "No Authorizer is configured.")
    refused = DeleteAclsFilterResult(error_code=error.code, error_message=request.error_text(error))
    answers = []
    for _ in request.body.filters:
        answers.append(refused)
        yield
    return DeleteAclsResponse(filter_results=answers)
