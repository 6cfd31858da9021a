"""CreateDelegationToken (38), versions 1-3: refused, as in Kafka, on a connection whose client has not proved who it is."""

from __future__ import annotations

from kafkalake.errors import DelegationTokenRequestNotAllowedError
from kafkalake.server.request import Request
from kafkalake.wire.messages.security import CreateDelegationTokenRequest, CreateDelegationTokenResponse


def handle(request: Request[CreateDelegationTokenRequest]) -> CreateDelegationTokenResponse:
    principal = request.connection.principal
    return CreateDelegationTokenResponse(
        error_code=DelegationTokenRequestNotAllowedError.code,
        principal_type=principal.kind,
        principal_name=principal.name,
        token_requester_principal_type=principal.kind,
        token_requester_principal_name=principal.name,
        issue_timestamp=-1,
        expiry_timestamp=-1,
        max_timestamp=-1,
    )
