"""What a transaction decides beyond what all automata of coordinators do: markers, and points at which tests stop the world."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kafkalake.broker.coordination.decisions import Decision
from kafkalake.broker.transactions.records import PartitionKey


@dataclass(frozen=True, slots=True)
class Marker:
    """How a producer's transaction ends, as every partition of it is told."""

    producer_id: int
    epoch: int
    committed: bool


@dataclass(frozen=True, slots=True)
class WriteMarker:
    """Write `marker` to the partition, then tell the automaton `marker_written(partition, marker, error)`."""

    partition: PartitionKey
    marker: Marker


class FaultPoint(Enum):
    """Where a crash is worth a test, between the steps of the two-phase commit. Values are the names to ask for them by."""

    BEFORE_PREPARE = "transaction-before-prepare"
    PREPARED = "transaction-prepared"
    BEFORE_MARKER = "transaction-before-marker"
    MARKER_WRITTEN = "transaction-marker-written"
    ALL_MARKERS_WRITTEN = "transaction-all-markers-written"
    COMPLETED = "transaction-completed"


@dataclass(frozen=True, slots=True)
class Reach:
    """The point has been reached; what follows it in the list of decisions has not been done yet."""

    point: FaultPoint


TransactionDecision: TypeAlias = Decision | WriteMarker | Reach
