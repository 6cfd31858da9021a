"""What an automaton of a coordinator decides, as plain data.

A group or a transaction is told an event (a request, a timer that ran out, a journal batch that became durable) and leaves
a list of decisions behind; its coordinator carries them out in order. So an automaton knows no socket, no event loop and no
file, and a test of it is a table of events and decisions.

`waiter` is whatever the coordinator passed in with a request that may have to wait; an automaton only hands it back. Every
waiter gets exactly one `Reply`. Timer names belong to one automaton; setting a name again moves that timer.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from kafkalake.errors import KafkaError

ErrorClass: TypeAlias = type[KafkaError]
"""An error inside a result: its class says code and label; None where there is none."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request that came with `waiter`."""

    waiter: object
    result: object


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Tell the automaton `timer_fired(name)` in `delay_ms` milliseconds (0: as soon as this event is done with)."""

    name: Hashable
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Forget the timer `name`; one that is not set is no error."""

    name: Hashable


@dataclass(frozen=True, slots=True)
class Append:
    """Write `records` to the journal as one unit, then tell the automaton `appended(ticket, error)`.

    `records` are the coordinator's own record types; it encodes them. With `ticket` None nobody waits for the outcome.
    """

    records: tuple[object, ...]
    ticket: object = None


Decision: TypeAlias = Reply | SetTimer | CancelTimer | Append
