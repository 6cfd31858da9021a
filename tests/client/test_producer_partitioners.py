"""Partitioners of a producer: keys as Java's, records without a key spread evenly, or away from what is behind (KIP-794)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_producer import SimulatedProducer

from kafkalake.client.errors import SerializationError
from kafkalake.client.partitioner import partitions_of_keys
from kafkalake.client.producing.interceptors import ProducerRecord
from kafkalake.client.producing.partitioners import RoundRobinPartitioner, StickyPartitioner, partition_of_key
from kafkalake.client.serialization import AvroSerde, JsonSerde, StringSerde
from kafkalake.errors import ConfigurationError, UnknownTopicOrPartitionError


@settings(deadline=None)
@given(key=st.binary(max_size=40), partitions=st.integers(1, 1000))
def test_a_key_goes_where_arrow_batches_put_it(key: bytes, partitions: int) -> None:
    assert partition_of_key(key, partitions) == partitions_of_keys(pa.array([key]), partitions)[0]


@pytest.mark.parametrize(("key", "partition"), [(b"21", 40), (b"foobar", 66), (b"abc", 7), (b"", 81)])
def test_values_of_javas_murmur2(key: bytes, partition: int) -> None:
    """Of `UtilsTest.testMurmur2` in Kafka, for 100 partitions."""
    assert partition_of_key(key, 100) == partition


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 1_500), min_size=1, max_size=60), seed=st.integers(0, 99))
def test_a_sticky_partition_gets_a_batchs_share_then_another_is_chosen(sizes: list[int], seed: int) -> None:
    sticky = StickyPartitioner(4_000, Random(seed))
    produced: list[tuple[int, int]] = []
    for size in sizes:
        partition = sticky.begin(5, [0, 1, 2, 3, 4])
        produced.append((partition, size))
        sticky.add_batch(partition, size, 5, [0, 1, 2, 3, 4])
    share = 0
    for (partition, size), (following, _) in pairwise(produced):
        share += size
        if following != partition:
            assert share >= 4_000 - 1_024
        if share >= 4_000 - 1_024:
            share = 0


def test_only_partitions_with_a_leader_are_chosen() -> None:
    sticky = StickyPartitioner(1, Random(1))
    chosen = []
    for _ in range(50):
        chosen.append(sticky.begin(4, [1, 3]))
        sticky.add_batch(chosen[-1], 100, 4, [1, 3])
    assert set(chosen) == {1, 3}
    assert StickyPartitioner(1, Random(1)).begin(4, []) in range(4)


def test_long_queues_get_fewer_records() -> None:
    sticky = StickyPartitioner(1, Random(1))
    sticky.update_load([0, 1, 2], [0, 8, 4])
    chosen: Counter[int] = Counter()
    for _ in range(1_500):
        partition = sticky.begin(3, [0, 1, 2])
        chosen[partition] += 1
        sticky.add_batch(partition, 2_000, 3, [0, 1, 2])
    assert chosen[0] > chosen[2] > chosen[1] > 0  # odds of 9, 5 and 1


def test_round_robin_takes_turns() -> None:
    turns = RoundRobinPartitioner()
    assert [turns.partition("t", b"k", None, 4, [0, 2]) for _ in range(4)] == [0, 2, 0, 2]
    assert [turns.partition("u", None, None, 3, []) for _ in range(4)] == [0, 1, 2, 0]


class Wrong:
    def partition(self, topic: str, key: Any, value: Any, partitions: int, available: Sequence[int]) -> int:
        return partitions


def test_an_own_partitioner_that_names_no_partition_is_refused() -> None:
    producer = SimulatedProducer(parts={"partitioner": Wrong()}).start()
    with pytest.raises(UnknownTopicOrPartitionError):
        producer.send(b"a", None)


class Upper:
    def __init__(self) -> None:
        self.acknowledged: list[bool] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return ProducerRecord(record.topic, record.value.upper())

    def on_acknowledgement(self, metadata: object, error: object) -> None:
        self.acknowledged.append(error is None)


class Failing:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("of the test")

    on_acknowledgement = on_send


def test_interceptors_see_records_and_one_that_fails_is_skipped() -> None:
    upper = Upper()
    producer = SimulatedProducer(linger_ms=0, parts={"interceptors": [Failing(), upper, Failing()]}).start()
    for _ in range(2):
        record, delivered = producer.core.intercepted(ProducerRecord("t", b"a"), None)
        producer.send(record.value, done=delivered)
        producer.run()
    assert producer.logs["t", 0].values == [b"A", b"A"]
    assert upper.acknowledged == [True, True]


SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}


@pytest.mark.parametrize(
    ("serde", "value", "wrong"),
    [(StringSerde(), "ä", 1), (JsonSerde(), {"n": [1, "ä"]}, {1, 2}), (AvroSerde(SCHEMA), {"n": 5}, {"n": "x"})],
)
def test_serializers_make_bytes_and_values_again(serde: Any, value: object, wrong: object) -> None:
    assert serde.deserialize("t", (), serde.serialize("t", (), value)) == value
    assert serde.serialize("t", (), None) is serde.deserialize("t", (), None) is None
    with pytest.raises(SerializationError):
        serde.serialize("t", (), wrong)
    with pytest.raises(SerializationError):
        serde.deserialize("t", (), b"\xff")


def test_an_unknown_serializer_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="bytes, string, json"):
        SimulatedProducer(parts={"value_serializer": "protobuf"})


@pytest.mark.exhaustive
def test_a_round_robin_over_any_number_of_topics_remembers_so_many_and_spreads_all() -> None:
    turns, topics, partitions = RoundRobinPartitioner(), 12_001, range(4)
    found = [
        Counter(turns.partition(f"t{number}", None, None, 4, partitions) for number in range(topics)) for _ in range(4)
    ]
    assert len(turns._next) == 10_000
    assert min((found[2] + found[3]).values()) > topics / 4
