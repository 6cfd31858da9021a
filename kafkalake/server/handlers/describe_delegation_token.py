"""DescribeDelegationToken (41), versions 1-3: refused, as in Kafka, on a connection whose client has not proved who it is."""

from __future__ import annotations

from kafkalake.errors import DelegationTokenRequestNotAllowedError
from kafkalake.server.request import Request
from kafkalake.wire.messages.security import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse


def handle(request: Request[DescribeDelegationTokenRequest]) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=DelegationTokenRequestNotAllowedError.code)
