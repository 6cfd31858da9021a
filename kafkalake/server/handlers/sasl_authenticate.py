"""SaslAuthenticate (36), versions 0-2: refused, as in Kafka, at a listener without SASL. 1: lifetime of a session. 2: flexible."""

from __future__ import annotations

from kafkalake.errors import IllegalSaslStateError
from kafkalake.server.request import Request
from kafkalake.wire.messages.security import SaslAuthenticateRequest, SaslAuthenticateResponse

_MESSAGE = "SaslAuthenticate request received after successful authentication"


def handle(request: Request[SaslAuthenticateRequest]) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=IllegalSaslStateError.code, error_message=_MESSAGE)
