"""Batches that the broker writes itself: the columns are what Arrow makes of the same keys and values."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from manual_clock import ManualClock

from kafkalake.record.build import Pair, build_batch, read_batches
from kafkalake.storage.config import LogConfig
from kafkalake.storage.log import Log
from kafkalake.wire.arrow_batch import batch_from_arrow

PAIRS: dict[str, list[Pair]] = {
    "one": [(b"key", b"value")],
    "a tombstone": [(b"key", None)],
    "nulls and empty ones": [(b"a", b""), (None, b"x"), (b"", None), *[(b"%d" % n, None) for n in range(20)]],
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_batch_is_what_arrow_makes_of_the_same_pairs(name: str) -> None:
    pairs = PAIRS[name]
    built = build_batch(pairs, 1_700_000_000_000, producer_id=7, producer_epoch=2, transactional=True)
    keys, values = zip(*pairs, strict=True)
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    wanted = batch_from_arrow(
        table, timestamp_ms=1_700_000_000_000, producer_id=7, producer_epoch=2, transactional=True
    )
    built.to_arrow().validate(full=True)
    assert built.to_arrow() == wanted.to_arrow()
    assert built.header.tolist() == wanted.header.tolist()


def test_batches_come_back_from_the_log_one_by_one(tmp_path: Path) -> None:
    log = Log.open(tmp_path, LogConfig(), ManualClock())
    batches = [build_batch(pairs, 5) for pairs in PAIRS.values()]
    batches.append(build_batch([(b"k", b"v")], 5, producer_id=9, producer_epoch=1, transactional=True))
    log.append(batches, 0)
    log.advance_high_watermark(log.log_end_offset)
    read = list(read_batches(log.read(0, 1 << 20)))
    assert [batch.pairs for batch in read] == [*PAIRS.values(), [(b"k", b"v")]]
    assert [batch.base_offset for batch in read] == [0, 1, 2, 25]
    assert [batch.producer_id for batch in read] == [-1, -1, -1, 9]
    assert {batch.committed for batch in read} == {None}
    log.close()
