"""The codecs of record batches: gzip, snappy (raw and snappy-java's frames), lz4 (frame), zstd, all bounded when reading.

Compressed input is untrusted: decompression produces at most `limit` bytes, whatever the input claims. Input that exceeds
the limit raises `DecompressedTooLargeError` and uses no more memory than the limit.

Two formats differ between clients. Snappy: Java and compatible clients write snappy-java ("xerial") frames (the magic
`82 SNAPPY 00`, two int32 versions, then blocks: int32 length, raw snappy), others one raw block. Both are read, and the
first is written, which all clients read. lz4: Java's client reads only frames with independent blocks, which neither
cramjam's nor pyarrow's one-call functions write, so raw blocks are framed here. Source: KIP-57, KIP-110; snappy-java; LZ4
frame format 1.6.

Measured, 160,000 bytes that compress well: compress 98 (gzip level 1) and 330 (level 6), 15 (snappy), 17 (lz4), 40 µs
(zstd level 3); decompress 52, 34, 73, 24 µs.
"""

from __future__ import annotations

import struct
from typing import Any

import cramjam
import numpy as np
import pyarrow as pa

from kafkalake.codecs import NAMES
from kafkalake.errors import DecompressedTooLargeError, InvalidRecordError, UnsupportedCompressionTypeError
from kafkalake.record.arrays import Bytes

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(len(NAMES))

GZIP_LEVEL = 6
ZSTD_LEVEL = 3
"""Kafka's default levels (KIP-390)."""

_STREAMS = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}
_FULL = "failed to write whole buffer"
"""cramjam's error text for a full output buffer."""

_SNAPPY_JAVA_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_JAVA_HEADER = _SNAPPY_JAVA_MAGIC + struct.pack(">ii", 1, 1)
_SNAPPY_JAVA_BLOCK_BYTES = 32 * 1024
_SNAPPY_JAVA_BLOCKS_MAX = 16 * 1024
"""Most blocks, since each costs a call, however small. Writers fill blocks of 32 KiB, or of 1 KiB at least."""
_SNAPPY_LARGEST_RATIO = 64
"""Bound on the claimed expansion: in raw snappy a copy of 64 bytes takes three."""

_LZ4_HEADER = bytes.fromhex("04224d18 60 40 82")
"""Magic; version 1, independent blocks, no checksums; blocks of at most 64 KiB; checksum of these two bytes."""
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x80000000
_LZ4_SIZE = struct.Struct("<I")
_UINT8 = np.dtype(np.uint8)
_LZ4_END = b"\x00\x00\x00\x00"


def compress(codec: int, data: Any) -> bytes:
    """Compress `data` (bytes-like) with the codec of a batch's attributes (1 to 4; 0 returns it unchanged).

    Raise `UnsupportedCompressionTypeError` for an unknown codec.
    """
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data, level=GZIP_LEVEL))
    if codec == SNAPPY:
        return _compress_snappy_java(memoryview(data))
    if codec == LZ4:
        return _compress_lz4(memoryview(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=ZSTD_LEVEL))
    raise UnsupportedCompressionTypeError(f"unknown compression type {codec}")


def decompress(codec: int, data: Any, limit: int) -> Bytes:
    """Decompress `data` (bytes-like) to at most `limit` bytes (uint8).

    Raise `InvalidRecordError` if the data is damaged, `DecompressedTooLargeError` if it exceeds the limit,
    `UnsupportedCompressionTypeError` for an unknown codec.
    """
    if codec == SNAPPY:
        return _decompress_snappy(memoryview(data), limit)
    if codec in _STREAMS:
        plain = _decompress_lz4(memoryview(data), limit) if codec == LZ4 else None
        return _decompress_stream(codec, data, limit) if plain is None else plain
    raise UnsupportedCompressionTypeError(f"unknown compression type {codec}")


def _too_large(codec: int, limit: int) -> DecompressedTooLargeError:
    return DecompressedTooLargeError(f"{NAMES[codec]} records are larger than {limit} bytes when decompressed")


def _damaged(codec: int, reason: object) -> InvalidRecordError:
    return InvalidRecordError(f"{NAMES[codec]} records cannot be decompressed: {reason}")


def _decompress_stream(codec: int, data: Any, limit: int) -> Bytes:
    """Decompress into a buffer that grows up to the limit, for formats that need not state their size."""
    room = min(limit, max(16 * 1024, 8 * len(data)))
    while True:
        out = np.empty(room, dtype=np.uint8)
        try:
            return out[: _STREAMS[codec].decompress_into(data, out)]
        except cramjam.DecompressionError as error:
            if _FULL not in str(error):
                raise _damaged(codec, error) from None
        if room == limit:
            raise _too_large(codec, limit)
        room = min(limit, 8 * room)


def _decompress_lz4(data: memoryview, limit: int) -> Bytes | None:
    """Decompress a whole frame with the header that Java's client, librdkafka and kafkalake write, in less time than a stream's.

    Return None for any other frame, one that is damaged, and one that might exceed the limit: then the stream's result counts.
    """
    blocks, room = _lz4_blocks(data)
    if not 0 < room <= limit:
        return None
    if len(blocks) == 1 and blocks[0][2]:
        start, length, _ = blocks[0]
        return np.frombuffer(data, _UINT8, length, start)
    out: Any = np.empty(room, _UINT8)
    end = 0
    for start, length, stored in blocks:
        if stored:
            out[end : end + length] = np.frombuffer(data, _UINT8, length, start)
            end += length
            continue
        into = out[end : end + _LZ4_BLOCK_BYTES]
        try:
            end += cramjam.lz4.decompress_block_into(data[start : start + length], into, output_len=len(into))
        except cramjam.DecompressionError:
            return None
    plain: Bytes = out[:end]
    return plain


def _lz4_blocks(data: memoryview) -> tuple[list[tuple[int, int, bool]], int]:
    """Return (start, length, whether stored) of each block, and the room they need, if `data` is one frame with `_LZ4_HEADER`."""
    blocks: list[tuple[int, int, bool]] = []
    room = 0
    position = len(_LZ4_HEADER)
    if data[:position] == _LZ4_HEADER:
        while len(data) - position >= _LZ4_SIZE.size:
            (size,) = _LZ4_SIZE.unpack_from(data, position)
            position += _LZ4_SIZE.size
            if not size:
                return (blocks, room) if position == len(data) else ([], 0)
            stored = size >= _LZ4_STORED
            length = size & ~_LZ4_STORED
            # Only the last block is shorter than others: a frame of many small ones would cost more than a stream's.
            if room % _LZ4_BLOCK_BYTES or not 0 < length <= min(_LZ4_BLOCK_BYTES, len(data) - position):
                break
            blocks.append((position, length, stored))
            room += length if stored else _LZ4_BLOCK_BYTES
            position += length
    return [], 0


def _compress_lz4(data: memoryview) -> bytes:
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        packed = pa.compress(pa.py_buffer(block), codec="lz4_raw", asbytes=True)
        if len(packed) < len(block):
            parts += [_LZ4_SIZE.pack(len(packed)), packed]
        else:
            parts += [_LZ4_SIZE.pack(len(block) | _LZ4_STORED), bytes(block)]
    return b"".join([*parts, _LZ4_END])


def _compress_snappy_java(data: memoryview) -> bytes:
    parts = [_SNAPPY_JAVA_HEADER]
    for start in range(0, len(data), _SNAPPY_JAVA_BLOCK_BYTES):
        packed = bytes(cramjam.snappy.compress_raw(data[start : start + _SNAPPY_JAVA_BLOCK_BYTES]))
        parts += [struct.pack(">i", len(packed)), packed]
    return b"".join(parts)


def _decompress_snappy(data: memoryview, limit: int) -> Bytes:
    if data[: len(_SNAPPY_JAVA_MAGIC)] != _SNAPPY_JAVA_MAGIC:
        return _snappy_block(data, limit)
    blocks: list[Bytes] = []
    left = limit
    position = len(_SNAPPY_JAVA_HEADER)
    while position < len(data):
        if data[position : position + len(_SNAPPY_JAVA_MAGIC)] == _SNAPPY_JAVA_MAGIC:  # concatenated streams
            position += len(_SNAPPY_JAVA_HEADER)
            continue
        if len(data) - position < 4:
            raise _damaged(SNAPPY, "a block's length is cut short")
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if len(blocks) == _SNAPPY_JAVA_BLOCKS_MAX:
            raise _damaged(SNAPPY, f"more than {_SNAPPY_JAVA_BLOCKS_MAX} blocks")
        if length < 0 or length > len(data) - position:
            raise _damaged(SNAPPY, f"a block of {length} bytes, with {len(data) - position} left")
        blocks.append(_snappy_block(data[position : position + length], left))
        left -= len(blocks[-1])
        position += length
    return blocks[0] if len(blocks) == 1 else np.concatenate([np.empty(0, dtype=np.uint8), *blocks])


def _snappy_block(data: memoryview, limit: int) -> Bytes:
    try:
        length = cramjam.snappy.decompress_raw_len(data)
        if length > _SNAPPY_LARGEST_RATIO * len(data):
            raise _damaged(SNAPPY, f"{len(data)} bytes claim to hold {length}")
        if length > limit:
            raise _too_large(SNAPPY, limit)
        out: Any = np.empty(length, dtype=np.uint8)
        plain: Bytes = out[: cramjam.snappy.decompress_raw_into(data, out)]
        return plain
    except cramjam.DecompressionError as error:
        raise _damaged(SNAPPY, error) from None
