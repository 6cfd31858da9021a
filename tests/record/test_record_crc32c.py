"""The checksum is CRC32C, on a processor with the instruction and on one without."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import crc32c as reference
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalake.record import crc32c


def without_instruction(directory: Path) -> ModuleType:
    """The module as a processor without SSE 4.2 would load it."""
    source = Path(crc32c.__file__).read_text()
    lines = ["_HARDWARE = False" if line.startswith("_HARDWARE = ") else line for line in source.splitlines()]
    assert "_HARDWARE = False" in lines
    path = directory / "crc32c_in_tables.py"
    path.write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location("crc32c_in_tables", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.exhaustive
def test_both_ways_give_the_checksum_of_rfc_3720(tmp_path: Path) -> None:
    data = np.frombuffer(os.urandom(10_000), dtype=np.uint8)
    for module in (crc32c, without_instruction(tmp_path)):
        for start, end in [(0, 0), (0, 1), (3, 10), (1, 9), (5, 1_234), (0, 10_000)]:
            assert int(module.checksum(data, start, end)) == reference.crc32c(data[start:end].tobytes())


@pytest.mark.parametrize(("data", "expected"), [(b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (b"", 0)])
def test_known_checksums(data: bytes, expected: int) -> None:
    assert int(crc32c.checksum(np.frombuffer(data, dtype=np.uint8), 0, len(data))) == expected


@pytest.mark.parametrize("begin", [0, 3])
@pytest.mark.parametrize("length", [3_071, 3_072, 3_073, 6_143, 6_144, 6_153, 20_000])
def test_lanes_side_by_side_give_the_checksum_of_one(begin: int, length: int) -> None:
    data = np.random.default_rng(length).integers(0, 256, begin + length, dtype=np.uint8)
    assert int(crc32c.checksum(data, begin, begin + length)) == reference.crc32c(data[begin:].tobytes())


@settings(deadline=None)
@given(data=st.data(), length=st.sampled_from([14, 61, 1_023, 1_024, 1_025, 5_000, 100_000]))
def test_a_change_of_some_bytes_changes_the_checksum_as_if_all_were_read_again(
    data: st.DataObject, length: int
) -> None:
    before = bytearray(np.random.default_rng(length).bytes(length))
    start = data.draw(st.integers(0, length - 14))
    change = data.draw(st.binary(max_size=14))
    after = bytearray(before)
    for index, byte in enumerate(change):
        after[start + index] ^= byte
    changed = crc32c.checksum_change(np.frombuffer(change, dtype=np.uint8), length - start - len(change))
    assert reference.crc32c(bytes(before)) ^ int(changed) == reference.crc32c(bytes(after))
