"""FindCoordinator (10), versions 0-6: which broker coordinates a group (key type 0) or a transactional id (1).

One broker leads everything, so the answer is always this one. 1: key type. 3: flexible. 4: several keys in one request
(KIP-699). 6: share groups (key type 2), which are not there: INVALID_REQUEST, as for every unknown type.
"""

from __future__ import annotations

from typing import Any

from kafkalake.errors import InvalidGroupIdError, InvalidRequestError, KafkaError
from kafkalake.server.request import Request

_GROUP, _TRANSACTION = 0, 1


def handle(request: Request) -> dict[str, Any]:
    key_type = getattr(request.body, "key_type", _GROUP)
    if request.version >= 4:
        return {"coordinators": [_find(request, key, key_type) for key in request.body.coordinator_keys]}
    return _find(request, request.body.key, key_type)


def _find(request: Request, key: str, key_type: int) -> dict[str, Any]:
    identity = request.context.broker.identity
    answer = {"key": key, "node_id": identity.broker_id, "host": identity.host, "port": identity.port, "error_code": 0}
    try:
        if key_type not in (_GROUP, _TRANSACTION):
            raise InvalidRequestError("The given coordinator type is not supported here")
        if not key:
            raise (
                InvalidGroupIdError("the key is empty")
                if key_type == _GROUP
                else InvalidRequestError("the key is empty")
            )
    except KafkaError as error:
        answer.update(node_id=-1, host="", port=-1, error_code=error.code, error_message=str(error))
    return answer
