"""WriteShareGroupState (85), version 0: refused, see `server/share_state.py`."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.server.share_state import Refusal
from kafkalake.wire.messages.share_groups import WriteShareGroupStateRequest, WriteShareGroupStateResponse


def handle(
    request: Request[WriteShareGroupStateRequest],
) -> Generator[None, None, WriteShareGroupStateResponse]:
    is_authorized = request.allows(Resource.CLUSTER, CLUSTER_NAME)
    refusal = Refusal(request.body, "write share group state", is_authorized=is_authorized)
    return WriteShareGroupStateResponse(results=(yield from refusal.collect_results()))
