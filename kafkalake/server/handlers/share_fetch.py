"""ShareFetch (78), version 1: refused, as in a Kafka in which share groups are not enabled."""

from __future__ import annotations

from kafkalake.errors import UnsupportedVersionError
from kafkalake.server.request import Request
from kafkalake.wire.messages.share_groups import ShareFetchRequest, ShareFetchResponse


def handle(request: Request[ShareFetchRequest]) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=UnsupportedVersionError.code)
