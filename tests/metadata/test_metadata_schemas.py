"""Rows become Arrow columns and come back equal."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metadata_rows import broker_row, partition_row, segment_row, topic_row

from kafkalake.errors import LakeError
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
