"""AlterShareGroupOffsets (91), version 0: refused, as in a Kafka in which share groups are not enabled."""

from __future__ import annotations

from kafkalake.errors import UnsupportedVersionError
from kafkalake.server.request import Request
from kafkalake.wire.messages.share_groups import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse


def handle(request: Request[AlterShareGroupOffsetsRequest]) -> AlterShareGroupOffsetsResponse:
    error = UnsupportedVersionError()
    return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=request.error_text(error))
