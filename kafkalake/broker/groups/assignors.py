"""The server-side assignors of KIP-848 by name, with topics by their ids."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import TypeAlias

from kafkalake import assignment
from kafkalake.assignment import assign_range, assign_uniform
from kafkalake.topic_partition import PartitionId

__all__ = ["ASSIGNORS", "NOTHING", "Assignment", "Assignor", "Subscriber", "assign_range", "assign_uniform"]

Assignment: TypeAlias = frozenset[PartitionId[uuid.UUID]]
NOTHING: Assignment = frozenset()
Subscriber: TypeAlias = assignment.Subscriber[uuid.UUID]

Assignor: TypeAlias = Callable[[Mapping[str, Subscriber], Mapping[uuid.UUID, int]], dict[str, Assignment]]
"""(member id -> subscriber, topic id -> number of partitions) -> member id -> partitions. Unknown topics have none."""

ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
