"""Assigns records to partitions like Kafka's default partitioner, so that a key maps to the same partition in all clients.

A key's partition is `(murmur2(key) & 0x7fffffff) % partitions`, murmur2 with the seed of Kafka's Java client. Records without a
key fill one partition after another (KIP-480, sticky): a batch each, which compresses better and costs fewer requests than
spreading single records. Source: `org.apache.kafka.common.utils.Utils.murmur2`, `BuiltInPartitioner`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalake.record.arrays import Bytes, Int32s
from kafkalake.record.compiled import compiled

_SEED = np.uint64(0x9747B28C)
_MULTIPLIER = np.uint64(0x5BD1E995)
_MASK = np.uint64(0xFFFFFFFF)


@compiled("uint64(view, int64, int64)")
def murmur2(data: Bytes, start: int, end: int) -> np.uint64:
    """Return Kafka's murmur2 of `data[start:end]`, unsigned 32 bits."""
    length = end - start
    h = (_SEED ^ np.uint64(length)) & _MASK
    position = start
    while position + 4 <= end:
        k = (
            np.uint64(data[position])
            | (np.uint64(data[position + 1]) << np.uint64(8))
            | (np.uint64(data[position + 2]) << np.uint64(16))
            | (np.uint64(data[position + 3]) << np.uint64(24))
        )
        k = (k * _MULTIPLIER) & _MASK
        k ^= k >> np.uint64(24)
        k = (k * _MULTIPLIER) & _MASK
        h = ((h * _MULTIPLIER) & _MASK) ^ k
        position += 4
    rest = end - position
    if rest >= 3:
        h ^= np.uint64(data[position + 2]) << np.uint64(16)
    if rest >= 2:
        h ^= np.uint64(data[position + 1]) << np.uint64(8)
    if rest >= 1:
        h ^= np.uint64(data[position])
        h = (h * _MULTIPLIER) & _MASK
    h ^= h >> np.uint64(13)
    h = (h * _MULTIPLIER) & _MASK
    return h ^ (h >> np.uint64(15))


@compiled("void(view, int32[::1], int64, int32[::1])")
def _partitions_of_keys(data: Bytes, offsets: Int32s, partitions: int, out: Int32s) -> None:
    for row in range(len(out)):
        out[row] = np.int32(
            np.int64(murmur2(data, offsets[row], offsets[row + 1]) & np.uint64(0x7FFFFFFF)) % partitions
        )


def partitions_of_keys(keys: pa.BinaryArray, partitions: int) -> npt.NDArray[np.int32]:
    """Return the partition of each key, int32[N]. The value for a null key is arbitrary."""
    out = np.empty(len(keys), dtype=np.int32)
    _, offsets, data = keys.buffers()
    first = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1]
    whole = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.empty(0, dtype=np.uint8)
    _partitions_of_keys(whole, np.array(first), partitions, out)
    return out


def sticky_partitions(
    sizes: npt.NDArray[np.int64], bytes_before: int, batch_bytes: int, partitions: int
) -> npt.NDArray[np.int32]:
    """Return the partition of each record without a key, int32[N], changing after every `batch_bytes`.

    sizes int64[N]: bytes of each record. `bytes_before`: bytes of all earlier records without a key.
    """
    starts = bytes_before + np.concatenate(([0], np.cumsum(sizes)[:-1])) if len(sizes) else np.empty(0, dtype=np.int64)
    return np.asarray((starts // batch_bytes) % partitions, dtype=np.int32)
