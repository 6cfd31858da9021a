"""What the tests of `record` share: messages as the log writes them, and hypothesis strategies for rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from kafkalake.record import layout as at
from kafkalake.record.batch import ProducerBatch
from kafkalake.record.merge import merge_bodies, merged_bound
from kafkalake.record.message import IN_BODY, frame, metadata_bytes
from kafkalake.record.message_set import compress_body

OPTIONAL_BYTES = st.none() | st.binary(max_size=60)
ROW = st.tuples(
    st.integers(0, 2**60),
    OPTIONAL_BYTES,
    OPTIONAL_BYTES,
    st.lists(st.tuples(st.text(max_size=5), OPTIONAL_BYTES), max_size=3),
)
BATCHES = st.lists(st.lists(ROW, min_size=1, max_size=9), min_size=1, max_size=5)


def message_of(batches: Sequence[ProducerBatch], base_offset: int = 0, codec: int = at.NO_CODEC) -> bytes:
    """One Arrow message of `batches`, which get offsets from `base_offset` on."""
    offset = base_offset
    for batch in batches:
        batch.header[at.BASE_OFFSET] = offset
        offset += batch.offsets
    bodies = np.concatenate([batch.body for batch in batches])
    starts = np.cumsum([0, *(len(batch.body) for batch in batches[:-1])]).astype(np.int64)
    layouts = np.stack([batch.layout for batch in batches])
    headers = np.stack([batch.header for batch in batches])
    position = int(metadata_bytes(len(batches)))
    out = np.empty(position + int(merged_bound(layouts, at.ALL_COLUMNS)), dtype=np.uint8)
    merged = np.zeros(at.LAYOUT_SIZE, dtype=np.int64)
    length = int(merge_bodies(bodies, starts, layouts, headers, out, position, merged, False))
    assert position + length <= len(out), "the bound holds"
    if codec != at.NO_CODEC:
        stored, merged = compress_body(out[position : position + length], merged, codec)
        length = len(stored)
        out = np.concatenate([out[:position], stored])
    end = int(frame(out, length, merged, headers, codec, np.zeros(64, dtype=np.uint8), IN_BODY))
    return out[:end].tobytes()


def as_array(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """uint8 over bytes."""
    return np.frombuffer(data, dtype=np.uint8)
