"""ExpireDelegationToken (40), versions 1-2: refused, as in Kafka, on a connection whose client has not proved who it is."""

from __future__ import annotations

from kafkalake.errors import DelegationTokenRequestNotAllowedError
from kafkalake.server.request import Request
from kafkalake.wire.messages.security import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


def handle(request: Request[ExpireDelegationTokenRequest]) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=DelegationTokenRequestNotAllowedError.code, expiry_timestamp=-1)
