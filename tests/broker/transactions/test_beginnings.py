"""Transactions that may not begin wait for those that are open, for a short time, and then begin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from broker.transactions.two_brokers import ID_OF, P0, TwoBrokers, run
from manual_clock import ManualClock

from kafkalake.broker.coordination.decisions import ErrorClass
from kafkalake.broker.partitions.purgatory import Timers
from kafkalake.broker.transactions.beginnings import PUBLISH_MS, QUIET_MS, Beginnings


class Moment:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.beginnings = Beginnings(self.timers)
        self.answers: list[bool] = []
        self.begun: list[int] = []

    def hold(self) -> None:
        self.beginnings.hold(self.answers.append)

    def begin(self, producer_id: int) -> None:
        begun: Callable[[], None] = lambda: self.begun.append(producer_id)  # noqa: E731
        if not self.beginnings.has_to_wait(begun):
            begun()

    def pass_ms(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.timers.ring()


@pytest.fixture
def m() -> Moment:
    return Moment()


def test_none_begins_until_those_that_are_open_have_ended_and_the_positions_are_taken(m: Moment) -> None:
    m.begin(1)
    m.beginnings.began(0, "app-1")
    m.beginnings.began(3, "app-2")
    m.hold()
    m.begin(4)
    assert (m.answers, m.begun) == ([], [1])
    m.beginnings.ended(0, "app-1")
    assert m.answers == []
    m.beginnings.ended(3, "app-2")
    assert (m.answers, m.begun) == ([True], [1])
    m.beginnings.release()
    assert (m.answers, m.begun) == ([True], [1, 4])
    m.begin(5)
    assert m.begun == [1, 4, 5]
    m.hold()
    assert m.answers == [True, True], "none is open"
    m.begin(6)
    m.pass_ms(PUBLISH_MS + 1)
    assert m.begun == [1, 4, 5, 6], "nobody has released them"


def test_a_transaction_that_lasts_is_waited_for_once(m: Moment) -> None:
    m.beginnings.began(0, "app-1")
    m.beginnings.began(0, "app-2")
    m.hold()
    m.begin(3)
    m.beginnings.ended(0, "app-2")
    m.pass_ms(QUIET_MS + 1)
    assert (m.answers, m.begun) == ([False], [3])
    m.hold()
    assert m.answers == [False, False], "at once"
    m.begin(4)
    assert m.begun == [3, 4]
    m.beginnings.ended(0, "app-1")
    m.hold()
    assert m.answers == [False, False, True]


def test_those_of_another_coordinator_are_not_waited_for(m: Moment) -> None:
    m.beginnings.began(0, "app-1")
    m.beginnings.began(1, "app-2")
    m.hold()
    m.beginnings.ended(1, "app-2")
    m.beginnings.forget(0)
    assert m.answers == [True]


def test_a_producer_adds_its_first_partition_when_it_may_begin(tmp_path: Path) -> None:
    async def scenario() -> None:
        c = TwoBrokers(tmp_path)
        node = c.nodes[0]
        beginnings = node.waves.beginnings
        producer = node.producer()
        node.add(producer, P0)
        quiet: list[bool] = []
        beginnings.hold(quiet.append)
        node.add(producer, ("clicks", 1))
        assert quiet == [], "its transaction goes on"
        for index in (0, 1):
            c.nodes[index].write(producer)
        node.end(producer)
        await c.go(lambda: bool(quiet))
        assert (quiet, node.state) == ([True], "CompleteCommit")
        answers: list[ErrorClass | None] = []
        node.coordinator.add_partitions(ID_OF[0], producer, [P0], answers.append)
        assert (answers, node.state) == ([], "CompleteCommit")
        node.waves.release()
        assert (answers, node.state) == ([None], "Ongoing")

    run(scenario())
