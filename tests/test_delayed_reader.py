"""What waits in `__delayed`, from the files of a lake, as readers and `kafkalake sql` show it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from delayed_lake import SENT_MS, DelayedLake, Waiting, cancel
from written_lake import ABORT, COMMIT, WrittenLake

from kafkalake.dataset import delayed_dataset, topic_dataset
from kafkalake.delayed_journal import Reason
from kafkalake.errors import ConfigurationError, LakeError, UnknownTopicOrPartitionError
from kafkalake.internal_topics import DELAYED_JOURNAL
from kafkalake.reader.delayed import DELAYED_SCHEMA, delayed_records
from kafkalake.spark.metadata_tables import delayed
from kafkalake.spark.planner import metadata
from kafkalake.uuid_text import encode_uuid

pytestmark = pytest.mark.exhaustive  # commits to Delta tables

HOUR_MS = 3_600_000


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[DelayedLake]:
    lake = DelayedLake(tmp_path / "lake")
    yield lake
    lake.close()


def rows(lake: DelayedLake, *columns: str, topic: str | None = None) -> list[tuple[Any, ...]]:
    """The values of the columns of what waits, sorted."""
    reader = delayed_records(lake.path, columns or DELAYED_SCHEMA.names, topic=topic)
    return sorted((tuple(row.values()) for row in reader.read_all().to_pylist()), key=str)


def keys(lake: DelayedLake) -> list[bytes]:
    return [key for (key,) in rows(lake, "key")]


def test_a_record_that_waits_is_shown_with_what_is_known_of_it(lake: DelayedLake) -> None:
    first = Waiting(HOUR_MS, b"k", b"value", b"id-1", [("h", b"x")])
    journal = lake.hand_in(("orders", 1), [first], source=("orders-delay-5s", 1))
    assert delayed_records(lake.path).schema == DELAYED_SCHEMA
    (row,) = delayed_records(lake.path).read_all().to_pylist()
    assert {name: int(row[name].timestamp() * 1000) for name in ("due", "sent")} == {"due": HOUR_MS, "sent": SENT_MS}
    assert {name: value for name, value in row.items() if name not in ("due", "sent")} == {
        "topic": "orders",
        "partition": 1,
        "key": b"k",
        "size": 5,
        "delay_id": "id-1",
        "source": "orders-delay-5s",
        "source_partition": 1,
        "journal_partition": journal[0],
        "journal_offset": journal[1],
    }


def test_what_was_handed_over_carried_or_cancelled_waits_no_longer(lake: DelayedLake) -> None:
    target = ("orders", 0)
    _, first = lake.hand_in(target, [Waiting(HOUR_MS + i, b"%d" % i, b"", b"id-%d" % i) for i in range(6)])
    lake.finish(target, [first + 1, first + 3])
    assert keys(lake) == [b"0", b"2", b"4", b"5"]
    lake.finish(target, [first], Reason.CARRIED)
    lake.hand_in(target, [Waiting(HOUR_MS, b"carried")])
    lake.hand_in(target, [cancel(b"id-4"), Waiting(HOUR_MS, b"again", b"", b"id-4"), cancel(b"no such id")])
    lake.hand_in(("orders", 1), [cancel(b"id-2")])  # another partition
    assert keys(lake) == [b"2", b"5", b"again", b"carried"]


def test_what_waits_may_be_asked_for_by_topic_column_and_time(lake: DelayedLake) -> None:
    lake.hand_in(("orders", 0), [Waiting(HOUR_MS, b"a", None), Waiting(2 * HOUR_MS, b"b", b"12")])
    lake.hand_in(("orders", 0), [Waiting(5_000, b"c", b"1")], source=("orders-delay-5s", 0))
    assert rows(lake, "size", "key") == [(1, b"c"), (2, b"b"), (None, b"a")]
    assert rows(lake, "key", topic="orders-delay-5s") == [(b"c",)]
    assert len(rows(lake, "key", topic="orders")) == 3
    lake.create("clicks", 1)
    assert rows(lake, "key", topic="clicks") == []
    soon = delayed_records(lake.path, ["key"], due_end_us=HOUR_MS * 1000 + 1).read_all()
    assert soon.to_pydict() == {"key": [b"a", b"c"]}


def test_transactions_count_once_they_are_committed(lake: DelayedLake) -> None:
    for producer_id, kind in ((7, ABORT), (8, COMMIT), (9, None)):
        record = Waiting(HOUR_MS, b"%d" % producer_id)
        partition, _ = lake.hand_in(("orders", 0), [record], producer_id=producer_id, is_transactional=True)
        if kind is not None:
            lake.end_transaction(DELAYED_JOURNAL, partition, producer_id, kind)
    assert keys(lake) == [b"8"]


def test_what_waits_for_a_deleted_topic_has_its_id(lake: DelayedLake) -> None:
    lake.hand_in(("orders", 0), [Waiting(HOUR_MS)])
    topic_id = lake.id_of("orders")
    lake.delete_topic("orders")
    assert rows(lake, "topic", "delay_id") == [(encode_uuid(topic_id), None)]
    assert len(rows(lake, "topic", topic=encode_uuid(topic_id))) == 1


def test_a_topic_that_is_not_there_is_the_error_of_its_dataset(lake: DelayedLake) -> None:
    for dataset in (delayed_dataset(lake.path, "typo"), topic_dataset(lake.path, "typo")):
        with pytest.raises(
            UnknownTopicOrPartitionError, match=r"topic 'typo' is not in .*; its topics: orders, orders-del"
        ):
            dataset.to_table()


def test_segments_that_are_sealed_and_published_are_read_too(lake: DelayedLake) -> None:
    for part in range(3):
        partition, first = lake.hand_in(("orders", 0), [Waiting(HOUR_MS + part, b"%d%d" % (part, i)) for i in range(3)])
        lake.finish(("orders", 0), [first])
        lake.roll(DELAYED_JOURNAL, partition)
    lake.publish()
    assert keys(lake) == [b"%d%d" % (part, i) for part in range(3) for i in (1, 2)]


def test_a_lake_without_delayed_delivery_has_nothing_that_waits(tmp_path: Path) -> None:
    lake = WrittenLake(tmp_path / "lake")
    assert delayed_records(lake.path).read_all().num_rows == 0
    lake.close()
    with pytest.raises(LakeError):
        delayed_records(tmp_path / "none")
    with pytest.raises(ConfigurationError, match="there is no column 'du' but topic, "):
        delayed_records(lake.path, ["du"])


def test_duckdb_polars_and_sql_read_what_waits(lake: DelayedLake) -> None:
    lake.hand_in(("orders", 0), [Waiting(HOUR_MS + i, b"%d" % i, b"x" * i, b"id") for i in range(3)])
    waiting = delayed_dataset(f"file://{lake.path}")
    found = duckdb.sql("SELECT topic, sum(size) FROM waiting WHERE due > to_timestamp(3600) GROUP BY topic").fetchall()
    assert found == [("orders", 3)]
    lazy = pl.scan_pyarrow_dataset(waiting).filter(pl.col("key") == b"2").select("delay_id", "partition")
    assert lazy.collect().rows() == [("id", 0)]
    assert pickle.loads(pickle.dumps(waiting)).to_table(columns=["size"]).to_pydict() == {"size": [0, 1, 2]}
    lake.create("clicks", 1)
    assert delayed_dataset(lake.path, "clicks").count_rows() == 0
    assert pa.table(waiting).num_rows == 3


def test_the_catalogue_has_what_waits_as_a_table(lake: DelayedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.hand_in(("orders", 1), [Waiting(HOUR_MS, b"k", None, b"id")], source=("orders-delay-5s", 1))
    about = {"lake": str(lake.path), "table": "delayed"}
    values = [1, HOUR_MS * 1000, "aw==", None, "id", SENT_MS * 1000, "orders-delay-5s", 1]
    for topic in (None, "orders", "orders-delay-5s"):
        (row,) = metadata.rows_of({**about, "topic": topic})
        assert list(row[:-2]) == (["orders"] if topic is None else []) + values
        assert metadata.columns_of({**about, "topic": topic}).count(",") + 1 == len(row)
    with pytest.raises(ConfigurationError, match="the table delayed has no past"):
        metadata.rows_of({**about, "topic": None, "as_of_ms": 1})
    monkeypatch.setattr(delayed, "ROWS_MAX", 0)
    with pytest.raises(LakeError, match="which are too many for this table"):
        metadata.rows_of({**about, "topic": None})
