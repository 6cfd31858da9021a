"""FindCoordinator (10), versions 0-6: the coordinator of a group (key type 0) or a transactional id (1).

- The coordinator is the leader of the key's partition in the journal. 1: key type. 3: flexible. 4: several keys in one request
  (KIP-699). 6: share groups (key type 2), not supported here: INVALID_REQUEST, as for every unknown type.
- The first request for a group creates `__consumer_offsets`, the first for a transactional id `__transaction_state`, before the
  response. Kafka responds with COORDINATOR_NOT_AVAILABLE first and lets the client retry.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator

from kafkalake.broker.groups.service import GroupService
from kafkalake.broker.transactions.service import TransactionService
from kafkalake.errors import (
    CoordinatorNotAvailableError,
    GroupAuthorizationError,
    InvalidGroupIdError,
    InvalidRequestError,
    KafkaError,
    as_value,
)
from kafkalake.server.authorizer import Resource
from kafkalake.server.request import Request
from kafkalake.server.transaction_lookup import check_transactional_id
from kafkalake.wire.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP, _TRANSACTION = 0, 1


Answer = Generator[None, None, FindCoordinatorResponse]


def handle(request: Request[FindCoordinatorRequest]) -> Answer | Coroutine[object, object, FindCoordinatorResponse]:
    key_type = request.body.key_type
    broker = request.context.broker
    if key_type == _GROUP and not broker.groups.journal.is_ready:
        return _when_ready(request, key_type, broker.groups)
    if key_type == _TRANSACTION and not broker.transactions.journal.is_ready:
        return _when_ready(request, key_type, broker.transactions)
    return _answer(request, key_type, None)


async def _when_ready(
    request: Request[FindCoordinatorRequest], key_type: int, coordinator: GroupService | TransactionService
) -> FindCoordinatorResponse:
    try:
        await coordinator.journal.make_ready()
        unavailable = None
    except KafkaError as error:
        unavailable = as_value(error)
    return await request.in_turns(_answer(request, key_type, unavailable))


def _answer(request: Request[FindCoordinatorRequest], key_type: int, error: KafkaError | None) -> Answer:
    if request.version < 4:
        only = _find(request, request.body.key, key_type, error)
        return FindCoordinatorResponse(
            error_code=only.error_code,
            error_message=only.error_message,
            node_id=only.node_id,
            host=only.host,
            port=only.port,
        )
    found = []
    for key in request.body.coordinator_keys:
        found.append(_find(request, key, key_type, error))
        yield
    return FindCoordinatorResponse(coordinators=found)


def _find(
    request: Request[FindCoordinatorRequest], key: str, key_type: int, unavailable: KafkaError | None
) -> Coordinator:
    try:
        _check(request, key, key_type)
        if unavailable is not None:
            raise unavailable
        broker = request.context.broker
        journal = (broker.groups if key_type == _GROUP else broker.transactions).journal
        leader = broker.topics.leader_id(journal.key(key))
        address = broker.cluster.address(leader, request.listener)
        if address is None:
            raise CoordinatorNotAvailableError("the partition of the journal that it belongs to is offline")
    except KafkaError as error:
        message = request.error_text(as_value(error))
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=message)
    return Coordinator(key=key, node_id=leader, host=address.host, port=address.port)


def _check(request: Request[FindCoordinatorRequest], key: str, key_type: int) -> None:
    if key_type not in (_GROUP, _TRANSACTION):
        raise InvalidRequestError("The given coordinator type is not supported here")
    if not key:
        raise (
            InvalidGroupIdError("the key is empty") if key_type == _GROUP else InvalidRequestError("the key is empty")
        )
    if key_type == _GROUP and not request.allows(Resource.GROUP, key):
        raise GroupAuthorizationError()
    if key_type == _TRANSACTION:
        check_transactional_id(request, key)
