"""The compression codecs of Kafka's record batches: names, and numbers in a batch's attributes."""

from __future__ import annotations

from enum import StrEnum


class Codec(StrEnum):
    """A codec by Kafka's name, in the order of the numbers."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


NAMES = tuple(codec.value for codec in Codec)
"""Codec names by number."""

NUMBERS = {name: number for number, name in enumerate(NAMES)} | {"uncompressed": 0}
"""Codec numbers by name. A topic's `compression.type` has its own name for none."""
