"""How far a stream goes in one step, without Spark."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalake.errors import OffsetOutOfRangeError
from kafkalake.reader.positions import BatchDelay, Edge, from_json, ids_from_json, next_end, shared_out, to_json

A, B, C = ("a", 0), ("a", 1), ("b", 0)


def test_positions_are_written_as_sparks_kafka_source_writes_them() -> None:
    assert to_json({("b", 0): 3, ("a", 10): 2, ("a", 9): 1}) == {"a": {"9": 1, "10": 2}, "b": {"0": 3}}
    assert list(to_json({("a", 10): 2, ("a", 9): 1})["a"]) == ["9", "10"]
    with_ids = to_json({("a-b", 0): 3, ("a", 0): 1}, {"a": "id of a", "gone": "x"})
    assert with_ids == {"a": {"0": 1}, "a#id of a": {}, "a-b": {"0": 3}}
    assert (from_json(with_ids), ids_from_json(with_ids)) == ({("a-b", 0): 3, ("a", 0): 1}, {"a": "id of a"})
    assert from_json({"a": {"9": 1, "10": 2}}) == {("a", 9): 1, ("a", 10): 2}


@pytest.mark.parametrize(
    ("start", "edges", "more", "expected"),
    [
        ({A: 5}, {A: Edge(0, 9, 12)}, {}, {A: 9}),  # up to the last stable offset
        ({A: 9}, {A: Edge(0, 9, 9)}, {}, {A: 9}),  # nothing is new
        ({A: 11}, {A: Edge(0, 9, 12)}, {}, {A: 11}),  # read uncommitted before: never back
        ({A: 5}, {A: Edge(0, 9, 9), B: Edge(0, 4, 4)}, {}, {A: 9, B: 4}),  # a new partition
        ({A: 5}, {A: Edge(0, 9, 9), B: Edge(0, 4, 4)}, {"target": {A: 7}}, {A: 7}),  # newer than the target
        ({A: 8}, {A: Edge(0, 9, 9)}, {"target": {A: 7}}, {A: 8}),
        ({A: 0}, {A: Edge(90, 100, 100)}, {"offsets_max": 4}, {A: 94}),  # what is gone does not count
        ({A: 5, B: 3}, {A: Edge(0, 9, 9)}, {"fail_on_data_loss": False}, {A: 9}),  # a partition is gone
        ({A: 50}, {A: Edge(0, 9, 9)}, {"fail_on_data_loss": False}, {A: 9}),  # made anew
    ],
)
def test_a_step_ends(start: dict, edges: dict, more: dict, expected: dict) -> None:  # type: ignore[type-arg]
    assert next_end(start, edges, **more) == expected


def test_a_partition_that_is_gone_or_made_anew_is_data_loss() -> None:
    with pytest.raises(OffsetOutOfRangeError, match=r"a-1: it is gone: .* failOnDataLoss=false"):
        next_end({A: 1, B: 1}, {A: Edge(0, 9, 9)})
    with pytest.raises(OffsetOutOfRangeError, match="a-0: it ends at offset 9, and 50 offsets of it were read"):
        next_end({A: 50}, {A: Edge(0, 9, 9)})


SIZES = st.dictionaries(st.sampled_from([A, B, C, ("c", 7)]), st.tuples(st.integers(0, 2**40), st.integers(0, 2**40)))


@given(SIZES, st.integers(1, 2**41))
def test_a_limit_is_kept_and_every_partition_moves(sizes: dict[tuple[str, int], tuple[int, int]], limit: int) -> None:
    begins = {partition: begin for partition, (begin, _) in sizes.items()}
    ends = {partition: begin + size for partition, (begin, size) in sizes.items()}
    found = shared_out(begins, ends, limit)
    assert found.keys() == ends.keys()
    for partition, end in found.items():
        assert begins[partition] <= end <= ends[partition]
        assert end > begins[partition] or ends[partition] == begins[partition]
    taken = sum(found[partition] - begins[partition] for partition in found)
    assert taken <= limit + len(found)


def test_a_topic_that_was_created_again_is_another_however_long_it_is(caplog: pytest.LogCaptureFixture) -> None:
    edges = {A: Edge(0, 150, 150, "new"), C: Edge(0, 9, 9, "same")}
    start, ids = {A: 100, B: 7, C: 5}, {"a": "old", "b": "same"}
    with pytest.raises(OffsetOutOfRangeError, match="topic a was deleted and created again since it was read"):
        next_end(start, edges, topic_ids=ids)
    assert caplog.messages == []
    found = next_end(start, edges, topic_ids=ids, fail_on_data_loss=False, offsets_max=100)
    assert found[A] > 90  # of [0, 150), not of [100, 150)
    assert caplog.messages == [
        "topic a was deleted and created again since it was read: the new one is read from its beginning"
    ]
    # Offsets of 0.1 and of Spark's Kafka source name no ids.
    assert next_end({A: 100, C: 5}, edges) == {A: 150, C: 9}


def test_a_step_waits_for_enough_offsets_but_not_for_ever() -> None:
    now_ms = 0
    delay = BatchDelay(10, 1_000, lambda: now_ms)
    assert not delay.delays({}, {A: 3})  # the first
    now_ms = 999
    assert delay.delays({A: 3}, {A: 12})
    assert not delay.delays({A: 3}, {A: 12, B: 1})  # enough
    now_ms = 1_998
    assert delay.delays({A: 12, B: 1}, {A: 12, B: 2})
    now_ms = 1_999
    assert not delay.delays({A: 12, B: 1}, {A: 12, B: 2})  # it has waited for long enough
