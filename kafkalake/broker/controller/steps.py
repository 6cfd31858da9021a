"""The named steps of the controller's changes, at which tests kill a broker (`transactions.fault_points`)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum


class ControllerStep(Enum):
    """A step of a registration, of an election, or of a topic's creation, change or deletion. The last word says what is done."""

    CLAIM_DECIDED = "claim-decided"
    CLAIM_COMMITTED = "claim-committed"
    VERSION_DECIDED = "version-decided"
    VERSION_COMMITTED = "version-committed"
    VERSION_FOLLOWED = "version-followed"
    ROWS_ADDED = "topic-rows-added"
    ROWS_DELETED = "topic-rows-deleted"
    ROWS_GROWN = "topic-rows-grown"
    ROWS_ALTERED = "topic-rows-altered"
    BROKER_REGISTERED = "broker-registered"


Reach = Callable[[Enum], None]
"""To be called at each step."""
