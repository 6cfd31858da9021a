"""DescribeAcls (29), versions 1-3: SECURITY_DISABLED, as in Kafka without an authorizer."""

from __future__ import annotations

from kafkalake.server.access_control_lists import refusal
from kafkalake.server.request import Request
from kafkalake.wire.messages.security import DescribeAclsRequest, DescribeAclsResponse


def handle(request: Request[DescribeAclsRequest]) -> DescribeAclsResponse:
    error = refusal(request, "No Authorizer is configured on the broker")
    return DescribeAclsResponse(error_code=error.code, error_message=request.error_text(error))
