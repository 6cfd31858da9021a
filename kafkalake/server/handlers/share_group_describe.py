"""ShareGroupDescribe (77), version 1: refused for each group, as in a Kafka in which share groups are not enabled."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.errors import UnsupportedVersionError
from kafkalake.server.request import Request
from kafkalake.wire.messages.share_groups import (
    DescribedShareGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


def handle(request: Request[ShareGroupDescribeRequest]) -> Generator[None, None, ShareGroupDescribeResponse]:
    groups = []
    for each in request.body.group_ids:
        groups.append(DescribedShareGroup(group_id=each, error_code=UnsupportedVersionError.code))
        yield
    return ShareGroupDescribeResponse(groups=groups)
