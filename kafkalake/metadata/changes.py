"""Row updates of metadata writes. Pure, and shared by all stores.

Each function takes the current rows and returns the new ones, or raises the caller's error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from kafkalake.errors import (
    InconsistentTopicIdError,
    InvalidPartitionsError,
    LeaseHeldError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafkalake.log_starts import raised_log_start
from kafkalake.metadata.tables.schemas import (
    BrokerRow,
    CleaningRow,
    GroupOffsetRow,
    PartitionRow,
    SegmentRow,
    TopicRow,
)
from kafkalake.topic_partition import PartitionId, TopicPartition

GONE = "Dead"
"""The state of a removed transactional id."""


def with_topics_created(topics: Sequence[TopicRow], rows: Sequence[TopicRow]) -> list[TopicRow]:
    known = {topic.topic: topic for topic in topics}
    new = [row for row in rows if known.get(row.topic) != row]  # those that are known: of a commit with unknown outcome
    taken = next((row.topic for row in new if row.topic in known), None)
    if taken is not None:
        raise TopicAlreadyExistsError(f"Topic '{taken}' already exists.")
    return [*topics, *new]


def with_topics_deleted(topics: Sequence[TopicRow], topic_ids: Collection[str]) -> list[TopicRow]:
    deleted = frozenset(topic_ids)
    remaining = [topic for topic in topics if topic.topic_id not in deleted]
    if len(remaining) == len(topics):
        raise UnknownTopicOrPartitionError("No topic has such an id.")
    return remaining


def with_topics_altered(topics: Sequence[TopicRow], rows: Sequence[TopicRow]) -> list[TopicRow]:
    altered = {row.topic: row for row in rows}
    known = {topic.topic: topic for topic in topics if topic.topic in altered}
    for row in rows:
        _check_altered(known.get(row.topic), row)
    return [altered.get(topic.topic, topic) for topic in topics]


def _check_altered(current: TopicRow | None, row: TopicRow) -> None:
    if current is None:
        raise UnknownTopicOrPartitionError(f"Topic '{row.topic}' does not exist.")
    if current.topic_id != row.topic_id:
        raise InconsistentTopicIdError(f"Topic '{row.topic}' was deleted and created again meanwhile.")
    if row.partitions < current.partitions:
        raise InvalidPartitionsError(
            f"Topic '{row.topic}' has {current.partitions} partitions, which cannot become {row.partitions}."
        )


def with_broker_acquired(brokers: Sequence[BrokerRow], row: BrokerRow, replacing: BrokerRow | None) -> list[BrokerRow]:
    current = _broker(brokers, row.broker_id)
    if current is not None and current != replacing:  # including a lease just renewed by its holder
        raise LeaseHeldError(held_sentence(current))
    return [*(broker for broker in brokers if broker is not current), row]


def with_broker_renewed(brokers: Sequence[BrokerRow], row: BrokerRow) -> list[BrokerRow]:
    current = _broker(brokers, row.broker_id)
    if current is None:
        raise LeaseHeldError(f"The lease of broker {row.broker_id} was released or taken over: its row is gone.")
    if current.lease_id != row.lease_id:
        raise LeaseHeldError(held_sentence(current))
    return [row if broker is current else broker for broker in brokers]


def with_broker_released(brokers: Sequence[BrokerRow], broker_id: int, lease_id: str) -> list[BrokerRow]:
    return [broker for broker in brokers if (broker.broker_id, broker.lease_id) != (broker_id, lease_id)]


def held_sentence(holder: BrokerRow) -> str:
    """Return a message for operators that names the holder of a lease."""
    return (
        f"broker {holder.broker_id} of this lake is already run by {holder.host}:{holder.port} "
        f"(pid {holder.pid} on {holder.machine}, since {utc_text(holder.started_at_ms)}; "
        f"its lease expires at {utc_text(holder.lease_expires_at_ms)})"
    )


def utc_text(timestamp_ms: int) -> str:
    """Return a time for operators: UTC, to the second."""
    return f"{datetime.fromtimestamp(timestamp_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def with_cleaning(rows: Sequence[CleaningRow], updates: Iterable[CleaningRow]) -> list[CleaningRow]:
    """Return `rows` with `updates` applied. Offsets and generations never decrease."""
    found = {row.key: row for row in rows}
    for update in updates:
        row = found.get(update.key, update)
        changed = replace(
            update,
            cleaned_offset=max(row.cleaned_offset, update.cleaned_offset),
            generation=max(row.generation, update.generation),
        )
        if replace(changed, updated_at_ms=row.updated_at_ms) != row or update.key not in found:
            found[update.key] = changed
    return sorted(found.values(), key=lambda row: (row.topic, row.partition, row.topic_id))


def current_partitions(rows: Iterable[PartitionRow]) -> list[PartitionRow]:
    """Return one row per partition, by topic and number. Of several leaders' rows the largest leader epoch counts."""
    ordered = sorted(rows, key=lambda row: (row.topic, row.partition, row.leader_epoch, row.leader))
    return list({(row.topic_id, row.partition): row for row in ordered}.values())


def newest_row(published: PartitionRow | None, reported: PartitionRow, stable_max: int | None = None) -> PartitionRow:
    """Return the row to publish for a partition that its leader has reported. No offset goes back.

    A report of an older leader epoch changes nothing. A leader that was elected uncleanly may have lost records: then offsets end
    with its log. stable_max: the last stable offset to publish at most, but for a higher one that is published, or log start.
    """
    start = reported.log_start_offset
    if stable_max is not None and stable_max < reported.last_stable_offset:
        reported = replace(reported, last_stable_offset=max(stable_max, start))
    if published is None:
        return reported
    if reported.leader_epoch < published.leader_epoch:
        return published
    goes_on = (
        start >= published.log_start_offset
        and reported.high_watermark >= published.high_watermark
        and reported.last_stable_offset >= published.last_stable_offset
    )
    if goes_on:
        return reported
    end = reported.log_end_offset
    return replace(
        reported,
        log_start_offset=raised_log_start(start, published.log_start_offset, end),
        high_watermark=min(max(reported.high_watermark, published.high_watermark), end),
        last_stable_offset=min(max(published.last_stable_offset, reported.last_stable_offset), end),
    )


def newest_rows(known: Mapping[PartitionId[str], PartitionRow], reported: Iterable[PartitionRow]) -> list[PartitionRow]:
    """Return the rows to publish instead of those of a table, `known`, see `newest_row`: log starts that a job has raised stay.

    Nothing goes back that was committed since the rows of a publish were read.
    """
    return [
        row if (before := known.get((row.topic_id, row.partition))) is None else newest_row(before, row)
        for row in reported
    ]


def with_log_starts(rows: Sequence[PartitionRow], log_starts: Mapping[TopicPartition, int]) -> list[PartitionRow]:
    """Return the rows with log starts raised to those given by (topic id, partition), and other offsets at least as high."""
    raised = []
    for row in rows:
        start = log_starts.get((row.topic_id, row.partition), 0)
        if start > row.log_start_offset:
            row = replace(
                row,
                log_start_offset=start,
                high_watermark=max(row.high_watermark, start),
                last_stable_offset=max(row.last_stable_offset, start),
                log_end_offset=max(row.log_end_offset, start),
            )
        raised.append(row)
    return raised


def segments_of(partitions: Iterable[PartitionRow], segments: Iterable[SegmentRow]) -> list[SegmentRow]:
    """Return the segments of these partitions, matched by topic id. Segments of deleted topics are left out."""
    wanted = {(row.topic_id, row.partition) for row in partitions}
    return [row for row in segments if (row.topic_id, row.partition) in wanted]


def unpublished(rows: Iterable[GroupOffsetRow], positions: Mapping[int, int]) -> list[GroupOffsetRow]:
    """Return the rows at or after the published positions of their journal partitions."""
    return [row for row in rows if row.journal_offset >= positions.get(row.journal_partition, 0)]


def newest_offsets(rows: Iterable[GroupOffsetRow]) -> list[GroupOffsetRow]:
    """Return the newest row of each group, topic and partition. Removed offsets are left out."""
    ordered = sorted(rows, key=lambda row: (row.journal_offset, row.committed_at_ms))
    newest = {(row.group, row.topic, row.partition): row for row in ordered}
    return sorted(
        (row for row in newest.values() if row.offset is not None),
        key=lambda row: (row.group, row.topic, row.partition),
    )


def _broker(brokers: Sequence[BrokerRow], broker_id: int) -> BrokerRow | None:
    return next((broker for broker in brokers if broker.broker_id == broker_id), None)
