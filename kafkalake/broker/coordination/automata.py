"""Carries out the decisions of automata: sends replies, keeps timers, and passes other decisions to the coordinator.

Each automaton (a group, a transaction) has a `MachineSlot` with its running timers. Decisions are carried out in order.
Consequences of one (a reply that triggers the next request, a batch that is durable at once) come after the decisions before them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from kafkalake.broker.callbacks import CallbackLoop, call_isolated
from kafkalake.broker.coordination.decisions import CancelTimer, ErrorClass, Reply, SetTimer
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
class MachineSlot:
    """The place of an automaton: its journal partition, its running timers, and whether its decisions are being carried out now."""

    partition: int
    timers: dict[Hashable, RunningTimer] = field(default_factory=dict, init=False)
    busy: bool = field(default=False, init=False)

    @property
    def automaton(self) -> Automaton:
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The group or transactional id."""
        raise NotImplementedError

    def restored(self, lost: Sequence[range]) -> None:
        """Continue after the journal has been read without the offsets of `lost`."""
        raise NotImplementedError

    def close(self, error: ErrorClass) -> None:
        """Stop coordinating. Pending requests fail with `error`."""
        raise NotImplementedError


S = TypeVar("S", bound=MachineSlot)


class EffectRunner(Generic[S]):
    """Executor of decisions. `other` handles all but replies and timers. `finished` is called when a slot has none left."""

    def __init__(
        self,
        timers: Timers,
        other: Callable[[S, Any], None],
        finished: Callable[[S], None] = lambda slot: None,
    ) -> None:
        self._timers = timers
        self._other = other
        self._finished = finished

    def run(self, slot: S) -> None:
        """Carry out the automaton's decisions in order, including those added meanwhile."""
        if slot.busy:
            return  # called from within: the loop below continues
        slot.busy = True
        try:
            while (automaton := slot.automaton).decisions:  # the slot may get another automaton meanwhile
                decisions, automaton.decisions = automaton.decisions, []
                self.run_these(slot, decisions)
        finally:
            slot.busy = False
        self._finished(slot)

    def run_these(self, slot: S, decisions: Iterable[Any]) -> None:
        """Carry out these decisions, also of an automaton that has lost its slot."""
        for decision in decisions:
            call_isolated(CallbackLoop.DECISION, self._run_one, slot, decision)

    def cancel_all(self, slot: S) -> None:
        """Cancel all timers of the slot, before another automaton takes it."""
        for name in list(slot.timers):
            self._cancel(slot, name)

    def _run_one(self, slot: S, decision: Any) -> None:
        match decision:
            case Reply(waiter, result):
                assert callable(waiter)
                waiter(result)
            case SetTimer(name, delay_ms):
                self._cancel(slot, name)
                running = RunningTimer()
                slot.timers[name] = running
                running.timeout = self._timers.schedule(delay_ms, partial(self._fire, slot, name, running))
            case CancelTimer(name):
                self._cancel(slot, name)
            case _:
                self._other(slot, decision)

    def _cancel(self, slot: S, name: Hashable) -> None:
        running = slot.timers.pop(name, None)
        if running is not None:
            self._timers.cancel(running.timeout)

    def _fire(self, slot: S, name: Hashable, running: RunningTimer) -> None:
        if slot.timers.get(name) is not running:
            return  # cancelled by another timer of the same tick
        del slot.timers[name]
        slot.automaton.timer_fired(name)
        self.run(slot)
