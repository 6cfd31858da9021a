"""SaslHandshake (17), versions 0-1: refused, as in Kafka, at a listener without SASL. 1: tokens follow in SaslAuthenticate."""

from __future__ import annotations

from kafkalake.errors import IllegalSaslStateError
from kafkalake.server.request import Request
from kafkalake.wire.messages.security import SaslHandshakeRequest, SaslHandshakeResponse


def handle(request: Request[SaslHandshakeRequest]) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=IllegalSaslStateError.code)
