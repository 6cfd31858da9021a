"""Rows for the tests of the metadata, with what a test does not care about filled in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kafkalake.metadata.store import PublishedState
from kafkalake.metadata.tables.schemas import BrokerRow, PartitionRow, SegmentKey, SegmentRow, TopicRow

NOW_MS = 1_700_000_000_000


def topic_row(name: str = "clicks", *, partitions: int = 1, topic_id: str = "", **config: str) -> TopicRow:
    return TopicRow(name, topic_id or f"id-{name}", partitions, config, NOW_MS)


def broker_row(
    broker_id: int = 0,
    *,
    lease_id: str = "lease",
    machine: str = "here",
    expires: int = NOW_MS,
    boot_id: str | None = None,
    lease_duration: int | None = None,
) -> BrokerRow:
    return BrokerRow(
        broker_id=broker_id,
        host="127.0.0.1",
        port=9092,
        machine=machine,
        log_dir=f"logs/{broker_id}",
        lease_id=lease_id,
        pid=4711,
        started_at_ms=NOW_MS,
        lease_expires_at_ms=expires,
        boot_id=boot_id,
        lease_duration=lease_duration,
    )


def partition_row(topic: str = "clicks", partition: int = 0, *, leader: int = 0, end: int = 0) -> PartitionRow:
    return PartitionRow(
        topic=topic,
        topic_id=f"id-{topic}",
        partition=partition,
        leader=leader,
        leader_epoch=0,
        replicas=(leader,),
        isr=(leader,),
        log_start_offset=0,
        high_watermark=end,
        last_stable_offset=end,
        log_end_offset=end,
    )


def segment_row(
    topic: str = "clicks",
    partition: int = 0,
    *,
    base: int = 0,
    size: int = 100,
    generation: int = 0,
    broker: int = 0,
    timestamps: tuple[int | None, int | None] = (NOW_MS, NOW_MS + 999),
) -> SegmentRow:
    suffix = f".{generation}" if generation else ""
    return SegmentRow(
        topic=topic,
        topic_id=f"id-{topic}",
        partition=partition,
        base_offset=base,
        next_offset=base + size,
        generation=generation,
        path=f"logs/{broker}/{topic}-{partition}/{base:020}{suffix}.arrow",
        records=size,
        bytes=size * 100,
        min_timestamp_ms=timestamps[0],
        max_timestamp_ms=timestamps[1],
        sealed_at_ms=NOW_MS + 1_000,
        broker_id=broker,
    )


def published(
    version: int,
    partitions: Sequence[PartitionRow] = (),
    sealed: Sequence[SegmentRow] = (),
    removed: Sequence[SegmentKey] = (),
    *,
    leader: int = 0,
    app_id: str = "",
) -> PublishedState:
    return PublishedState(
        leaders=(leader,),
        partitions=[replace(row, leader=leader) for row in partitions],
        sealed=sealed,
        removed=removed,
        app_id=app_id or f"kafkalake-broker-{leader}",
        version=version,
        published_at_ms=NOW_MS + version,
    )
