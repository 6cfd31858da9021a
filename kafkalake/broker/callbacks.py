"""One callback that fails never ends the loop over all the others.

A flush answers many producers, a tick of the clock rings many timers, a change of a partition wakes many fetches. Each of these
calls something that belongs to somebody else, and an exception in it must cost only that one. So everything that calls
callbacks one after the other calls them through `call_isolated`: what fails is logged with its place, and the loop goes on.

`Place` lists the loops: a new loop over callbacks is a new place. `tests/server/test_callback_faults.py` injects a fault into each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum
from typing import Any

logger = logging.getLogger(__name__)


class Place(Enum):
    """The loops over callbacks; the value is what the log shows."""

    FLUSH_OF_PARTITION = "flush of a partition"
    COMMIT_OF_PARTITION = "high watermark of a partition"
    PRODUCER_ANSWER = "answer to a producer"
    PARTITION_MOVED = "observer of a partition"
    FETCHES_OF_PARTITION = "fetches of a partition"
    WAITING_REQUEST = "request that waits"
    TIMER = "timer"
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
    UPKEEP = "upkeep of a partition"


def call_isolated(place: Place, action: Callable[..., object], *arguments: Any) -> bool:
    """Call `action`; return whether it ended without an exception. An exception goes to the log and no further."""
    try:
        action(*arguments)
    except Exception:
        logger.exception("callback failed place=%r", place.value)
        return False
    return True
