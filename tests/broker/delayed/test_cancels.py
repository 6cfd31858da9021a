"""Many cancels, and many records that could be cancelled, cost the event loop milliseconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from broker.delayed.delayed_world import SOURCE, START_MS, DelayedWorld, Sent, run, started

from kafkalake.broker.delayed.due_index import DueIndex
from kafkalake.broker.delayed.journal_state import JournalState
from kafkalake.broker.delayed.rows import WaitingRows, waiting_rows
from kafkalake.record.message_set import MessageSet
from kafkalake.storage.temporary_files import TemporaryFiles

CANCELS = 25_000
"""About as many as a batch of the default max.message.bytes has."""
RECORDS = 5_000
"""As many as a round hands over."""
HELD_S_MAX = 0.1
FAR = START_MS + 86_400_000


async def journal_of(world: DelayedWorld, records: list[Sent], *, transactional: bool) -> MessageSet:
    """Return what the journal has of records that are handed in."""
    base = world.led.log.log_end_offset
    producer_id = 7 if transactional else -1
    world.hand_in(records, producer_id=producer_id, sequence=0 if transactional else -1, transactional=transactional)
    await world.pass_time(1)
    if transactional:
        world.end_transaction(7, committed=True)
    return world.led.log.read(base, 1 << 30)


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time that this thread takes for some work."""
    began_s = time.thread_time()
    work()
    return time.thread_time() - began_s


@pytest.mark.exhaustive
@pytest.mark.parametrize("transactional", [False, True])
def test_a_batch_of_cancels_does_not_hold_the_event_loop(tmp_path: Path, transactional: bool) -> None:
    names = [b"id-%d" % number for number in range(CANCELS)]

    async def scenario() -> None:
        world = await started(tmp_path)
        waits = await journal_of(world, [Sent(b"v", FAR, name) for name in names[:RECORDS]], transactional=False)
        cancels = await journal_of(world, [Sent(None, -1, name) for name in names[::2]], transactional=transactional)
        again = await journal_of(world, [Sent(b"v", FAR, name) for name in names[:10]], transactional=False)
        others = await journal_of(world, [Sent(None, -1, name) for name in names[1::2]], transactional=False)
        files = TemporaryFiles(str(tmp_path), world.led.files, "test-")
        state = JournalState(waits.base_offset, DueIndex(START_MS, files, 1 << 20))
        state.follow(waits)
        for part in (cancels, again):
            assert seconds(lambda part=part: state.follow(part)) < HELD_S_MAX / 2  # type: ignore[misc]
        assert state.cancels_held == CANCELS // 2

        rows: WaitingRows = waiting_rows(waits, np.arange(waits.base_offset, waits.base_offset + RECORDS))
        headers, fields = rows.batch.column("headers"), rows.fields
        assert seconds(lambda: state.cancels.are_cancelled(headers, fields)) < HELD_S_MAX / 2
        assert state.cancels.are_cancelled(headers, fields).tolist() == [True, False] * (RECORDS // 2)
        later: WaitingRows = waiting_rows(again, np.arange(again.base_offset, again.base_offset + 10))
        assert not state.cancels.are_cancelled(later.batch.column("headers"), later.fields).any(), (
            "sent after the cancels"
        )
        elsewhere = fields.copy()
        elsewhere["source_id"] = np.void(SOURCE.bytes[::-1])
        assert not state.cancels.are_cancelled(headers, elsewhere).any(), "of another source"
        state.follow(others)
        assert state.cancels_held == CANCELS

    run(scenario())
