"""Carries out the decisions of automata: sends replies, keeps timers, and passes other decisions to the coordinator.

Each automaton (a group, a transaction) has a `Seat` with its running timers. Decisions are carried out in order. Consequences of
one (a reply that triggers the next request, a batch that is durable at once) come after the decisions before them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kafkalake.broker.callbacks import Place, call_isolated
from kafkalake.broker.coordination.decisions import CancelTimer, Reply, SetTimer
from kafkalake.broker.coordination.journal import Timers


class Automaton(Protocol):
    """An object that handles events and leaves `decisions` (see `coordination.decisions`)."""

    decisions: list[Any]

    def timer_fired(self, name: Hashable) -> None:
        """Handle the expiry of the timer `name`."""
        ...


@dataclass(slots=True, eq=False)
class RunningTimer:
    """A timer of an automaton. `timeout` is its handle in the timing wheel."""

    timeout: Any = None


@dataclass(slots=True, eq=False)
class Seat:
    """The place of an automaton: its running timers, and whether its decisions are being carried out now."""

    timers: dict[Hashable, RunningTimer] = field(default_factory=dict, init=False)
    busy: bool = field(default=False, init=False)

    @property
    def automaton(self) -> Automaton:
        raise NotImplementedError


S = TypeVar("S", bound=Seat)


class Carrier(Generic[S]):
    """Executor of decisions. `other` handles all but replies and timers. `carried_out` is called when a seat has none left."""

    def __init__(
        self,
        timers: Timers,
        other: Callable[[S, Any], None],
        carried_out: Callable[[S], None] = lambda seat: None,
    ) -> None:
        self._timers = timers
        self._other = other
        self._carried_out = carried_out

    def carry_out(self, seat: S) -> None:
        """Carry out the automaton's decisions in order, including those added meanwhile."""
        if seat.busy:
            return  # called from within: the loop below continues
        seat.busy = True
        try:
            while (automaton := seat.automaton).decisions:  # the seat may get another automaton meanwhile
                decisions, automaton.decisions = automaton.decisions, []
                for decision in decisions:
                    call_isolated(Place.DECISION, self._carry_out_one, seat, decision)
        finally:
            seat.busy = False
        self._carried_out(seat)

    def carry_out_these(self, seat: S, decisions: Iterable[Any]) -> None:
        """Carry out decisions of an automaton that has lost its seat."""
        for decision in decisions:
            call_isolated(Place.DECISION, self._carry_out_one, seat, decision)

    def cancel_all(self, seat: S) -> None:
        """Cancel all timers of the seat, before another automaton takes it."""
        for name in list(seat.timers):
            self._cancel(seat, name)

    def _carry_out_one(self, seat: S, decision: Any) -> None:
        match decision:
            case Reply(waiter, result):
                assert callable(waiter)
                waiter(result)
            case SetTimer(name, delay_ms):
                self._cancel(seat, name)
                running = RunningTimer()
                seat.timers[name] = running
                running.timeout = self._timers.schedule(delay_ms, partial(self._fire, seat, name, running))
            case CancelTimer(name):
                self._cancel(seat, name)
            case _:
                self._other(seat, decision)

    def _cancel(self, seat: S, name: Hashable) -> None:
        running = seat.timers.pop(name, None)
        if running is not None:
            self._timers.cancel(running.timeout)

    def _fire(self, seat: S, name: Hashable, running: RunningTimer) -> None:
        if seat.timers.get(name) is not running:
            return  # cancelled by another timer of the same tick
        del seat.timers[name]
        seat.automaton.timer_fired(name)
        self.carry_out(seat)
