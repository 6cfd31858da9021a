"""Decisions of a transaction beyond those of all automata: markers, and fault points for tests."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from kafkalake.broker.coordination.decisions import Decision, ErrorClass
from kafkalake.offset_range import OffsetRange
from kafkalake.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a producer's transaction, as written to each of its partitions."""

    producer_id: int
    epoch: int
    committed: bool


MarkerResult: TypeAlias = "ErrorClass | OffsetRange | None"
"""The result of a marker: its error, or the records of the transaction that it has ended, None if they are not known."""


def error_of(result: MarkerResult) -> ErrorClass | None:
    """Return the error of a marker."""
    return None if isinstance(result, OffsetRange) else result


@dataclass(frozen=True, slots=True)
class WriteMarker:
    """Decision: write `marker` to the partition, then call the automaton's `marker_written(partition, marker, error)`."""

    partition: TopicPartition
    marker: Marker


class FaultPoint(Enum):
    """Points for crash tests between the steps of the two-phase commit. The values name them in `KAFKALAKE_KILL_AT`."""

    BEFORE_PREPARE = "transaction-before-prepare"
    PREPARED = "transaction-prepared"
    BEFORE_MARKER = "transaction-before-marker"
    MARKER_WRITTEN = "transaction-marker-written"
    ALL_MARKERS_WRITTEN = "transaction-all-markers-written"
    COMPLETED = "transaction-completed"


@dataclass(frozen=True, slots=True)
class Reach:
    """Decision: report that the point is reached, before the decisions that follow it are carried out."""

    point: FaultPoint


TransactionDecision: TypeAlias = Decision | WriteMarker | Reach
