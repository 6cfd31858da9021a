"""DeleteShareGroupOffsets (92), version 0: refused, as in a Kafka in which share groups are not enabled."""

from __future__ import annotations

from kafkalake.errors import UnsupportedVersionError
from kafkalake.server.request import Request
from kafkalake.wire.messages.share_groups import DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse


def handle(request: Request[DeleteShareGroupOffsetsRequest]) -> DeleteShareGroupOffsetsResponse:
    error = UnsupportedVersionError()
    return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=request.error_text(error))
