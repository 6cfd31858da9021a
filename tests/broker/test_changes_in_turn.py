"""Changes of topics, one after another: those that wait are of requests that wait."""

from __future__ import annotations

import asyncio

import pytest

from kafkalake.broker.admin.changes_in_turn import ChangesInTurn
from kafkalake.errors import RequestTimedOutError


def test_a_change_whose_request_is_over_before_its_turn_is_not_made() -> None:
    async def run() -> None:
        changes, may_end, made = ChangesInTurn(lambda: True), asyncio.Event(), []

        async def make(name: str) -> None:
            await may_end.wait()
            made.append(name)

        with pytest.raises(RequestTimedOutError):
            await changes.finish(make("none"), 0)
        with pytest.raises(RequestTimedOutError):
            await changes.finish(make("first"), 1)  # it begins, and goes on
        for number in range(100):
            with pytest.raises(RequestTimedOutError):
                await changes.finish(make(f"late {number}"), 1)
        waits = asyncio.ensure_future(changes.finish(make("last"), 60_000))
        await asyncio.sleep(0)
        may_end.set()
        await waits
        await changes.wait()
        assert made == ["first", "last"]

    asyncio.run(run())
