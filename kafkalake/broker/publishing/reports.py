"""What a broker reports to the controller for the lake's tables, as plain values, and the questions that the controller asks.

The controller asks each broker, in this order: whether there is anything (`poll`, which also acknowledges), to hold new waves of
markers (`hold`, only if markers were written since the last publish), for what has changed (`partitions`, `journal`), and to go on
(`release`). A report has everything that was not acknowledged, so the controller keeps nothing: a report, a commit or a controller
that fails costs a repetition. What is repeated is published once, by its content and its position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

from kafkalake.broker.transactions.cut import EndedTransaction, JournalPosition
from kafkalake.metadata.tables.schemas import GroupOffsetRow, PartitionRow, SegmentKey, SegmentRow, TransactionRow
from kafkalake.topic_partition import TopicPartition


class Kind(IntEnum):
    """The parts of a report that are acknowledged and published by themselves."""

    PARTITIONS = 0
    GROUP_OFFSETS = 1
    TRANSACTIONS = 2


JournalRow = GroupOffsetRow | TransactionRow


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The sequences of the last reports that are published.

    kept: the partitions whose last stable offset was not published with the others. hidden: the transactions reported by the
    broker that are not shown, None if that is not known.
    """

    published: Mapping[Kind, int] = field(default_factory=dict)
    kept: frozenset[TopicPartition] = frozenset()
    hidden: frozenset[JournalPosition] | None = None


class Status(NamedTuple):
    """changed: what there is to report. is_marked: markers were written that are not published."""

    changed: frozenset[Kind]
    is_marked: bool


class HeldWaves(NamedTuple):
    """The waves of markers of a broker that begins none.

    coordinated: the partitions of the transactions' journal that it coordinates. transactions: those that have markers and are not
    published.
    """

    coordinated: frozenset[int]
    transactions: Sequence[EndedTransaction]


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """The changes of the partitions that a broker leads, since the last acknowledgement.

    marked: partitions with markers that are not published. is_swapped: jobs have rewritten segments. image_version: that of the
    cluster's image by which the broker leads partitions.
    """

    broker_id: int
    sequence: int
    rows: Sequence[PartitionRow] = ()
    sealed: Sequence[SegmentRow] = ()
    removed: Sequence[SegmentKey] = ()
    marked: frozenset[TopicPartition] = frozenset()
    is_swapped: bool = False
    image_version: int = 0


@dataclass(frozen=True, slots=True)
class JournalReport:
    """The changed rows of a coordinator, and the positions in its journal up to which they are complete."""

    sequence: int
    rows: Sequence[JournalRow] = ()
    positions: Mapping[int, int] = field(default_factory=dict)


class ReportingBroker(Protocol):
    """A broker, as the controller asks it. Each question raises `NotControllerError` if the controller's epoch is an older one.

    A remote broker's may also raise `BrokerUnavailableError`.
    """

    async def poll(self, controller_epoch: int, acknowledged: Acknowledgement) -> Status:
        """Take an acknowledgement, and return what there is to report."""
        ...

    async def quieten(self, controller_epoch: int) -> bool:
        """Begin no transaction until `release`, but for a short time at most. Return True once none is open, False if one stays."""
        ...

    async def hold(self, controller_epoch: int) -> HeldWaves:
        """Begin no wave of markers until `release`, but for a short time at most. Return when those under way have ended."""
        ...

    async def partitions(self, controller_epoch: int) -> PartitionReport:
        """Return the report of partitions, as of now."""
        ...

    async def journal(self, controller_epoch: int, kind: Kind) -> JournalReport:
        """Return the report of one coordinator, as of now."""
        ...

    async def release(self, controller_epoch: int) -> bool:
        """End the hold, and return whether no wave has begun since."""
        ...
