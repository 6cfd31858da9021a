"""Codecs: both ways, the forms that other clients write, and input that is made to harm."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import cramjam
import pyarrow as pa
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from wire_batches import raw_batch, record

from kafkalake.errors import DecompressedTooLargeError, InvalidRecordError, UnsupportedCompressionTypeError
from kafkalake.wire import compression
from kafkalake.wire.record_batch import BatchLimits, decode_produced

CODECS = [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD]
LIMIT = 1 << 20


def plain(codec: int, data: bytes, limit: int = LIMIT) -> bytes:
    return compression.decompress(codec, data, limit).tobytes()


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=5_000) | st.binary(max_size=50).map(lambda each: each * 3_000))
@examples(100)
def test_what_is_compressed_is_decompressed_again(codec: int, data: bytes) -> None:
    assert plain(codec, compression.compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_the_limit_is_the_largest_size(codec: int) -> None:
    packed = compression.compress(codec, b"x" * LIMIT)
    assert len(plain(codec, packed, LIMIT)) == LIMIT
    with pytest.raises(DecompressedTooLargeError, match="larger than"):
        plain(codec, packed, LIMIT - 1)


@pytest.mark.parametrize("codec", [0, 5, 6, 7])
def test_an_unknown_codec_is_named(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=str(codec)):
        compression.decompress(codec, b"", LIMIT)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=200))
@examples(200)
def test_arbitrary_bytes_give_an_error_or_some_bytes(codec: int, data: bytes) -> None:
    for each in (data, compression.compress(codec, data)[:10] + data):
        with contextlib.suppress(InvalidRecordError, DecompressedTooLargeError):
            assert len(plain(codec, each, 10_000)) <= 10_000


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_gives_an_error_or_fewer_bytes(codec: int) -> None:
    data = bytes(range(256)) * 40
    packed = compression.compress(codec, data)
    for length in range(len(packed)):
        with contextlib.suppress(InvalidRecordError, DecompressedTooLargeError):
            assert data.startswith(plain(codec, packed[:length]))


def test_snappy_is_read_in_both_forms() -> None:
    data = b"snappy " * 20_000
    raw = bytes(cramjam.snappy.compress_raw(data))
    assert plain(compression.SNAPPY, raw) == data
    java = compression.compress(compression.SNAPPY, data)
    assert java.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert plain(compression.SNAPPY, java) == data
    assert plain(compression.SNAPPY, java + java) == data * 2


def test_snappy_frames_read_by_kafka_python() -> None:
    from kafka.codec import snappy_decode, snappy_encode

    data = bytes(range(256)) * 1_000
    assert snappy_decode(compression.compress(compression.SNAPPY, data)) == data
    assert plain(compression.SNAPPY, snappy_encode(data, xerial_compatible=True)) == data
    assert plain(compression.SNAPPY, snappy_encode(data, xerial_compatible=False)) == data


@pytest.mark.parametrize("length", [-1, 5, 2**31 - 1])
def test_a_snappy_frame_is_not_believed(length: int) -> None:
    header = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    with pytest.raises(InvalidRecordError):
        plain(compression.SNAPPY, header + struct.pack(">i", length) + b"abc")


def test_lz4_frames_have_independent_blocks() -> None:
    """Kafka's Java client reads no others. Blocks that do not get smaller are stored as they are."""
    data = bytes(cramjam.gzip.compress(bytes(range(256)) * 1_000, level=0))
    packed = compression.compress(compression.LZ4, data + bytes(100_000))
    assert packed[4] & 0x20
    assert bytes(cramjam.lz4.decompress(packed)) == data + bytes(100_000)


@pytest.mark.parametrize("size", [1, 65_535, 65_536, 65_537, 200_000])
def test_lz4_frames_are_read_as_blocks_and_as_streams(size: int) -> None:
    """Blocks are read from frames as Kafka's clients write them; any other frame, and several together, are read as a stream."""
    for data in (
        bytes(size),
        random.Random(size).randbytes(size),
        (b"x" * 100_000 + random.Random(1).randbytes(size))[-size:],
    ):
        blocks = compression.compress(compression.LZ4, data)
        assert plain(compression.LZ4, blocks) == data
        assert plain(compression.LZ4, bytes(cramjam.lz4.compress(data))) == data
        assert plain(compression.LZ4, blocks + blocks) == data * 2


@pytest.mark.parametrize("length", [0, 1])
def test_a_frame_of_very_many_small_lz4_blocks_costs_no_more_than_a_stream(length: int) -> None:
    """Each block costs its header alone: a megabyte has two hundred thousand of them, and a request a hundred megabytes."""
    small = struct.pack("<I", length | 0x8000_0000) + b"x" * length
    frame = bytes.fromhex("04224d18604082") + 200_000 * small + struct.pack("<I", 1 | 0x8000_0000) + b"y" + bytes(4)
    began = time.process_time()
    assert plain(compression.LZ4, frame) == b"x" * (200_000 * length) + b"y"
    assert time.process_time() - began < 0.15


@pytest.mark.parametrize("block", [65_536, 65_537, 100_000])
def test_a_block_of_an_lz4_frame_has_at_most_64_kib(block: int) -> None:
    packed = pa.compress(bytes(block), codec="lz4_raw", asbytes=True)
    frame = bytes.fromhex("04224d18604082") + struct.pack("<I", len(packed)) + packed + bytes(4)
    if block > 65_536:
        with pytest.raises(InvalidRecordError):
            plain(compression.LZ4, frame)
    else:
        assert plain(compression.LZ4, frame) == bytes(block)


def test_gzip_members_are_joined() -> None:
    assert plain(compression.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


def bomb(codec: int, size: int) -> bytes:
    """Compressed zeros, made piece by piece."""
    piece = bytes(1 << 20)
    if codec == compression.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(piece))
        frame = struct.pack(">i", len(block)) + block
        return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + frame * (size >> 20)
    if codec == compression.GZIP:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        return b"".join([*(packer.compress(piece) for _ in range(size >> 20)), packer.flush()])
    stream = (cramjam.lz4 if codec == compression.LZ4 else cramjam.zstd).Compressor()
    parts = []
    for _ in range(size >> 20):
        stream.compress(piece)
        parts.append(bytes(stream.flush()))
    return b"".join([*parts, bytes(stream.finish())])


_DECODE_BOMB = """
import resource, sys
from pathlib import Path
from kafkalake.errors import DecompressedTooLargeError
from kafkalake.wire.record_batch import BatchLimits, decode_produced
limits = BatchLimits(max_message_bytes=1 << 30, max_decompressed_bytes=8 << 20)
data = Path(sys.argv[1]).read_bytes()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decode_produced(data, limits)
except DecompressedTooLargeError as error:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, error)
"""


@pytest.mark.process
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_than_the_limit(codec: int, tmp_path: Path) -> None:
    """128 MiB of zeros in at most 7 MB: refused, and the process has grown by less than 32 MiB for a limit of 8."""
    path = tmp_path / "bomb"
    path.write_bytes(raw_batch(bomb(codec, 128 << 20), 1_000, attributes=codec))
    done = subprocess.run(
        [sys.executable, "-c", _DECODE_BOMB, str(path)], capture_output=True, text=True, check=True, timeout=120
    )
    grown_kib, _, message = done.stdout.partition(" ")
    assert "larger than" in message
    assert int(grown_kib) < 32 * 1024


def test_a_small_claim_of_much_snappy_costs_nothing() -> None:
    """Raw snappy says its size first: 100 MiB claimed by eleven bytes."""
    with pytest.raises(InvalidRecordError, match="claim"):
        plain(compression.SNAPPY, b"\x80\x80\x80\x32" + b"\0" * 7, 200 << 20)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_within_the_limit_is_taken(codec: int) -> None:
    records = record(value=bytes(100_000))
    data = raw_batch(compression.compress(codec, records), 1, attributes=codec)
    assert decode_produced(data, BatchLimits(max_decompressed_bytes=len(records))).rows == 1
    with pytest.raises(DecompressedTooLargeError):
        decode_produced(data, BatchLimits(max_decompressed_bytes=len(records) - 1))
