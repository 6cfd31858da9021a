"""The partitioner puts keys where other clients put them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python

from kafkalake.client.partitioner import partitions_of_keys, sticky_partitions


@settings(deadline=None)
@given(keys=st.lists(st.binary(max_size=40), max_size=20), partitions=st.integers(1, 1000))
def test_keys_go_where_kafka_python_puts_them(keys: list[bytes], partitions: int) -> None:
    expected = [(murmur2_of_kafka_python(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert partitions_of_keys(pa.array(keys, pa.binary()), partitions).tolist() == expected


def test_values_of_kafkas_own_test() -> None:
    """Positions that Java's murmur2 gives (`UtilsTest.testMurmur2`), taken modulo 2^31 - 1 to show all of the hash."""
    expected = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    modulus = 2**31 - 1
    found = partitions_of_keys(pa.array(list(expected), pa.binary()), modulus).tolist()
    assert found == [(value & 0x7FFFFFFF) % modulus for value in expected.values()]


def test_a_slice_of_keys_is_read_from_its_own_start() -> None:
    keys = pa.array([b"other", None, b"21", b"foobar"], pa.binary())
    assert (
        partitions_of_keys(keys.slice(2), 97).tolist() == partitions_of_keys(pa.array([b"21", b"foobar"]), 97).tolist()
    )


def test_records_without_a_key_fill_one_partition_after_another() -> None:
    sizes = np.full(10, 100, dtype=np.int64)
    assert sticky_partitions(sizes, 0, 300, 3).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 0]
    assert sticky_partitions(sizes[:2], 1000, 300, 3).tolist() == [0, 0]
    assert sticky_partitions(sizes[:0], 0, 300, 3).tolist() == []
