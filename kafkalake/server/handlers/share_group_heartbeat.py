"""ShareGroupHeartbeat (76), version 1: refused, as in a Kafka in which share groups are not enabled."""

from __future__ import annotations

from kafkalake.errors import UnsupportedVersionError
from kafkalake.server.request import Request
from kafkalake.wire.messages.share_groups import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse


def handle(request: Request[ShareGroupHeartbeatRequest]) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=UnsupportedVersionError.code)
