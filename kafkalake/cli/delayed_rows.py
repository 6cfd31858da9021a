"""What `kafkalake delayed` shows of the records that wait, and how it cancels them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalake.cli.record_output import as_text
from kafkalake.delayed_headers import DELAY_ID
from kafkalake.reader.delayed import DELAYED_SCHEMA
from kafkalake.reader.predicate import INT64_MAX

if TYPE_CHECKING:
    from kafkalake.cli.delayed_source import DelayedSource
    from kafkalake.client.administration.blocking import Admin

ORDER = [("due", "ascending"), ("journal_partition", "ascending"), ("journal_offset", "ascending")]
OTHER_IDS_MAX = 10_000
"""Ids to suggest one from."""

Row = dict[str, Any]


def soonest(records: pa.RecordBatchReader, count: int) -> tuple[list[Row], int]:
    """Return the first `count` records by due time, and the number of all."""
    kept = records.schema.empty_table()
    total = 0
    for batch in records:
        total += batch.num_rows
        kept = pa.concat_tables([kept, pa.Table.from_batches([batch])])
        if kept.num_rows > 4 * count:
            kept = _first(kept, count)
    return _first(kept, count).to_pylist(), total


def _first(records: pa.Table, count: int) -> pa.Table:
    return records.take(pc.sort_indices(records, ORDER)[:count])


def with_id(source: DelayedSource, topic: str, delay_id: str) -> tuple[list[Row], list[str]]:
    """Return the records of a topic with an id by due time, and some of the other ids.

    delay_id: as it is listed, or as it was sent, which is not UTF-8 perhaps.
    """
    text = os.fsencode(delay_id).decode(errors="backslashreplace")
    found, others = [], dict[str, None]()
    for batch in source.waiting((*DELAYED_SCHEMA.names, "id"), topic=topic, due_end_us=INT64_MAX):
        ids = batch.column("delay_id")
        found.append(batch.filter(pc.equal(ids, text)))
        if len(others) < OTHER_IDS_MAX:
            others |= dict.fromkeys(ids.drop_null().to_pylist())
    if not found:
        return [], list(others)
    return pa.Table.from_batches(found).sort_by(ORDER).to_pylist(), list(others)


def summary(source: DelayedSource, topic: str | None, now_us: int) -> list[tuple[str, int, int, int, int, int, int]]:
    """Return a row for each target: topic, partition, waiting and overdue records, bytes of values, next and last due time (ms)."""
    sums: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0, INT64_MAX, 0])
    for batch in source.waiting(["topic", "partition", "due", "size"], topic=topic, due_end_us=INT64_MAX):
        due = batch.column("due").view(pa.int64())
        table = pa.table(
            {
                "topic": batch.column("topic"),
                "partition": batch.column("partition"),
                "due": due,
                "size": pc.fill_null(batch.column("size"), 0),
                "is_overdue": pa.array((due.to_numpy() <= now_us).astype(np.int64)),
            }
        )
        grouped = table.group_by(["topic", "partition"]).aggregate(
            [("due", "count"), ("is_overdue", "sum"), ("size", "sum"), ("due", "min"), ("due", "max")]
        )
        for row in grouped.to_pylist():
            of = sums[row["topic"], row["partition"]]
            of[0] += row["due_count"]
            of[1] += row["is_overdue_sum"]
            of[2] += row["size_sum"]
            of[3] = min(of[3], row["due_min"])
            of[4] = max(of[4], row["due_max"])
    return [
        (name, partition, waiting, overdue, size, first // 1000, last // 1000)
        for (name, partition), (waiting, overdue, size, first, last) in sorted(sums.items())
    ]


def as_json(row: Mapping[str, Any]) -> dict[str, object]:
    """Return a record for JSON."""
    return {
        "topic": row["topic"],
        "partition": row["partition"],
        "dueMs": round(row["due"].timestamp() * 1000),
        "key": as_text(row["key"]),
        "size": row["size"],
        "delayId": row["delay_id"],
        "sentMs": round(row["sent"].timestamp() * 1000),
        "source": row["source"],
        "sourcePartition": row["source_partition"],
        "journalPartition": row["journal_partition"],
        "journalOffset": row["journal_offset"],
    }


def send_cancel(admin: Admin, bootstrap_server: str, topic: str, partition: int, delay_id: bytes) -> None:
    """Cancel what waits with an id and was sent to a partition. Raise `Failure`, `KafkaError` or `BrokerUnavailableError`.

    The cancel has a key, as compacted topics take no record without.
    """
    from kafkalake.cli.options import CLIENT_ID, require_delayed_delivery
    from kafkalake.client.producing.producer import Producer

    require_delayed_delivery(admin, topic)
    with Producer(bootstrap_servers=bootstrap_server, client_id=CLIENT_ID, allow_auto_create_topics=False) as producer:
        producer.send(topic, key=delay_id, partition=partition, headers=[(DELAY_ID, delay_id)]).get()
