"""The values of `broker.publishing.reports` as messages, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from kafkalake.broker.publishing.report_rows import (
    RowPart,
    decode_journal,
    decode_partitions,
    encode_journal,
    encode_partitions,
)
from kafkalake.broker.publishing.reports import HeldWaves, JournalReport, Kind, PartitionReport
from kafkalake.broker.transactions.cut import EndedTransaction
from kafkalake.errors import BrokerUnavailableError
from kafkalake.offset_range import OffsetRange
from kafkalake.topic_partition import TopicPartition
from kafkalake.wire.messages.reports import ReportChangesResponse, ReportedTopic


class Step(IntEnum):
    """The questions of `ReportingBroker`, by number."""

    POLL = 0
    HOLD = 1
    REPORT = 2
    RELEASE = 3
    QUIETEN = 4


def topics_of(partitions: Iterable[TopicPartition]) -> list[ReportedTopic]:
    """Return partitions by topic."""
    found: dict[str, list[int]] = {}
    for name, index in partitions:
        found.setdefault(name, []).append(index)
    return [ReportedTopic(name=name, partitions=indexes) for name, indexes in found.items()]


def partitions_of(topics: Iterable[ReportedTopic]) -> frozenset[TopicPartition]:
    """Return the partitions of these topics."""
    return frozenset((topic.name, index) for topic in topics for index in topic.partitions)


def held_response(held: HeldWaves) -> ReportChangesResponse:
    """Return held waves as a response: of each range the numbers of its transaction, topic and partition, and two offsets."""
    topics: dict[str, int] = {}
    numbers: list[int] = []
    offsets: list[int] = []
    for number, transaction in enumerate(held.transactions):
        for (topic, partition), of_partition in transaction.ranges.items():
            numbers += (number, topics.setdefault(topic, len(topics)), partition)
            offsets += of_partition
    return ReportChangesResponse(
        coordinated=sorted(held.coordinated),
        transaction_partitions=[each.position[0] for each in held.transactions],
        transaction_positions=[each.position[1] for each in held.transactions],
        range_topics=[*topics],
        range_numbers=numbers,
        range_offsets=offsets,
    )


def ended_transactions(answer: ReportChangesResponse) -> list[EndedTransaction]:
    """Return the transactions of held waves. Raise `BrokerUnavailableError` if they are malformed."""
    numbers, offsets, topics = iter(answer.range_numbers), iter(answer.range_offsets), answer.range_topics
    ranges: list[dict[TopicPartition, OffsetRange]] = [{} for _ in answer.transaction_positions]
    try:
        positions = list(zip(answer.transaction_partitions, answer.transaction_positions, strict=True))
        triples = zip(numbers, numbers, numbers, strict=True)
        for (number, topic, partition), first, last in zip(triples, offsets, offsets, strict=True):
            ranges[number][topics[topic], partition] = OffsetRange(first, last)
    except (ValueError, IndexError) as error:
        raise BrokerUnavailableError(f"a report of transactions is malformed: {error}") from error
    return list(map(EndedTransaction, positions, ranges))


def partition_parts(report: PartitionReport) -> list[ReportChangesResponse]:
    """Return a report as responses. Made in a thread: ten thousand rows take tens of milliseconds."""
    common = {
        "marked": topics_of(report.marked),
        "is_swapped": report.is_swapped,
        "sequence": report.sequence,
        "image_version": report.image_version,
    }
    return _responses(encode_partitions(report), common)


def journal_parts(report: JournalReport, kind: Kind) -> list[ReportChangesResponse]:
    """Return a coordinator's report as responses. Made in a thread."""
    positions = report.positions
    common = {"journal_partitions": [*positions], "journal_positions": [*positions.values()]}
    return _responses(encode_journal(report, kind), {"sequence": report.sequence, **common})


def partition_report(broker_id: int, parts: Sequence[ReportChangesResponse]) -> PartitionReport:
    """Return the report in responses. Called in a thread. Raise `BrokerUnavailableError` if they are malformed."""
    first = parts[0]
    report = PartitionReport(
        broker_id,
        first.sequence,
        marked=partitions_of(first.marked),
        is_swapped=first.is_swapped,
        image_version=first.image_version,
    )
    return decode_partitions(report, [part.rows for part in parts])


def journal_report(kind: Kind, parts: Sequence[ReportChangesResponse]) -> JournalReport:
    """Return the coordinator's report in responses. Called in a thread. Raise `BrokerUnavailableError` if they are malformed."""
    first = parts[0]
    if len(first.journal_partitions) != len(first.journal_positions):
        raise BrokerUnavailableError("a report has not one position for each partition of a journal")
    positions = dict(zip(first.journal_partitions, first.journal_positions, strict=True))
    return decode_journal(JournalReport(first.sequence, positions=positions), kind, [part.rows for part in parts])


def _responses(parts: Sequence[RowPart], common: Mapping[str, Any]) -> list[ReportChangesResponse]:
    return [ReportChangesResponse(parts=len(parts), rows=part, **common) for part in parts]
