"""Rows become Arrow columns and come back equal."""

from __future__ import annotations

import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from metadata_rows import broker_row, partition_row, segment_row, topic_row

from kafkalake.errors import LakeError
from kafkalake.metadata.tables import schemas
from kafkalake.metadata.tables.schemas import (
    BROKERS_SCHEMA,
    PARTITIONS_SCHEMA,
    SEGMENTS_SCHEMA,
    TOPICS_SCHEMA,
    BrokerRow,
    PartitionRow,
    SegmentRow,
    TopicRow,
    from_table,
    located,
    segment_keys,
    to_table,
)

_int32 = st.integers(-(2**31), 2**31 - 1)
_int64 = st.integers(-(2**63), 2**63 - 1)
_time_ms = st.integers(-(2**53), 2**53)
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_replicas = st.lists(_int32, max_size=4).map(tuple)

ROWS = {
    TopicRow: (TOPICS_SCHEMA, st.builds(TopicRow, _text, _text, _int32, st.dictionaries(_text, _text), _time_ms)),
    PartitionRow: (
        PARTITIONS_SCHEMA,
        st.builds(
            PartitionRow,
            *(_text, _text, _int32, _int32, _int32, _replicas, _replicas),
            *(_int64, _int64, _int64, _int64, _time_ms, _int64),
        ),
    ),
    SegmentRow: (
        SEGMENTS_SCHEMA,
        st.builds(
            SegmentRow,
            *(_text, _text, _int32, _int64, _int64, _int32, _text, _int64, _int64),
            *(st.none() | _time_ms, st.none() | _time_ms, _time_ms, _int32),
        ),
    ),
    BrokerRow: (
        BROKERS_SCHEMA,
        st.builds(BrokerRow, _int32, _text, _int32, _text, _text, _text, _int32, _time_ms, _time_ms, _int32),
    ),
}


@pytest.mark.parametrize("row_class", ROWS)
@examples(100)
@given(data=st.data())
def test_rows_survive_the_way_through_arrow(row_class: type, data: st.DataObject) -> None:
    schema, rows_strategy = ROWS[row_class]
    rows = data.draw(st.lists(rows_strategy, max_size=5))
    table = to_table(schema, rows)
    assert table.schema.equals(schema)
    assert from_table(row_class, table) == rows


def test_no_rows_make_an_empty_table() -> None:
    for row_class, (schema, _) in ROWS.items():
        assert from_table(row_class, to_table(schema, [])) == []


def test_columns_are_found_by_name_and_new_ones_are_ignored() -> None:
    table = to_table(SEGMENTS_SCHEMA, [segment_row()])
    shuffled = table.select(list(reversed(table.column_names))).append_column("later", [["x"]])
    assert from_table(SegmentRow, shuffled) == [segment_row()]
    assert segment_keys(shuffled) == [segment_row().key]


def test_equal_strings_are_held_once() -> None:
    rows = from_table(SegmentRow, to_table(SEGMENTS_SCHEMA, [segment_row(base=0), segment_row(base=100)]))
    assert rows[0].topic is rows[1].topic


def test_rows_are_values() -> None:
    assert topic_row() == topic_row() and broker_row() == broker_row() and partition_row() == partition_row()
    with pytest.raises(AttributeError):
        partition_row().high_watermark = 1  # type: ignore[misc]


def test_a_path_of_a_broker_that_cannot_be_is_refused() -> None:
    row = SegmentRow("t", "id", 0, 0, 1, 0, "logs/99999999999/t-0/0.arrow", 1, 1, None, None, 0, 0)
    table = to_table(SEGMENTS_SCHEMA, [row])
    index = table.schema.get_field_index("broker_id")
    older = table.set_column(index, table.schema.field(index), pa.nulls(1, pa.int32()))
    with pytest.raises(LakeError, match="names a broker that cannot be"):
        located(older)


COLUMNS = {
    "TOPICS_SCHEMA": "topic string, topic_id string, partitions int32, config map<string, string>, created_at time",
    "BROKERS_SCHEMA": "broker_id int32, host string, port int32, machine string, log_dir string, lease_id string, pid int32, "
    "started_at time, lease_expires_at time, controller_epoch int32, boot_id string, lease_duration int32",
    "PARTITIONS_SCHEMA": "topic string, topic_id string, partition int32, leader int32, leader_epoch int32, replicas "
    "list<item: int32>, "
    "isr list<item: int32>, log_start_offset int64, high_watermark int64, last_stable_offset int64, log_end_offset "
    "int64, published_at time, segments_version int64",
    "SEGMENTS_SCHEMA": "topic string, topic_id string, partition int32, base_offset int64, next_offset int64, "
    "generation int32, path "
    "string, records int64, bytes int64, min_timestamp time, max_timestamp time, sealed_at time, broker_id int32",
    "GROUP_OFFSETS_SCHEMA": "group string, topic string, topic_id string, partition int32, offset int64, leader_epoch "
    "int32, metadata "
    "string, committed_at time, expires_at time, journal_partition int32, journal_offset int64",
    "CLEANING_SCHEMA": "topic string, topic_id string, partition int32, cleaned_offset int64, generation int32, updated_at time",
    "TRANSACTIONS_SCHEMA": "transactional_id string, producer_id int64, producer_epoch int32, state string, "
    "partitions list<item: "
    "struct<topic: string, partition: int32>>, timeout int32, updated_at time, started_at time, "
    "previous_producer_id int64, next_producer_id int64, client_version int32, journal_partition int32, "
    "journal_offset int64",
}
"""Columns of the tables on disk. time: timestamp[us, tz=UTC]."""


@pytest.mark.parametrize("name", COLUMNS)
def test_tables_keep_their_columns(name: str) -> None:
    columns = ", ".join(f"{column.name} {column.type}" for column in getattr(schemas, name))
    assert columns.replace("timestamp[us, tz=UTC]", "time") == COLUMNS[name]
