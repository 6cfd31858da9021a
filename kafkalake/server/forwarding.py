"""Requests that the controller answers, on a broker that is not the controller, or finds that it is none any more: they are sent
to it in an Envelope (KIP-590).

They are sent again until the controller has answered or `request.timeout.ms` is over. Its response is the client's, and it
authorizes the client's principal. Java's admin client sends several of them to any broker and does not retry NOT_CONTROLLER.
A controller that was lost may have made the change before: as in Kafka, a client may then find its new topic to exist already.

A controller that was stopped still has the topics, brokers and settings of before. If its last look at the control store is too old
to tell whether others have elected another one, it looks for the newest version of the cluster before it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import wraps
from ipaddress import ip_address
from typing import TypeVar, cast

from kafkalake.client.peers import Channel
from kafkalake.client.requests import ENVELOPE
from kafkalake.errors import (
    BrokerUnavailableError,
    InvalidRequestError,
    KafkaError,
    NotControllerError,
    RequestTimedOutError,
    error_for_code,
)
from kafkalake.made_array import MadeArray
from kafkalake.server.context import ServerContext
from kafkalake.server.request import Answer, Request
from kafkalake.server.turns import LARGE_FRAME_BYTES
from kafkalake.wire.messages.codec import SIZE_BYTES, decode_response, encode_request
from kafkalake.wire.messages.membership import EnvelopeRequest
from kafkalake.wire.messages.message import Message, Response

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 0.5

Body = TypeVar("Body", bound=Message)
R = TypeVar("R", bound=Response)
T = TypeVar("T")
Refusal = Callable[[Body, int, str], R]
"""(request, error code, message) -> the response that refuses everything in the request. Each API has its own."""


def of_controller(
    handle: Callable[[Request[Body]], Answer], refusal: Refusal[Body, R]
) -> Callable[[Request[Body]], Answer]:
    """Return a handler that forwards the request, unless this broker is the controller."""

    def handle_or_forward(request: Request[Body]) -> Answer:
        if not request.context.broker.controller.is_active:
            return forward(request, request.body, refusal)
        answer = handle(request)
        if request.connection.is_forwarded or not isinstance(answer, Coroutine):
            return answer
        return _of_newest(request, answer, refusal)

    async def handle_when_known(request: Request[Body]) -> None:
        try:
            await find_out_if_replaced(request.context)
        except KafkaError as error:
            request.reply(refusal(request.body, error.code, str(error)))
            return
        if request.connection.is_forwarded and not request.context.broker.controller.is_active:
            request.connection.fail(NotControllerError())  # nothing is forwarded twice
        elif not request.connection.is_closing:
            request.handle(handle_or_forward)

    @wraps(handle)
    def handle_here_or_forward(request: Request[Body]) -> Answer:
        if not request.context.broker.membership.may_be_replaced:
            return handle_or_forward(request)
        request.start_task(handle_when_known(request))
        return None

    return handle_here_or_forward


async def find_out_if_replaced(context: ServerContext) -> None:
    """Follow the newest version of the cluster if this broker is the controller as far as it knows, and another one may be.

    Raise as `Membership.find_out`.
    """
    membership = context.broker.membership
    if membership.may_be_replaced:
        await membership.find_out()


async def _of_newest(
    request: Request[Body], handling: Coroutine[object, object, Response | None], refusal: Refusal[Body, R]
) -> Response | None:
    """Return the response of the handler, or the controller's if another broker has become it: this one was stopped, or cut off."""
    response = await handling
    if response is None or request.context.broker.controller.is_active or not is_no_controllers(response):
        return response
    return await forward(request, request.body, refusal)


async def forward(request: Request[object], body: Body, refusal: Refusal[Body, R]) -> R:
    """Return the controller's response to `body`, the request's or a part of it, or REQUEST_TIMED_OUT for all of it.

    Raise the error with which the controller refused the envelope.
    """
    return await forward_as(request, request.api.key, request.version, body, refusal)


async def forward_as(request: Request[object], key: int, version: int, body: Body, refusal: Refusal[Body, R]) -> R:
    """Return the controller's response to a request of another API, which a client's request makes necessary, as `forward`."""
    timed_out = RequestTimedOutError()
    refused = refusal(body, timed_out.code, str(timed_out))
    context, loop = request.context, asyncio.get_running_loop()
    envelope = await _off_loop(request, lambda: _envelope(request, key, version, body))
    ends_s = loop.time() + context.broker.config.request_timeout_ms / 1000
    pause_s = FIRST_PAUSE_S
    while True:
        response = await _attempt(request, envelope, ends_s - loop.time(), key, version, type(refused))
        if response is not None:
            return response
        if request.connection.is_closing or loop.time() + pause_s >= ends_s:
            return refused
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


async def _attempt(
    request: Request[object], envelope: EnvelopeRequest, timeout_s: float, key: int, version: int, response: type[R]
) -> R | None:
    """Return the controller's response, or None if there is no controller that answers."""
    controller_id = request.context.broker.cluster.controller_id
    try:
        answer = await request.context.peers.ask(
            controller_id, ENVELOPE, envelope, timeout_ms=int(timeout_s * 1000), channel=Channel.FORWARDED
        )
    except BrokerUnavailableError:
        return None
    if answer.error_code == NotControllerError.code:
        return None
    if answer.error_code or answer.response_data is None:
        raise error_for_code(answer.error_code or InvalidRequestError.code)
    data = answer.response_data

    def read() -> R | None:
        found = decode_response(response, key, version, request.correlation_id, data)
        return None if is_no_controllers(found) else found

    return await _off_loop(request, read)


def _envelope(request: Request[object], key: int, version: int, body: Message) -> EnvelopeRequest:
    frame = encode_request(key, version, request.correlation_id, request.client_id or "", body)
    try:
        address = ip_address(request.connection.address).packed
    except ValueError:
        address = b""
    return EnvelopeRequest(
        request_data=frame[SIZE_BYTES:],
        request_principal=str(request.connection.principal).encode(),
        client_host_address=address,
        listener=request.listener,
    )


def _off_loop(request: Request[object], work: Callable[[], T]) -> Awaitable[T]:
    """Run `work` in a thread if the request is large."""
    if request.size >= LARGE_FRAME_BYTES:
        return request.context.run_in_thread(work)
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    future.set_result(work())
    return future


def is_no_controllers(response: Response) -> bool:
    """Return whether a response is of a broker that was not the controller, and did nothing: all that it has is NOT_CONTROLLER."""
    if getattr(response, "error_code", 0) == NotControllerError.code:
        return True
    codes = set(_codes_of_elements(response))
    return codes == {NotControllerError.code}


def _codes_of_elements(message: Message) -> Iterator[int]:
    for name in message.defaults:
        value = getattr(message, name)
        if isinstance(value, list | MadeArray) and value and isinstance(value[0], Message):
            for each in cast(Sequence[Message], value):
                code = getattr(each, "error_code", None)
                if code is not None:
                    yield int(code)
                yield from _codes_of_elements(each)


def entrance_to_controller(context: ServerContext) -> int:
    """Return the broker that clients are to ask what the controller answers: this one, which lives and forwards it, as in Kafka."""
    return context.broker.broker_id
