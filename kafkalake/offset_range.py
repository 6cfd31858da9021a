"""A range of offsets of one partition, with which a transaction is known in the log, between brokers and in publishing."""

from __future__ import annotations

from typing import NamedTuple


class OffsetRange(NamedTuple):
    """The first and the last offset. Of a transaction's records, others may lie between them."""

    first_offset: int
    last_offset: int
