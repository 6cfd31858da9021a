"""Isolates callbacks, so that one failure does not end a loop over the others.

A flush answers many producers, a clock tick fires many timers, a partition change completes many fetches. An exception in one
callback must affect only that callback. Loops over callbacks therefore use `call_isolated`, which logs the exception with the
loop and lets the loop continue.

`CallbackLoop` lists the loops. Each new loop over callbacks gets an entry of its own.
`tests/server/test_callback_faults.py` injects a fault into each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

from kafkalake.errors import KafkaError

logger = logging.getLogger(__name__)

Done = Callable[[KafkaError | None], None]
"""Callback of work with no result, called once: with None when it is done, else with the error."""


class CallbackLoop(Enum):
    """The loops over callbacks. The value appears in the log."""

    FLUSH_OF_PARTITION = "flush of a partition"
    COMMIT_OF_PARTITION = "high watermark of a partition"
    PRODUCER_ANSWER = "answer to a producer"
    PARTITION_MOVED = "observer of a partition"
    FETCHES_OF_PARTITION = "fetches of a partition"
    WAITING_REQUEST = "request that waits"
    TIMER = "timer"
    PERIODIC_WORK = "periodic work"
    DECISION = "decision of a group or transaction"
    NEXT_STEP = "request that waits for a step of a transaction"
    TURN_OF_PRODUCER = "turn of a transactional producer"
    COORDINATED = "group or transaction"
    SETTINGS_CHANGE = "observer of settings"
    TOPIC_CHANGE = "observer of topics"
    LONG_WORK = "long work of a request"
    SENDING = "sending of answers"
    ABANDONED_REQUEST = "request of a closed connection"
    CONNECTION = "connection"
    READ_AHEAD = "read ahead of a consumer"
    UPKEEP = "upkeep of a partition"


def call_isolated(place: CallbackLoop, action: Callable[..., object], *arguments: object) -> bool:
    """Call `action` and return whether it succeeded. An exception is logged and not propagated."""
    try:
        action(*arguments)
    except Exception:
        logger.exception("callback failed place=%r", place.value)
        return False
    return True
