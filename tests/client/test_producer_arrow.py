"""Arrow batches as a producer cuts and spreads them, on simulated brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from simulated_producer import SimulatedProducer

from kafkalake.client.partitioner import partitions_of_keys
from kafkalake.client.producing import arrow
from kafkalake.client.producing.batch import ArrowFuture
from kafkalake.client.producing.partitioners import RoundRobinPartitioner, partition_of_key
from kafkalake.errors import MessageTooLargeError, UnknownTopicOrPartitionError
from kafkalake.record.schema import HEADERS_TYPE

VALUES = [b"%d" % n for n in range(200)]


def send(producer: SimulatedProducer, columns: dict[str, Any], partition: int | None = None) -> ArrowFuture:
    queues = producer.core.accumulator.topic("t")
    assert queues is not None
    encoded = producer.core.encode_arrow(queues, pa.table(columns), partition)
    batches = [producer.core.try_append_encoded(queues, each) for each in encoded]
    return ArrowFuture([batch for batch in batches if batch is not None])


def spans(producer: SimulatedProducer, future: ArrowFuture) -> list[tuple[int, int, int]]:
    producer.run(1_000)
    return sorted((each.partition, each.base_offset, each.records) for each in future.get(0))


def values_of(producer: SimulatedProducer) -> list[list[bytes]]:
    return [producer.logs["t", partition].values for partition in (0, 1)]


def test_rows_without_keys_go_in_batches() -> None:
    producer = SimulatedProducer(batch_size=500).start()
    found = spans(producer, send(producer, {"value": VALUES}))
    assert sum(records for _, _, records in found) == 200
    assert sorted(value for values in values_of(producer) for value in values) == sorted(VALUES)
    assert {partition for partition, _, _ in found} == {0, 1}


def test_keys_decide_as_for_single_records() -> None:
    producer = SimulatedProducer(batch_size=500).start()
    keys = [b"k%d" % (n % 7) for n in range(200)]
    spans(producer, send(producer, {"key": keys, "value": VALUES}))
    for partition, values in enumerate(values_of(producer)):
        assert values == [
            value for key, value in zip(keys, VALUES, strict=True) if partition_of_key(key, 2) == partition
        ]
    assert partitions_of_keys(pa.array(keys), 2).tolist() == [partition_of_key(key, 2) for key in keys]


def test_a_column_names_the_partitions() -> None:
    producer = SimulatedProducer().start()
    assert spans(producer, send(producer, {"value": ["a", "b", "c"], "partition": [1, 0, 1]})) == [(0, 0, 1), (1, 0, 2)]
    assert values_of(producer) == [[b"b"], [b"a", b"c"]]


def test_one_partition_takes_all() -> None:
    producer = SimulatedProducer().start()
    assert spans(producer, send(producer, {"value": ["a", "b"], "key": ["x", None]}, partition=1)) == [(1, 0, 2)]


class Last:
    def partition(self, topic: str, key: Any, value: Any, partitions: int, available: Sequence[int]) -> int:
        return partitions - 1


def test_an_own_partitioner_is_asked() -> None:
    producer = SimulatedProducer(parts={"partitioner": Last()}).start()
    assert spans(producer, send(producer, {"value": ["a", "b"]})) == [(1, 0, 2)]


def test_headers_and_timestamps_are_kept() -> None:
    producer = SimulatedProducer().start()
    headers = pa.array([[("h", b"1")], None], HEADERS_TYPE)
    columns = {"value": ["a", "b"], "headers": headers, "timestamp": pa.array([5, None], pa.timestamp("us"))}
    assert spans(producer, send(producer, columns, 0)) == [(0, 0, 2)]


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_batches_are_compressed(codec: str) -> None:
    producer = SimulatedProducer(compression_type=codec).start()
    spans(producer, send(producer, {"value": VALUES}, 0))
    assert values_of(producer)[0] == VALUES


def with_columns(*takes_columns: bool, **settings: object) -> SimulatedProducer:
    """A producer, and which of its brokers take columns."""
    producer = SimulatedProducer(**settings)  # type: ignore[arg-type]
    for broker, takes in zip(producer.brokers, takes_columns, strict=True):
        broker.takes_columns = takes
    return producer.start()


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_brokers_that_take_columns_get_columns(codec: str, idempotent: bool) -> None:
    producer = with_columns(True, True, compression_type=codec, enable_idempotence=idempotent, batch_size=500)
    spans(producer, send(producer, {"value": VALUES}, 0))
    assert values_of(producer)[0] == VALUES
    log = producer.logs["t", 0]
    assert all(log.columns) and len(log.columns) > 1
    spans(producer, send(producer, {"value": ["a"], "headers": pa.array([[("h", b"1")]], HEADERS_TYPE)}, 0))
    assert log.columns[-1] is False  # headers are no columns


@pytest.mark.parametrize("takes_columns", [(True, False), (False, True)])
def test_each_broker_of_a_mixed_cluster_gets_what_it_takes(takes_columns: tuple[bool, bool]) -> None:
    producer = with_columns(*takes_columns)
    for _ in range(2):  # the second time all connections are open
        for partition in (0, 1):
            spans(producer, send(producer, {"value": VALUES, "key": [None, b"k"] * 100}, partition))
    for partition, takes in enumerate(takes_columns):
        log = producer.logs["t", partition]
        assert log.values == 2 * VALUES
        assert takes or not any(log.columns)
    assert any(producer.logs["t", takes_columns.index(True)].columns)


def test_columns_become_records_when_their_leader_is_a_broker_that_does_not_take_them() -> None:
    producer = with_columns(True, False, batch_size=500)
    spans(producer, send(producer, {"value": [b"first"]}, 0))
    producer.fault = lambda topic, partition: 6  # NOT_LEADER_OR_FOLLOWER
    future = send(producer, {"value": VALUES}, 0)
    producer.run(50)
    log = producer.logs["t", 0]
    assert not future.is_done and all(log.columns)
    producer.fault = lambda topic, partition: 0
    producer.topics.move("t", 0, 1)
    spans(producer, future)
    assert log.values == [b"first", *VALUES]
    assert log.columns == [True] + [False] * (len(log.columns) - 1)


def test_columns_that_a_topic_refuses_as_too_large_are_split() -> None:
    producer = with_columns(True, True)
    refused: list[int] = []

    def refuse(topic: str, partition: int) -> int:
        refused.append(partition)
        return 10 if len(refused) <= 3 else 0  # MESSAGE_TOO_LARGE

    producer.fault = refuse
    spans(producer, send(producer, {"value": VALUES}, 0))
    assert values_of(producer)[0] == VALUES


def test_no_rows_are_delivered_at_once() -> None:
    producer = SimulatedProducer().start()
    future = send(producer, {"value": pa.array([], pa.binary())})
    assert future.is_done and future.get(0) == []


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"key": ["a"]}, ValueError, "column `value`"),
        ({"value": ["a"], "partition": [2]}, UnknownTopicOrPartitionError, "no partition 2"),
        ({"value": ["a"], "partition": pa.array([None], pa.int32())}, ValueError, "has nulls"),
        ({"value": ["a", "x" * 2_000_000]}, MessageTooLargeError, r"max\.request\.size"),
        ({"value": [1.5]}, pa.ArrowNotImplementedError, "cast"),
        ({"value": ["a"], "timestamp": pa.array([2**60], pa.timestamp("s"))}, pa.ArrowInvalid, "out of bounds"),
        ({"value": ["a", "b"], "timestamp": pa.array([5, -5])}, ValueError, "at least 0, not -5"),
        ({"value": ["a", "b"], "headers": pa.array([[None], []], HEADERS_TYPE)}, pa.ArrowInvalid, "null in place of"),
    ],
)
def test_what_is_no_record_is_refused_before_anything_is_sent(
    columns: dict[str, Any], error: type[Exception], text: str
) -> None:
    producer = SimulatedProducer().start()
    with pytest.raises(error, match=text):
        send(producer, columns)
    assert not producer.core.accumulator.has_incomplete


def test_columns_of_one_name_are_refused() -> None:
    producer = SimulatedProducer().start()
    queues = producer.core.accumulator.topic("t")
    assert queues is not None
    rows = pa.table([pa.array(["a"]), pa.array(["b"])], names=["value", "value"])
    with pytest.raises(ValueError, match="several columns `value`"):
        producer.core.encode_arrow(queues, rows, 0)


@pytest.mark.parametrize(
    ("partition", "error"), [("0", TypeError), (0.0, TypeError), (2, UnknownTopicOrPartitionError)]
)
def test_a_partition_that_is_none_is_refused(partition: Any, error: type[Exception]) -> None:
    producer = SimulatedProducer().start()
    with pytest.raises(error, match="partition"):
        send(producer, {"value": ["a"]}, partition)


def test_keys_do_not_decide_if_they_are_to_be_ignored() -> None:
    producer = SimulatedProducer(batch_size=500, partitioner_ignore_keys=True).start()
    spans(producer, send(producer, {"key": ["k"] * 200, "value": VALUES}))
    assert all(values_of(producer))


ODD = pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])


@pytest.mark.parametrize(
    "columns",
    [
        {
            "value": pa.array(["a", "b", None]).dictionary_encode(),
            "key": pa.array([b"k", None, b"k"]).dictionary_encode(),
        },
        {
            "value": pa.array([b"a", b"b", None], pa.large_binary()),
            "key": pa.array(["k", None, "k"], pa.large_string()),
        },
        {"value": pa.array(["a", "b", None], pa.string_view()), "key": pa.array([b"k", None, b"k"], pa.binary_view())},
        {"value": pa.array([b"a", b"b", None], pa.binary(1)), "key": pa.array([b"k", None, b"k"], pa.binary(1))},
        {"value": pa.chunked_array([["a"], [], ["b", None], []], pa.string()), "key": ["k", None, "k"]},
        {
            "value": ["a", "b", None],
            "key": ["k", None, "k"],
            "headers": pa.array([[{"key": "h", "value": b"1"}], [], None], pa.large_list(ODD)),
        },
        {
            "value": ["a", "b", None],
            "key": ["k", None, "k"],
            "timestamp": pa.array([1, None, 3], pa.timestamp("ns", "UTC")),
        },
    ],
    ids=["dictionary", "large", "views", "fixed", "chunks", "headers", "timestamps"],
)
def test_columns_of_any_type_that_says_the_same_are_taken(columns: dict[str, Any]) -> None:
    producer = SimulatedProducer().start()
    rows = pa.table(columns)
    for given in (rows, pa.concat_tables([rows, rows]), pa.concat_tables([rows, rows]).combine_chunks().slice(3)):
        spans(producer, send(producer, dict(zip(given.column_names, given.columns, strict=True)), 0))
    assert producer.logs["t", 0].values == [b"a", b"b", None] * 4


def test_more_rows_than_one_array_holds_are_sent() -> None:
    """An array of `binary` has at most 2 GiB: this is a little more, in chunks that are the same bytes."""
    producer = SimulatedProducer().start()
    queues = producer.core.accumulator.topic("t")
    assert queues is not None
    chunk = pa.array([bytes(800_000)] * 100)
    rows = pa.table({"value": pa.chunked_array([chunk] * 27), "key": ["k"] * 2_700})
    assert sum(each.records for each in producer.core.encode_arrow(queues, rows, 0)) == 2_700


@pytest.mark.parametrize("kind", [pa.binary(), pa.string_view(), pa.dictionary(pa.int32(), pa.binary())], ids=str)
def test_pieces_of_large_columns_keep_the_order(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "_PIECE_BYTES", 1_000)
    producer = SimulatedProducer(parts={"partitioner": RoundRobinPartitioner()}).start()
    values = [b"%03d" % (number % 10) * 30 for number in range(200)]
    spans(producer, send(producer, {"value": pa.array(values).cast(kind)}))
    assert values_of(producer) == [values[::2], values[1::2]]
    with pytest.raises(UnknownTopicOrPartitionError):
        send(producer, {"value": pa.array(values).cast(kind), "partition": [0] * 199 + [2]})
    assert not producer.core.accumulator.has_incomplete


@pytest.mark.parametrize(
    ("settings", "most"),
    [({}, 1_000_000), ({"batch_size": 300_000}, 300_000), ({"max_request_size": 400_000}, 400_000)],
)
def test_batches_fill_requests_unless_their_size_is_set(settings: dict[str, int], most: int) -> None:
    producer = SimulatedProducer(**settings).start()
    queues = producer.core.accumulator.topic("t")
    assert queues is not None
    rows = pa.table({"value": [bytes(1_000)] * 2_500})
    sizes = [len(each.data) for each in producer.core.encode_arrow(queues, rows, 0)]
    assert most - 2_000 < max(sizes) <= most
    assert len(sizes) == -(-2_500 * 1_010 // most)
