"""Calls of what an application gave to a client, amid the client's own work: whatever they raise, that goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import NoReturn

from kafkalake.errors import as_value

logger = logging.getLogger(__name__)


def call_application(call: Callable[[], object], name: str) -> None:
    """Call, and log what is raised. name: of what is called, for the log.

    Deliveries that others wait for are announced behind it, so it is caught also if it is no `Exception`: `sys.exit`, or the
    result of a cancelled task. What is to end the process is raised by the event loop, if one runs here, in its next turn.
    """
    try:
        call()
    except Exception:
        logger.exception("%s failed", name)
    except BaseException as error:
        logger.exception("%s failed", name)
        if isinstance(error, KeyboardInterrupt | SystemExit):
            _raise_soon(as_value(error))


def _raise_soon(error: BaseException) -> None:
    def again() -> NoReturn:
        raise error

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # in a thread of the client's own, whose end would be no news to the process
        return
    loop.call_soon(again)
