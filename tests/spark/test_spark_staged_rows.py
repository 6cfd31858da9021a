"""Rows of a task become batches: each in the partition where Java's producer puts it, in order, none too large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from record_batches import arrow_rows

from kafkalake.errors import ConfigurationError, KafkaLakeError
from kafkalake.spark.sink.staged_rows import RowStager, first_partition
from kafkalake.spark.sink.write_target import BATCH_BYTES, BATCH_OVERHEAD_BYTES, Target, check_columns, check_fields
from kafkalake.storage.staged_file import StagedReader, StagedWriter


def target(name: str = "clicks", **changes: Any) -> Target:
    values = {"number": 0, "partitions": 4, "message_bytes_max": 1_048_588, "key_required": False} | changes
    return Target(name, **values)


def staged(
    path: Path, batches: list[pa.RecordBatch], *targets: Target, topic: str | None = "clicks", first: int = 0
) -> dict[tuple[int, int], list[list[tuple[Any, ...]]]]:
    """(topic, partition) -> its batches of (timestamp, key, value, headers)."""
    path.unlink(missing_ok=True)
    with StagedWriter(str(path)) as writer:
        stager = RowStager(writer, {each.name: each for each in targets or (target(),)}, topic, 1 << 40, first)
        for batch in batches:
            stager.add(batch)
        stager.finish()
    reader = StagedReader(str(path), writer.bytes, 8 << 20)
    found: dict[tuple[int, int], list[list[tuple[Any, ...]]]] = {}
    while chunk := reader.read():
        for each in chunk:
            rows = [row for _, row in arrow_rows(each.batch.to_arrow())]
            found.setdefault((each.topic, each.partition), []).append(rows)
    reader.close()
    assert found.keys() == stager.used
    return found


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


@examples(50)
@given(
    keys=st.lists(st.one_of(st.none(), st.binary(max_size=12)), min_size=1, max_size=40),
    partitions=st.integers(1, 9),
    cuts=st.integers(1, 7),
)
def test_keys_go_where_javas_producer_puts_them_in_order(
    keys: list[bytes | None], partitions: int, cuts: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    values = [b"%d" % number for number in range(len(keys))]
    table = rows(key=pa.array(keys, pa.binary()), value=pa.array(values, pa.binary()))
    parts = [table.slice(begin, cuts) for begin in range(0, len(keys), cuts)]
    found = staged(tmp_path_factory.mktemp("rows") / "task.arrow", parts, target(partitions=partitions))
    of_partition = {number: [row for batch in batches for row in batch] for (_, number), batches in found.items()}
    assert sorted(row[2] for each in of_partition.values() for row in each) == sorted(values)
    for number, each in of_partition.items():
        assert [int(row[2]) for row in each] == sorted(int(row[2]) for row in each)
        for row in each:
            key = keys[int(row[2])]
            assert row[1] == key
            assert key is None or (murmur2(key) & 0x7FFFFFFF) % partitions == number


def test_small_writes_spread_and_the_attempts_of_a_task_agree(tmp_path: Path) -> None:
    table = rows(value=pa.array([b"x"], pa.binary()))
    firsts = [first_partition(f"query-1-{batch}", task) for batch in range(8) for task in (0, 0, 1)]
    used = [list(staged(tmp_path / "task.arrow", [table], first=first)) for first in firsts]
    assert used[::3] == used[1::3]
    assert all((first[0][1] + 1) % 4 == then[0][1] for first, then in zip(used[::3], used[2::3], strict=True))
    assert sorted(partition for ((_, partition),) in used[::3]) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_records_without_a_key_fill_one_partition_after_another(tmp_path: Path) -> None:
    table = rows(value=pa.array([b"x" * 1000] * 8_000, pa.binary()))
    found = staged(tmp_path / "task.arrow", [table], first=2)
    assert [partition for _, partition in found] == [2, 3, 0, 1]
    counts = {partition: sum(len(batch) for batch in batches) for (_, partition), batches in found.items()}
    assert sum(counts.values()) == 8_000
    assert max(counts.values()) <= 2 * (BATCH_BYTES // 1_000)


@pytest.mark.exhaustive
def test_batches_are_full_and_none_is_larger_than_the_topic_takes(tmp_path: Path) -> None:
    table = rows(key=pa.array([b"k"] * 3_000, pa.binary()), value=pa.array([b"x" * 1000] * 3_000, pa.binary()))
    ((_, batches),) = staged(tmp_path / "task.arrow", [table] * 2).items()
    assert [len(batch) for batch in batches][:-1] == [(BATCH_BYTES - BATCH_OVERHEAD_BYTES) // 1025] * (len(batches) - 1)
    ((_, batches),) = staged(tmp_path / "task.arrow", [table], target(message_bytes_max=50_000)).items()
    assert max(sum(len(row[2]) for row in batch) for batch in batches) < 50_000
    ((_, batches),) = staged(tmp_path / "task.arrow", [table.slice(0, 1)], target(message_bytes_max=1_100)).items()
    assert len(batches[0]) == 1


def test_columns_as_sparks_kafka_sink_takes_them(tmp_path: Path) -> None:
    headers = pa.array(
        [[("h", b"1"), ("g", None)], None, []], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    table = rows(
        key=["a", None, "c"],
        value=["1", "2", None],
        topic=["clicks", "views", "clicks"],
        partition=pa.array([3, None, 1], pa.int32()),
        timestamp=pa.array([1_500, 2_500, 3_999], pa.timestamp("us", tz="UTC")),
        headers=headers,
        note=["not looked at"] * 3,
    )
    found = staged(tmp_path / "task.arrow", [table], target(), target("views", number=1, partitions=1), topic=None)
    assert found == {
        (0, 3): [[(1, b"a", b"1", [("h", b"1"), ("g", None)])]],
        (1, 0): [[(2, None, b"2", [])]],
        (0, 1): [[(3, b"c", None, [])]],
    }
    found = staged(tmp_path / "task.arrow", [table], target(partitions=9))
    assert sum(len(batch) for batches in found.values() for batch in batches) == 3


def test_a_time_before_1970_is_in_the_millisecond_that_it_is_in(tmp_path: Path) -> None:
    times = [-1, -999, -1_000, -1_001, -(2**63) + 1, 999, 1_000, 2**63 - 1]
    table = rows(value=["v"] * len(times), timestamp=pa.array(times, pa.timestamp("us", tz="UTC")))
    (batch,) = staged(tmp_path / "task.arrow", [table], target(partitions=1))[0, 0]
    assert [timestamp for timestamp, *_ in batch] == [time // 1_000 for time in times]


@pytest.mark.parametrize(
    ("columns", "changes", "message"),
    [
        ({"topic": ["cliks"]}, {}, "there is no topic 'cliks' in the lake"),
        ({"topic": pa.array([None], pa.string())}, {}, "a row has no topic"),
        ({"partition": [4]}, {}, "a row is for partition 4 of topic clicks, which has 4 partitions"),
        ({"partition": [-1]}, {}, "a row is for partition -1 of topic clicks"),
        ({"value": [b"x" * 2_000]}, {"message_bytes_max": 1_000}, "a record of 20.. bytes is larger than topic clicks"),
        ({}, {"key_required": True}, "topic clicks is compacted: every record needs a key"),
        ({"key": pa.array([None], pa.string())}, {"key_required": True}, "topic clicks is compacted"),
    ],
)
def test_what_cannot_be_written_is_said_in_one_sentence(
    columns: dict[str, Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    table = rows(**({"value": [b"1"]} | columns))
    with pytest.raises(KafkaLakeError, match=message):
        staged(tmp_path / "task.arrow", [table], target(**changes), topic=None if "topic" in columns else "clicks")


def test_a_header_without_a_key_is_refused(tmp_path: Path) -> None:
    headers = pa.array([[(None, b"1")]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    with pytest.raises(KafkaLakeError, match="a header has no key"):
        staged(tmp_path / "task.arrow", [rows(value=[b"1"], headers=headers)])


@pytest.mark.parametrize(
    ("schema", "topic", "message"),
    [
        ({"key": pa.string()}, "clicks", "the data has no column `value`; it has key"),
        ({}, "clicks", "it has no column at all"),
        ({"value": pa.int64()}, "clicks", "column value is int64: it must be a string or binary"),
        ({"value": pa.string(), "key": pa.int32()}, "clicks", "column key is int32"),
        ({"value": pa.string()}, None, "no topic: name one"),
        ({"value": pa.string(), "topic": pa.int32()}, None, "column topic is int32: it must be a string"),
        ({"value": pa.string(), "partition": pa.string()}, "clicks", "column partition is string: it must be an int"),
        ({"value": pa.string(), "timestamp": pa.int64()}, "clicks", "column timestamp is int64"),
        ({"value": pa.string(), "headers": pa.string()}, "clicks", "column headers must be ARRAY"),
    ],
)
def test_columns_that_are_no_records_are_named(schema: dict[str, Any], topic: str | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        check_columns(pa.schema(schema), topic)


@pytest.mark.parametrize("name", ["value", "key", "user"])
def test_a_column_that_is_there_twice_is_refused(name: str) -> None:
    schema = pa.schema([("value", pa.string()), (name, pa.string()), ("id", pa.int32()), (name, pa.string())])
    with pytest.raises(ConfigurationError, match=f"the data has two columns {name}"):
        check_columns(schema, "clicks", json_fields=True)
    with pytest.raises(ConfigurationError, match=f"the data has two columns {name}"):
        check_fields(schema, None)
    if name == "user":
        check_columns(schema, "clicks")  # no column of a record
