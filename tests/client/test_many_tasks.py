"""Very many tasks on one client for an event loop: each gets its answer, for work that does not grow with their number."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from kafka_reference import Kafkalake

from kafkalake import aio
from kafkalake.client.errors import ClientClosedError
from kafkalake.clock import SystemClock
from kafkalake.errors import BrokerUnavailableError

TASKS = 400


class CountingClock(SystemClock):
    """The clock of the machine. It is looked at each time that a task goes on."""

    looks = 0

    def monotonic_ms(self) -> int:
        self.looks += 1
        return super().monotonic_ms()


@pytest.fixture
def address(_shared_kafkalake: Kafkalake) -> str:
    return _shared_kafkalake.bootstrap_servers


def test_more_tasks_than_requests_in_flight_take_turns_and_none_fails(address: str) -> None:
    async def scenario() -> None:
        async with aio.Admin(bootstrap_servers=address, retries=0) as admin:
            ids = await asyncio.gather(*[admin.cluster_id() for _ in range(TASKS)])
            assert len(set(ids)) == 1

    asyncio.run(scenario())


def test_an_answer_concerns_the_task_that_waits_for_it(address: str) -> None:
    async def looks_of(tasks: int) -> float:
        clock = CountingClock()
        async with aio.Admin(bootstrap_servers=address, clock=clock) as admin:
            await asyncio.gather(*[admin.cluster_id() for _ in range(tasks)])
        return clock.looks / tasks

    assert asyncio.run(looks_of(TASKS)) < 2 * asyncio.run(looks_of(TASKS // 10))


def test_tasks_in_line_that_are_cancelled_let_the_others_pass(address: str) -> None:
    async def scenario() -> None:
        async with aio.Admin(bootstrap_servers=address, retries=0) as admin:
            tasks = [asyncio.ensure_future(admin.cluster_id()) for _ in range(TASKS)]
            for turn in range(TASKS):
                if turn % 3 != 1:
                    tasks[turn].cancel()
                await asyncio.sleep(0)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(each) for each in results} == {str, asyncio.CancelledError}
            assert all(isinstance(each, str) for each in results[1::3])
            assert await admin.cluster_id() in results

    asyncio.run(scenario())


def test_tasks_in_line_end_when_the_client_is_closed(address: str) -> None:
    async def scenario() -> None:
        admin = aio.Admin(bootstrap_servers=address)
        tasks = [asyncio.ensure_future(admin.cluster_id()) for _ in range(TASKS)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await admin.close()
        async with asyncio.timeout(10):
            results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in results} == {str, ClientClosedError}

    asyncio.run(scenario())


def test_tasks_in_line_hear_that_no_broker_is_left(kafkalake_broker: Callable[..., Kafkalake]) -> None:
    broker = kafkalake_broker()

    async def scenario() -> None:
        async with aio.Admin(bootstrap_servers=broker.bootstrap_servers, default_api_timeout_ms=3_000) as admin:
            await admin.cluster_id()
            broker.kill()
            async with asyncio.timeout(20):
                results = await asyncio.gather(*[admin.cluster_id() for _ in range(TASKS)], return_exceptions=True)
            assert all(isinstance(each, BrokerUnavailableError) for each in results)
            broker.start()
            assert await admin.cluster_id()

    asyncio.run(scenario())
