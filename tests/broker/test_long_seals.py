"""A leader seals a segment of many messages: they are listed in a thread, and the event loop goes on."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faulty_files import FaultyFiles
from leaderships import LedPartition, sole_replica

from kafkalake.storage import active_segment
from kafkalake.storage.segment import FIRST_MESSAGE

MESSAGES = 50
"""As many as there are in a segment, of which `LISTED` are listed at once."""
LISTED = 8
VALUE = b"v" * 100


class _Files(FaultyFiles):
    """Real files that count the bytes which the event loop reads, and may fail to read in threads."""

    def __init__(self) -> None:
        super().__init__()
        self.is_in_thread = self.fails_in_threads = False
        self.read_by_loop = 0
        self.reads_in_threads = 0

    def read(self, descriptor: int, length: int, position: int) -> bytes:
        data = super().read(descriptor, length, position)
        self._count(len(data))
        return data

    def view(self, descriptor: int, length: int, position: int) -> Any:
        data = super().view(descriptor, length, position)
        self._count(len(data))
        return data

    def _count(self, size: int) -> None:
        if not self.is_in_thread:
            self.read_by_loop += size
            return
        self.reads_in_threads += 1
        if self.fails_in_threads:
            raise OSError(errno.EIO, "the disk fails on purpose")


class _Led(LedPartition):
    """A partition led alone. What is run in a thread waits until `finish_threads`."""

    files: _Files

    def __init__(self, directory: Path, **config: int) -> None:
        self.held: list[asyncio.Event] = []
        super().__init__(directory, sole_replica(0, 5), files=_Files(), **config)

    async def _in_thread(self, work: Callable[[], None]) -> None:
        self.held.append(event := asyncio.Event())
        await event.wait()
        self.files.is_in_thread = True
        try:
            work()
        finally:
            self.files.is_in_thread = False

    async def finish_threads(self) -> None:
        while self.held or self.turns or self.partition.syncing:
            for event in self.held:
                event.set()
            self.held.clear()
            await asyncio.sleep(0)
            self.turn()

    def fill(self) -> int:
        """Append until the next batch begins another segment, as its bytes say. Return the bytes of a message."""
        for _ in range(MESSAGES):
            assert self.produce(VALUE) != []
        (active,) = self.log._segments.listed.in_order()
        size = (active.end() - FIRST_MESSAGE) // MESSAGES
        self.log.configure(replace(self.log.config, segment_bytes=active.end() + size // 2))
        return size


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(active_segment, "LISTED_AT_ONCE", LISTED)
    return


def _check_segments(led: _Led, directory: Path, records: int) -> None:
    led.log.close()
    found = [pa.ipc.open_file(path) for path in sorted(directory.glob("*.arrow"))]
    assert len(found) == 2
    assert found[0].num_record_batches == MESSAGES
    assert (
        sum(each.get_batch(number).num_rows for each in found for number in range(each.num_record_batches)) == records
    )


def test_messages_are_listed_in_a_thread_before_their_segment_is_sealed(tmp_path: Path) -> None:
    led = _Led(tmp_path)

    async def run() -> None:
        size = led.fill()
        led.files.read_by_loop = 0
        first, second = led.produce(VALUE), led.produce(VALUE)
        assert (first, second) == ([], []), "both wait for the list"
        await led.finish_threads()
        assert (first, second) == ([MESSAGES], [MESSAGES + 1])
        assert led.files.read_by_loop < LISTED * size
        assert led.produce(VALUE) == [MESSAGES + 2], "nothing more waits"

    asyncio.run(run())
    _check_segments(led, tmp_path, MESSAGES + 3)


def test_a_segment_that_ends_by_time_is_listed_as_well(tmp_path: Path) -> None:
    led = _Led(tmp_path)

    async def run() -> None:
        size = led.fill()
        led.log.configure(replace(led.log.config, segment_bytes=1 << 30, segment_ms=0))
        led.files.read_by_loop = 0
        answers = led.produce(VALUE)
        await led.finish_threads()
        assert answers == [MESSAGES]
        assert led.files.read_by_loop < LISTED * size

    asyncio.run(run())


def test_a_list_that_fails_is_made_by_the_seal(tmp_path: Path) -> None:
    led = _Led(tmp_path)

    async def run() -> None:
        led.fill()
        led.files.fails_in_threads = True
        answers = led.produce(VALUE)
        await led.finish_threads()
        assert (answers, led.files.reads_in_threads) == ([MESSAGES], 1)

    asyncio.run(run())
    _check_segments(led, tmp_path, MESSAGES + 1)


def test_a_leader_that_resigns_meanwhile_refuses_what_waits(tmp_path: Path) -> None:
    led = _Led(tmp_path)

    async def run() -> None:
        led.fill()
        answers = led.produce(VALUE)
        led.partition.resign()
        led.queue.leave(led.partition)
        await led.finish_threads()
        assert answers == ["NOT_LEADER_OR_FOLLOWER"]
        assert led.log.log_end_offset == MESSAGES

    asyncio.run(run())


def test_a_log_that_is_cut_while_its_messages_are_listed_is_sealed_as_it_is(tmp_path: Path) -> None:
    led = _Led(tmp_path)
    led.fill()
    led.log.list_messages()
    led.log.truncate_to(MESSAGES - 10, below_high_watermark=True)
    led.log.list_messages()
    led.log.close()
    (path,) = tmp_path.glob("*.arrow")
    assert pa.ipc.open_file(path).num_record_batches == MESSAGES - 10
