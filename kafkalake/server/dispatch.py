"""From a frame to the handler of its API: header, version, body, `Request`.

A large request is decoded in a thread; all others, and the batches of a Produce request, where they were received.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalake.errors import InvalidRequestError
from kafkalake.server.handlers import api_versions
from kafkalake.server.registry import API_VERSIONS_KEY, APIS, APPENDS, OF_CONTROLLERS, Api
from kafkalake.server.request import Request
from kafkalake.server.turns import LARGE_FRAME_BYTES, TRIMMED_FRAME_BYTES
from kafkalake.wire.messages.codec import decode_request, read_client_id, read_fixed_header
from kafkalake.wire.produce_request import API_KEY as PRODUCE_KEY
from kafkalake.wire.produce_request import FEW_PARTITIONS_MAX, ManyPartitionsError, read_produce
from kafkalake.wire.staged_append import API_KEY as APPEND_STAGED_KEY
from kafkalake.wire.staged_append import body_of_request

if TYPE_CHECKING:
    from kafkalake.server.connection import Connection
    from kafkalake.server.context import ServerContext


def dispatch(connection: Connection, context: ServerContext, frame: memoryview, *, kept: bool) -> None:
    """Decode a request and start its handler. `kept`: the frame's memory stays as it is.

    Raise `InvalidRequestError` if it is malformed, not supported, or refused by the handler.
    """
    api_key, version, correlation_id = read_fixed_header(frame)
    api = APIS.get(api_key)
    if api is None:
        raise InvalidRequestError(f"api key {api_key} is not supported")
    if connection.listener.is_for_controllers and api_key not in OF_CONTROLLERS:
        raise InvalidRequestError(f"{api.name} is not supported at a listener of controllers")
    if not api.lowest <= version <= api.highest:
        if api_key != API_VERSIONS_KEY:
            raise InvalidRequestError(f"{api.name} version {version} is not supported")
        request: Request[object] = Request(
            connection, context, api, 0, correlation_id, None, None, len(frame), body_is_kept=kept
        )
        connection.begin(request)
        request.reply(api_versions.unsupported_version(request))
        return
    if api.is_controllers and not kept:
        frame, kept = memoryview(bytes(frame)), True  # it is handled, or forwarded, by a task
    is_large = len(frame) >= LARGE_FRAME_BYTES and api_key not in (PRODUCE_KEY, APPEND_STAGED_KEY)
    client_id: str | None = None
    body: object = None
    if not is_large:
        try:
            if api_key == PRODUCE_KEY:
                client_id, body = connection.produce_patterns.read(frame, version, FEW_PARTITIONS_MAX)
            else:
                client_id, body = _read(frame, api, version)
        except ManyPartitionsError:
            is_large = True
    request = Request(
        connection,
        context,
        api,
        version,
        correlation_id,
        client_id,
        body,
        len(frame),
        body_is_kept=kept or is_large,
    )
    if api_key not in APPENDS:
        context.broker.end_burst()  # make earlier produces of other connections visible to this request
    connection.begin(request)
    if is_large:
        request.start_task(_decode_and_handle(request, api, frame if kept else memoryview(bytes(frame))))
    elif context.quotas.are_set:
        began_ns = context.clock.monotonic_ns()
        request.handle(api.handle)
        duration_ns = context.clock.monotonic_ns() - began_ns
        context.quotas.spent(connection.principal.name, client_id or "", duration_ns)
    else:
        request.handle(api.handle)


async def _decode_and_handle(request: Request[object], api: Api, frame: memoryview) -> None:
    """Decode in a thread, then start the handler, for a request whose decoding would block the event loop."""
    decoded = await request.context.run_in_thread(lambda: _read(frame, api, request.version))
    request.decoded(*decoded)
    if len(frame) >= TRIMMED_FRAME_BYTES:
        request.context.heap.trim_after(lambda: request.done or request.connection.is_closing)
    if not request.connection.is_closing:
        request.handle(api.handle)


def _read(frame: memoryview, api: Api, version: int) -> tuple[str | None, Any]:
    """Return client id and body of a request. Raise `InvalidRequestError`."""
    if api.key == APPEND_STAGED_KEY:
        return None, body_of_request(frame)
    if api.key == PRODUCE_KEY:
        client_id, position = read_client_id(frame, PRODUCE_KEY, version)
        return client_id, read_produce(frame, position, version)
    return decode_request(api.request, api.key, version, frame)
