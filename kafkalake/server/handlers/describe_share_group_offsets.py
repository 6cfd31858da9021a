"""DescribeShareGroupOffsets (90), version 0: refused for each group, as in a Kafka in which share groups are not enabled."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.errors import UnsupportedVersionError
from kafkalake.server.request import Request
from kafkalake.wire.messages.share_groups import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ShareGroupOffsets,
)


def handle(
    request: Request[DescribeShareGroupOffsetsRequest],
) -> Generator[None, None, DescribeShareGroupOffsetsResponse]:
    groups = []
    for each in request.body.groups:
        groups.append(ShareGroupOffsets(group_id=each.group_id, error_code=UnsupportedVersionError.code))
        yield
    return DescribeShareGroupOffsetsResponse(groups=groups)
