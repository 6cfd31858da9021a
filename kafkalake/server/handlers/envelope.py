"""Envelope (58), version 0: a request of a client that another broker forwards to the controller (KIP-590).

- It is answered as if the client had sent it here: its principal is authorized, its address logged. Who may send envelopes may act
  as any principal, so it takes CLUSTER_ACTION.
- Only the controller's own requests are taken, and only by the controller: NOT_CONTROLLER otherwise, so nothing is forwarded twice.
- kafkalake's own: the principal is text (`User:alice`), and a tagged field names the client's listener.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from ipaddress import ip_address
from typing import Any

from kafkalake.errors import ClusterAuthorizationError, InvalidRequestError, KafkaError, NotControllerError
from kafkalake.server.authorizer import CLUSTER_NAME, Principal, Resource
from kafkalake.server.request import Request
from kafkalake.server.turns import LARGE_FRAME_BYTES
from kafkalake.wire.messages.codec import SIZE_BYTES, decode_request, read_fixed_header
from kafkalake.wire.messages.membership import EnvelopeRequest, EnvelopeResponse

logger = logging.getLogger(__name__)


class ForwardedClient:
    """The client behind an envelope: the origin of the request in it. The answer goes into the envelope's response."""

    is_forwarded = True

    def __init__(self, envelope: Request[EnvelopeRequest]) -> None:
        """Raise `InvalidRequestError` if the envelope does not name a client."""
        body, broker = envelope.body, envelope.connection
        try:
            self.principal = Principal.parse(bytes(body.request_principal or b"").decode())
            self.address = str(ip_address(bytes(body.client_host_address))) if body.client_host_address else ""
        except ValueError:
            raise InvalidRequestError("The envelope names no client.") from None
        self.peer = f"{self.address} by {broker.peer}"
        self.listener = replace(broker.listener, name=body.listener or broker.listener.name)
        self.logs_requests = False
        self.owe = broker.owe
        self._envelope = envelope

    @property
    def is_closing(self) -> bool:
        return self._envelope.connection.is_closing

    def answered(self, request: Request[object]) -> None:
        frame = b"".join(request.answer)
        self._reply(EnvelopeResponse(response_data=frame[SIZE_BYTES:]))

    def fail(self, error: Exception) -> None:
        if not isinstance(error, InvalidRequestError | NotControllerError):
            logger.error("forwarded request failed peer=%s", self.peer, exc_info=error)
        code = error.code if isinstance(error, KafkaError) else KafkaError.code
        self._reply(EnvelopeResponse(error_code=code))

    def close(self, reason: str) -> None:
        self.fail(InvalidRequestError(reason))

    def _reply(self, response: EnvelopeResponse) -> None:
        if not (self._envelope.done or self.is_closing):
            self._envelope.reply(response)


def handle(request: Request[EnvelopeRequest]) -> EnvelopeResponse | None:
    try:
        if not request.allows(Resource.CLUSTER, CLUSTER_NAME):
            raise ClusterAuthorizationError()
        if not request.context.broker.controller.is_active:
            raise NotControllerError()
        client, frame = ForwardedClient(request), bytes(request.body.request_data)
        forwarded = _request_in(request, client, frame)
    except KafkaError as error:
        return EnvelopeResponse(error_code=error.code)
    request.call_if_abandoned(forwarded.abandon)
    if len(frame) >= LARGE_FRAME_BYTES:
        forwarded.start_task(_decode_and_handle(forwarded, frame))
        return None
    try:
        forwarded.decoded(*_decoded(forwarded, frame))
        forwarded.handle(forwarded.api.handle)
    except Exception as error:
        client.fail(error)
    return None


def _request_in(request: Request[EnvelopeRequest], client: ForwardedClient, frame: bytes) -> Request[object]:
    """Return the request in an envelope, without its body. Raise `InvalidRequestError` if it is none of the controller's."""
    key, version, correlation_id = read_fixed_header(frame)
    api = request.context.advertised.forwarded.get(key)
    if api is None or not api.lowest <= version <= api.highest:
        raise InvalidRequestError(f"api key {key} version {version} is not forwarded")
    return Request(client, request.context, api, version, correlation_id, None, None, len(frame), body_is_kept=True)


def _decoded(forwarded: Request[Any], frame: bytes) -> tuple[str | None, Any]:
    return decode_request(forwarded.api.request, forwarded.api.key, forwarded.version, frame)


async def _decode_and_handle(forwarded: Request[object], frame: bytes) -> None:
    decoded = await forwarded.context.run_in_thread(lambda: _decoded(forwarded, frame))
    forwarded.decoded(*decoded)
    if not forwarded.context.broker.controller.is_active:
        forwarded.fail(NotControllerError())
    elif not forwarded.connection.is_closing:
        forwarded.handle(forwarded.api.handle)
