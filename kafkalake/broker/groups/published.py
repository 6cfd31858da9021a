"""Conversion of committed offsets to rows of Delta's `group_offsets`, and back."""

from __future__ import annotations

import uuid

from kafkalake.broker.groups.records import NO_TIMESTAMP, CommittedOffset
from kafkalake.broker.groups.table import ChangedOffset
from kafkalake.metadata.tables.schemas import GroupOffsetRow


def changed_offset(row: GroupOffsetRow) -> ChangedOffset:
    """Return the offset in a row."""
    assert row.offset is not None
    committed = CommittedOffset(
        row.offset,
        row.leader_epoch,
        row.metadata,
        row.committed_at_ms,
        NO_TIMESTAMP if row.expires_at_ms is None else row.expires_at_ms,
        None if row.topic_id is None else uuid.UUID(row.topic_id),
    )
    return ChangedOffset(row.group, row.topic, row.partition, committed, row.journal_partition, row.journal_offset)


def published_row(changed: ChangedOffset, now_ms: int) -> GroupOffsetRow:
    """Return a change as a row of `group_offsets`. A deleted offset is dated `now_ms`."""
    committed = changed.committed
    return GroupOffsetRow(
        group=changed.group_id,
        topic=changed.topic,
        topic_id=None if committed is None or committed.topic_id is None else str(committed.topic_id),
        partition=changed.partition,
        offset=None if committed is None else committed.offset,
        leader_epoch=-1 if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        committed_at_ms=now_ms if committed is None else committed.committed_at_ms,
        expires_at_ms=None if committed is None or committed.expires_at_ms < 0 else committed.expires_at_ms,
        journal_partition=changed.journal_partition,
        journal_offset=changed.journal_offset,
    )
