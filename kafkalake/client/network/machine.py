"""What a client decides and what its edge does: the interface between them.

A machine has no socket and no clock. An edge (`selector`, `event_loop`) carries out its actions and reports what happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kafkalake.buffers import Buffer
from kafkalake.client.address import Address
from kafkalake.errors import BrokerUnavailableError


class Connect(NamedTuple):
    """Open a connection to a node, to the first of the host's addresses that takes it."""

    node_id: int
    address: Address


class Write(NamedTuple):
    """Send a frame on the connection to a node, after those before. Its parts do not change until all of it is sent."""

    node_id: int
    parts: Sequence[Buffer]


class Disconnect(NamedTuple):
    """Close the connection to a node, or its opening. The machine is not told about its end."""

    node_id: int


Action: TypeAlias = Connect | Write | Disconnect


class Machine(Protocol):
    """See the module. Times are milliseconds of one monotonic clock."""

    def poll(self, now_ms: int) -> Sequence[Action]:
        """Return what is to be done now, in this order."""
        ...

    def next_deadline_ms(self, now_ms: int) -> int | None:
        """Return when `poll` is due although nothing happened, None for never."""
        ...

    def connected(self, node_id: int, now_ms: int) -> None:
        """Take the news that a connection is open."""
        ...

    def buffer(self, node_id: int) -> memoryview:
        """Return where the next bytes of a connection belong, at least one."""
        ...

    def received(self, node_id: int, count: int, now_ms: int) -> bool:
        """Take over the first `count` bytes of `buffer`, cut anywhere. Return False if they were only a part of a response."""
        ...

    def disconnected(self, node_id: int, error: BrokerUnavailableError, now_ms: int) -> None:
        """Take the news that a connection could not be opened, or has ended."""
        ...
