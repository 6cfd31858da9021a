"""Clients in a forked process: it has none of the threads of its parent, and shares sockets with it.

So clients of threads are no clients there: each call says so, and closing them leaves the parent's connections alone. Clients of an
event loop refuse any other loop already.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

from kafkalake.client.errors import ClientClosedError


class Inherited(Protocol):
    """A client that a process may inherit."""

    def disown(self) -> None:
        """Refuse all use from now on: this process has not made the client. Called without other threads; take no locks."""


def watch_forks(client: Inherited) -> None:
    """Call `disown` of a client in processes that are forked while it exists."""
    _clients.add(client)


def inherited() -> ClientClosedError:
    """Return the error of a client that a process has inherited."""
    return ClientClosedError("the client belongs to the process that forked this one: make a client after the fork")


_clients: WeakSet[Inherited] = WeakSet()


def _disown_all() -> None:
    for client in list(_clients):
        client.disown()


os.register_at_fork(after_in_child=_disown_all)
