"""Bytes as files and connections give and take them. Arrays of kernels are in `record/arrays.py`."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
