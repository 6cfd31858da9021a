"""What changes the log of a leader in a thread, while another broker is elected: whoever is to follow waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker.replica_pairs import data_of, run
from broker.test_replicas import HERE, KEY, OTHER, Here, T, registered
from record_batches import simple_batch
from storage.partition_logs import append

from kafkalake.broker.partitions.purgatory import Purgatory, Timers
from kafkalake.broker.publishing.partitions import PartitionReporter
from kafkalake.clock import Deadline
from kafkalake.server.handlers import delete_records
from kafkalake.wire.messages.records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

Changing = Callable[[Here, Callable[[Callable[[], Any]], Awaitable[Any]]], Awaitable[object]]


async def _delete(here: Here, run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
    """Handle a request that deletes all records."""

    async def turn() -> None:
        pass

    broker = SimpleNamespace(
        run_blocking=run_blocking,
        moved=lambda partition: None,
        clock=here.clock,
        topics=here.topics,
        purgatory=Purgatory(Timers(here.clock)),
    )
    topic = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])
    request: Any = SimpleNamespace(
        body=DeleteRecordsRequest(topics=[topic], timeout=0),
        context=SimpleNamespace(broker=broker),
        allows=lambda *of: True,
        turn=turn,
        deadline=partial(Deadline, here.clock),
    )
    response = await delete_records.handle(request)
    assert response.topics[0].partitions[0].error_code, "it is led elsewhere"


async def _follow_job(here: Here, run_blocking: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
    """Raise the log start to where a job has raised it."""
    store: Any = SimpleNamespace(raised_log_starts=lambda leader: {(str(T), 0): 3}, load_swapped=lambda since: None)
    reporter = PartitionReporter(Path("lake"), HERE, store, here.clock, run_blocking)
    reporter.partition_added(here.partition())
    await reporter._look_for_jobs()


@pytest.mark.parametrize("change", [_delete, _follow_job])
def test_a_log_start_does_not_move_any_more_once_the_log_follows_another_leader(
    tmp_path: Path, change: Changing
) -> None:
    """It rolled the log where the leader did not, and removed the segment in which the leader's next messages belong."""

    async def test() -> None:
        here, may_run = Here(tmp_path), asyncio.Event()

        async def run_late(work: Callable[[], Any]) -> Any:
            await may_run.wait()
            return await asyncio.to_thread(work)

        await here.follow(registered(HERE, 1))
        partition = here.partition()
        for number in range(3):
            append(partition.log, simple_batch([b"%d" % number]), epoch=1)
        changing = asyncio.ensure_future(change(here, run_late))
        await asyncio.sleep(0)
        other = here.lead_elsewhere(2)
        following = asyncio.ensure_future(here.follow(registered(OTHER, 2)))

        def has_followed() -> bool:
            return here.replicas.fetchers.find(KEY) is not None and data_of(here.log_followed()) == data_of(other)

        await here.until(lambda: bool(partition.refusal and partition.under_way) or has_followed())
        may_run.set()
        await changing
        await following
        append(other, simple_batch([b"goes on"]), epoch=2)
        here.leaders.appended()
        await here.until(has_followed)
        await here.replicas.stop_following()

    run(test)
