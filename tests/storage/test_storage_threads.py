"""A log that is read, flushed and searched in threads while one thread appends, rolls and deletes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from partition_logs import accepted, open_log
from record_batches import rows_of, simple_batch

from kafkalake.errors import OffsetOutOfRangeError

ROUNDS = 900


@pytest.mark.exhaustive
def test_readers_see_whole_and_right_records_while_the_log_changes(memory_path: Path) -> None:
    log = open_log(memory_path, segment_bytes=20_000, index_interval_bytes=1_000)
    done = threading.Event()
    failures: list[BaseException] = []

    def reader(seed: int) -> None:
        random = Random(seed)
        while not done.is_set():
            start, end = log.log_start_offset, log.high_watermark
            if start >= end:
                continue
            offset = random.randrange(start, end)
            try:
                messages = log.read(offset, random.choice([1, 10_000]))
                found = log.offset_for_timestamp(offset)
            except OffsetOutOfRangeError:
                assert offset < log.log_start_offset
                continue
            assert messages.base_offset <= offset < messages.next_offset
            for at, row in rows_of(messages):
                assert row[2] == b"%d" % at
            assert found is None or found.timestamp >= offset

    def flusher() -> None:
        while not done.is_set():
            log.flush()
            log.flush_sealed()

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        return run

    jobs = [guarded(lambda seed=seed: reader(seed)) for seed in range(3)] + [guarded(flusher)]  # type: ignore[misc]
    threads = [threading.Thread(target=job) for job in jobs]
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0002)  # or the appending thread waits for each of the others
    for thread in threads:
        thread.start()
    try:
        for n in range(ROUNDS):
            offset = 2 * n
            batch = simple_batch([b"%d" % offset, b"%d" % (offset + 1)], timestamp=offset)
            assert accepted(log.append([batch], 0)[0]).base_offset == offset
            log.advance_high_watermark(offset + 2)
            if n % 100 == 99:
                log.delete_records_before(offset - 70)
            assert not failures
    finally:
        done.set()
        for thread in threads:
            thread.join(30)
        sys.setswitchinterval(interval_s)
    assert not failures
    assert log.log_end_offset == 2 * ROUNDS
