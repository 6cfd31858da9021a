"""Requests that a coordinator answers from what it knows, with nothing written, on a broker that may have been deposed.

A broker that was cut off or stopped still has the groups and transactions that another one coordinates by now. Whatever it appends
is not acknowledged by its followers, but a committed offset would be an old one, and a second transaction would be taken for the
first and be called ended. So it looks for the newest version of the cluster before it answers. One that cannot read it closes the
connection, and the client looks for the coordinator elsewhere. Apache Kafka answers.

JoinGroup and SyncGroup are not among them: a member's heartbeat tells it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from kafkalake.errors import KafkaLakeError
from kafkalake.server.request import Answer, Request
from kafkalake.wire.messages.message import Message

logger = logging.getLogger(__name__)

Body = TypeVar("Body", bound=Message)


def of_coordinator(handle: Callable[[Request[Body]], Answer]) -> Callable[[Request[Body]], Answer]:
    """Return a handler that first finds out whether this broker still is the coordinator, if that is not known."""

    @wraps(handle)
    def handle_when_known(request: Request[Body]) -> Answer:
        if not request.context.broker.membership.may_be_deposed:
            return handle(request)
        request.start_task(_find_out(request, handle))
        return None

    return handle_when_known


async def _find_out(request: Request[Body], handle: Callable[[Request[Body]], Answer]) -> None:
    try:
        await request.context.broker.membership.find_out()
    except KafkaLakeError as error:
        logger.warning("not known whether this broker is the coordinator api=%s error=%s", request.api.name, error)
        request.connection.close("another broker may be the coordinator")
        return
    if not request.connection.is_closing:
        request.handle(handle)
