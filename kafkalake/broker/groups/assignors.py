"""The server-side assignors of KIP-848 by name, with topics by their ids."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import TypeAlias

from kafkalake import assignment
from kafkalake.assignment import range_in_steps, uniform_in_steps
from kafkalake.run_blocking import Steps
from kafkalake.topic_partition import PartitionId

Assignment: TypeAlias = frozenset[PartitionId[uuid.UUID]]
NOTHING: Assignment = frozenset()
Subscriber: TypeAlias = assignment.Subscriber[uuid.UUID]

Assignor: TypeAlias = Callable[[Mapping[str, Subscriber], Mapping[uuid.UUID, int]], Steps[dict[str, Assignment]]]
"""(member id -> subscriber, topic id -> number of partitions) -> member id -> partitions, in steps. Unknown topics have none."""

ASSIGNORS: dict[str, Assignor] = {"uniform": uniform_in_steps, "range": range_in_steps}
