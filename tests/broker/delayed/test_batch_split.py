"""Which records of a produced batch wait, against headers read one by one; and what is left of the batch for its log."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from record_batches import Row, record_batch

from kafkalake.broker.delayed.delay_headers import ID_BYTES_MAX
from kafkalake.broker.delayed.split import NO_DUE_TIME, split_batch
from kafkalake.config.topic_rules import DelayRules
from kafkalake.delayed_headers import DELAY_ID, DELAY_MS, DELIVER_AT
from kafkalake.errors import InvalidRecordError, InvalidTimestampError, KafkaError
from kafkalake.record import layout as at

NOW = 1_000_000
MAX = 40_000
RULES = DelayRules(MAX)
LEVEL = DelayRules(MAX, 5_000, "orders")

OTHER = ("kafkalake-delay-mx", "kafkalake-deliver-a", "kafkalake-deliver-at2", "trace", "")
headers = st.lists(
    st.one_of(
        st.tuples(st.just(DELIVER_AT), st.integers(NOW - 5, NOW + MAX).map(lambda at: str(at).encode())),
        st.tuples(st.just(DELAY_MS), st.integers(0, MAX).map(lambda ms: str(ms).encode())),
        st.tuples(
            st.sampled_from((DELIVER_AT, DELAY_MS)), st.sampled_from((b"", b"-1", b"1.5", b" 7", "٣".encode(), None))
        ),
        st.tuples(st.just(DELAY_ID), st.one_of(st.none(), st.binary(max_size=3), st.just(b"x" * (ID_BYTES_MAX + 1)))),
        st.tuples(st.sampled_from(OTHER), st.one_of(st.none(), st.binary(max_size=9))),
    ),
    max_size=3,
)
rows = st.tuples(st.just(5), st.none(), st.one_of(st.none(), st.binary(max_size=4)), headers)


def expected(row: Row, rules: DelayRules) -> int | type[KafkaError] | None:
    """When a record is due, None: at once; `NO_DUE_TIME` where it cancels; or the error."""
    times = [(key, value) for key, value in row[3] if key in (DELIVER_AT, DELAY_MS)]
    ids = [value for key, value in row[3] if key == DELAY_ID]
    if (times and rules.level_ms >= 0) or len(times) > 1:
        return InvalidRecordError
    due = NOW + rules.level_ms if rules.level_ms >= 0 else None
    for key, value in times:
        if value is None or not value.isdigit():
            return InvalidRecordError
        due = int(value) if key == DELIVER_AT else NOW + int(value) if int(value) else None
    if len(ids) > 1 or any(value is None or not 0 < len(value) <= ID_BYTES_MAX for value in ids):
        return InvalidRecordError
    if ids and row[2] is None:
        return NO_DUE_TIME
    return due


@examples(50)
@given(st.lists(rows, min_size=1, max_size=6), st.sampled_from((RULES, LEVEL)), st.integers(0, 2 * MAX))
def test_a_batch_that_is_sent_again_later_has_the_same_parts(
    records: list[Row], rules: DelayRules, later_ms: int
) -> None:
    """Else a record that was to wait at first would be in none of them: its batch is a duplicate."""
    if InvalidRecordError in [expected(row, rules) for row in records]:
        return
    first, again = (split_batch(record_batch(records), rules, now_ms) for now_ms in (NOW, NOW + later_ms))
    if first is None or again is None:
        assert first is again
        return
    assert first.rows == again.rows
    assert first.immediate.rows == again.immediate.rows


@examples(100)
@given(st.lists(rows, min_size=1, max_size=6), st.sampled_from((RULES, LEVEL)))
def test_a_batch_is_split_as_its_headers_say(records: list[Row], rules: DelayRules) -> None:
    batch = record_batch(records, producer_id=7, epoch=1, sequence=3, attributes=4)
    header = batch.header.copy()
    wanted = [expected(row, rules) for row in records]
    if InvalidRecordError in wanted:
        with pytest.raises(InvalidRecordError) as refused:
            split_batch(batch, rules, NOW)
        named = [number for number, _ in refused.value.record_errors]
        assert named == [number for number, each in enumerate(wanted) if each is InvalidRecordError]
        return
    found = split_batch(batch, rules, NOW)
    waits = [number for number, each in enumerate(wanted) if each is not None]
    if not waits:
        assert found is None
        return
    assert found is not None
    every = batch.to_arrow()
    assert found.due.tolist() == [each for each in wanted if each is not None]
    assert found.rows == every.take(pa.array(waits, pa.int64()))
    ids = [next((value for key, value in records[number][3] if key == DELAY_ID), None) for number in waits]
    assert (found.delay_ids.to_pylist() if found.delay_ids is not None else [None] * len(ids)) == ids
    now = [number for number in range(len(records)) if number not in waits]
    assert found.immediate.to_arrow() == every.take(pa.array(now, pa.int64())), (
        "their offsets are their places in the batch"
    )
    changed = [at.RECORDS, at.FLAGS] if now else [at.RECORDS, at.FLAGS, at.ATTRIBUTES]
    same = [field for field in range(at.HEADER_FIELDS) if field not in changed]
    np.testing.assert_array_equal(found.immediate.header[same], header[same])
    assert (found.immediate.header[at.RECORDS], found.immediate.header[at.FLAGS]) == (len(now), at.SPLIT)


@pytest.mark.parametrize(
    "header",
    [(DELAY_MS, str(MAX + 1)), (DELIVER_AT, str(NOW + MAX + 1)), (DELAY_MS, "9" * 40), (DELIVER_AT, str(2**63))],
)
def test_a_delay_over_the_limit_is_refused_with_its_length(header: tuple[str, str]) -> None:
    rows: list[Row] = [(5, None, b"v", []), (5, None, b"v", [(header[0], header[1].encode())])]
    with pytest.raises(
        InvalidTimestampError, match=f"record 1 of the batch: it is due in .* than delay.max.ms={MAX}"
    ) as e:
        split_batch(record_batch(rows), RULES, NOW)
    assert [number for number, _ in e.value.record_errors] == [1]


@pytest.mark.parametrize("header", [(DELIVER_AT, b"9" * 18), (DELIVER_AT, b"9" * 40), (DELAY_MS, b"9" * 19)])
def test_no_settings_allow_a_time_that_no_timestamp_has(header: tuple[str, bytes]) -> None:
    with pytest.raises(InvalidTimestampError, match="more than a hundred years"):
        split_batch(record_batch([(5, None, b"v", [header])]), DelayRules((1 << 63) - 1), NOW)


def test_a_batch_of_which_all_records_wait_leaves_a_header_with_its_offsets() -> None:
    delayed: Row = (5, b"k", b"v", [(DELAY_MS, b"10")])
    found = split_batch(record_batch([delayed] * 3, producer_id=7, epoch=0, sequence=5, attributes=4), RULES, NOW)
    assert found is not None and found.immediate.rows == 0
    header = found.immediate.header
    assert (header[at.LAST_OFFSET_DELTA], header[at.RECORDS], header[at.BASE_SEQUENCE]) == (2, 0, 5)
    assert not header[at.ATTRIBUTES] & at.ATTRIBUTE_COMPRESSION_MASK, "nothing is compressed"
