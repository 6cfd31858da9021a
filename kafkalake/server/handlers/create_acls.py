"""CreateAcls (30), versions 1-3: SECURITY_DISABLED, as in Kafka without an authorizer."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.server.access_control_lists import refusal
from kafkalake.server.request import Request
from kafkalake.wire.messages.security import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(request: Request[CreateAclsRequest]) -> Generator[None, None, CreateAclsResponse]:
    error = refusal(request, "No Authorizer is configured.")
    refused = AclCreationResult(error_code=error.code, error_message=request.error_text(error))
    answers = []
    for _ in request.body.creations:
        answers.append(refused)
        yield
    return CreateAclsResponse(results=answers)
