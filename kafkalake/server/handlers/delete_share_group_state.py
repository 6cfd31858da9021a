"""DeleteShareGroupState (86), version 0: refused, see `server/share_state.py`."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.server.share_state import Refusal
from kafkalake.wire.messages.share_groups import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse


def handle(
    request: Request[DeleteShareGroupStateRequest],
) -> Generator[None, None, DeleteShareGroupStateResponse]:
    is_authorized = request.allows(Resource.CLUSTER, CLUSTER_NAME)
    refusal = Refusal(request.body, "delete share group state", is_authorized=is_authorized)
    return DeleteShareGroupStateResponse(results=(yield from refusal.collect_results()))
