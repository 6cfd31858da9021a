"""InitProducerId (22), versions 0-5: a producer id for an idempotent producer.

- 2: flexible. 3: a producer may name the id and epoch that it has (KIP-360); without a transactional id it gets a new one.
  4, 5: as 3. An id is never given twice, also not after a crash.
- With a transactional id the answer is UNSUPPORTED_VERSION until transactions are there: fatal to the client, and clear.
"""

from __future__ import annotations

from typing import Any

from kafkalake.errors import (
    ClusterAuthorizationError,
    InvalidRequestError,
    KafkaError,
    UnsupportedVersionError,
)
from kafkalake.server.authorizer import CLUSTER_NAME, Operation, Resource
from kafkalake.server.request import Request


def handle(request: Request) -> dict[str, Any]:
    body = request.body
    try:
        if body.transactional_id is not None:
            if not body.transactional_id:
                raise InvalidRequestError("an empty transactional id")
            raise UnsupportedVersionError("transactions are not supported yet")
        allows = request.context.authorizer.allows
        if not allows(request.connection.principal, Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        producer_id = request.context.broker.producer_ids.next_id()
    except KafkaError as error:
        return {"error_code": error.code, "producer_id": -1, "producer_epoch": -1}
    return {"error_code": 0, "producer_id": producer_id, "producer_epoch": 0}
