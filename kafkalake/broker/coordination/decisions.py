"""Decisions of a coordinator's automata, as plain data.

A group or a transaction handles an event (a request, an expired timer, a durable journal batch) and leaves a list of decisions,
which its coordinator carries out in order. So an automaton needs no socket, event loop or file, and its test is a table of events
and decisions.

`waiter` is an opaque value that the coordinator passes in with a request that may have to wait. Every waiter gets exactly one
`Reply`. Timer names belong to one automaton. Setting a name again moves that timer.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from kafkalake.errors import KafkaError

ErrorClass: TypeAlias = type[KafkaError]
"""The error of a result, None if there is none. Its class defines code and label."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Decision: answer the request that came with `waiter`."""

    waiter: object
    result: object


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Decision: call the automaton's `timer_fired(name)` after `delay_ms` milliseconds (0: right after this event)."""

    name: Hashable
    delay_ms: int


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Decision: cancel the timer `name`. It is no error if it is not set."""

    name: Hashable


@dataclass(frozen=True, slots=True)
class Append:
    """Decision: write `records` to the journal as one unit, then call the automaton's `appended(ticket, error)`.

    `records` are the coordinator's own record types, which it encodes. With `ticket` None the automaton ignores the outcome.
    """

    records: tuple[object, ...]
    ticket: object = None


Decision: TypeAlias = Reply | SetTimer | CancelTimer | Append
