"""Batches for other brokers: one request under way to each, in order, and every batch gets an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from manual_clock import ManualClock

from kafkalake.broker.delayed.sent_batches import REQUEST_BATCHES, REQUEST_BYTES, SentBatches
from kafkalake.broker.partitions.purgatory import Timers
from kafkalake.errors import BrokerUnavailableError, KafkaError, NotCoordinatorError


class Broker:
    """Keeps each request until the test answers it."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[str], asyncio.Future[Sequence[KafkaError | None]]]] = []

    async def ask(self, broker_id: int, batches: Sequence[str]) -> Sequence[KafkaError | None]:
        answer: asyncio.Future[Sequence[KafkaError | None]] = asyncio.get_running_loop().create_future()
        self.asked.append((broker_id, list(batches), answer))
        return await answer


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_what_comes_while_a_request_is_under_way_goes_with_the_next_one() -> None:
    async def run() -> None:
        broker = Broker()
        sent, done = SentBatches(broker.ask, Timers(ManualClock())), []

        def send(broker_id: int, batch: str, size: int = 1) -> None:
            sent.send(broker_id, batch, size, lambda error: done.append((batch, error and error.label)))

        send(1, "a")
        send(1, "b")
        send(2, "c")
        await turns()
        send(1, "d")
        send(1, "e", REQUEST_BYTES)
        send(1, "f")
        await turns()
        assert [each[:2] for each in broker.asked] == [(1, ["a", "b"]), (2, ["c"])]
        broker.asked[0][2].set_result([None, NotCoordinatorError()])
        await turns()
        assert done == [("a", None), ("b", "NOT_COORDINATOR")]
        assert broker.asked[2][:2] == (1, ["d", "e"])
        broker.asked[2][2].set_exception(BrokerUnavailableError("gone"))
        await turns()
        assert done[2:] == [("d", "NETWORK_EXCEPTION"), ("e", "NETWORK_EXCEPTION")]
        assert broker.asked[3][1] == ["f"], "life goes on"
        broker.asked[3][2].set_result([])
        await turns()
        assert done[-1] == ("f", "NETWORK_EXCEPTION"), "a broker that answers too few"
        send(1, "g")
        await turns()
        broker.asked[4][2].set_exception(ValueError("a fault of ours"))
        await turns()
        assert done[-1] == ("g", "NETWORK_EXCEPTION")
        for number in range(REQUEST_BATCHES + 1):
            send(1, str(number))
        await turns()
        assert len(broker.asked[5][1]) == REQUEST_BATCHES
        sent.stop()

    asyncio.run(run())
