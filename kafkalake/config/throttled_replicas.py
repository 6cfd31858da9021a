"""The replicas that a topic's settings throttle: `0:1,2:1` are those of broker 1 of the partitions 0 and 2, `*` all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from kafkalake.errors import ConfigurationError

ALL_REPLICAS = "*"
_REPLICA = re.compile(r"([0-9]+):([0-9]+)", re.ASCII)


@lru_cache(maxsize=1_024)
def throttled_partitions(text: str, broker_id: int) -> frozenset[int] | None:
    """Return the partitions of which the replica on a broker is throttled, None: all. `text` is a value that was checked."""
    if text.strip() == ALL_REPLICAS:
        return None
    replicas = (_REPLICA.fullmatch(each.strip()) for each in text.split(","))
    return frozenset(int(each[1]) for each in replicas if each is not None and int(each[2]) == broker_id)


def replicas_check(name: str) -> Callable[[str], None]:
    """Return the check of the setting `name`. It raises `ConfigurationError` for a text that is no list of replicas."""

    def check(text: str) -> None:
        members = [each.strip() for each in text.split(",")]
        if "".join(members) != ALL_REPLICAS and not all(not each or _REPLICA.fullmatch(each) for each in members):
            raise ConfigurationError(
                f"{name} must be the literal '*' or a list of replicas in the following format: "
                "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
            )

    return check
