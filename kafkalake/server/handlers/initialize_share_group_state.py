"""InitializeShareGroupState (83), version 0: refused, see `server/share_state.py`."""

from __future__ import annotations

from collections.abc import Generator

from kafkalake.server.authorizer import CLUSTER_NAME, Resource
from kafkalake.server.request import Request
from kafkalake.server.share_state import Refusal
from kafkalake.wire.messages.share_groups import InitializeShareGroupStateRequest, InitializeShareGroupStateResponse


def handle(
    request: Request[InitializeShareGroupStateRequest],
) -> Generator[None, None, InitializeShareGroupStateResponse]:
    is_authorized = request.allows(Resource.CLUSTER, CLUSTER_NAME)
    refusal = Refusal(request.body, "initialize share group state", is_authorized=is_authorized)
    return InitializeShareGroupStateResponse(results=(yield from refusal.collect_results()))
