"""Carries out a machine's actions by sockets and `selectors`, in one thread that any other may wake up."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

from kafkalake.buffers import Buffer
from kafkalake.client.address import Address, reason, unreachable
from kafkalake.client.network.machine import Action, Connect, Machine, Write
from kafkalake.clock import Clock
from kafkalake.errors import BrokerUnavailableError, ConnectionLostError, as_value

_LONGEST_WAIT_MS = 60_000
_PARTS_MAX = 64
"""Most parts that are offered to a socket at once. Linux takes 1,024."""


class _Link:
    """The socket of one node: being connected to the first of `targets` that takes it, or open."""

    def __init__(self, node_id: int, address: Address, targets: deque[Any]) -> None:
        self.node_id = node_id
        self.address = address
        self.targets = targets
        self.socket: socket.socket | None = None
        self.is_open = False
        self.unsent: deque[memoryview] = deque()

    def take_sent(self, sent: int, offered: int) -> bool:
        """Forget the first `sent` bytes that were to be sent. Return whether that is all of the first `offered` parts."""
        for _ in range(offered):
            part = self.unsent[0]
            if sent < len(part):
                self.unsent[0] = part[sent:]
                return False
            sent -= len(part)
            self.unsent.popleft()
        return True

    def open_next(self) -> OSError | None:
        """Begin to connect to the next address. Return the error of the last one if none is left."""
        error = OSError(errno.EHOSTUNREACH, "no address")
        while self.targets:
            family, kind, protocol, _, target = self.targets.popleft()
            try:
                opened = socket.socket(family, kind, protocol)
            except OSError as failed:  # the system lacks the family, or a descriptor
                error = as_value(failed)
                continue
            opened.setblocking(False)
            number = opened.connect_ex(target)
            if number in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.socket = opened
                return None
            opened.close()
            error = OSError(number, os.strerror(number))
        return error


class SelectorEdge:
    """See the module. `poll` from one thread, `wake_up` from any."""

    def __init__(self, machine: Machine, clock: Clock) -> None:
        self._machine = machine
        self._clock = clock
        self._links: dict[int, _Link] = {}
        self._selector = selectors.DefaultSelector()
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._is_woken = False
        self._selector.register(self._woken, selectors.EVENT_READ, None)

    def poll(self, timeout_ms: int) -> None:
        """Do what is to be done, then wait for news, at most `timeout_ms`, and report them to the machine."""
        self.carry_out()
        self.wait(timeout_ms)

    def wait(self, timeout_ms: int) -> None:
        """Wait for news, at most `timeout_ms` or until the machine is to be polled, and report them to it.

        A part of a response is none.
        """
        now_ms = self._clock.monotonic_ms()
        deadline_ms = self._machine.next_deadline_ms(now_ms) if timeout_ms > 0 else None
        until_ms = now_ms + min(timeout_ms, _LONGEST_WAIT_MS)
        if deadline_ms is not None:
            until_ms = min(until_ms, max(deadline_ms, now_ms))
        while True:
            ready = self._selector.select((until_ms - now_ms) / 1000)
            is_news = [self._handle(key.data, events) for key, events in ready]
            now_ms = self._clock.monotonic_ms()
            if any(is_news) or now_ms >= until_ms:
                return

    def carry_out(self) -> None:
        """Do what the machine decides on now."""
        for action in self._machine.poll(self._clock.monotonic_ms()):
            self._act(action)

    def wake_up(self) -> None:
        """End the wait of `poll`, or its next one."""
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(OSError):  # full: it wakes up anyway
                self._waker.send(b"\0")

    def close(self) -> None:
        """Close all sockets."""
        for link in list(self._links.values()):
            self._drop(link)
        self._selector.close()
        self._waker.close()
        self._woken.close()

    def _act(self, action: Action) -> None:
        link = self._links.get(action.node_id)
        if isinstance(action, Write):
            if link is not None:
                self._write(link, action.parts)
        elif isinstance(action, Connect):
            self._connect(action)
        elif link is not None:
            self._drop(link)

    def _connect(self, action: Connect) -> None:
        try:
            targets = socket.getaddrinfo(action.address.host, action.address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            self._lost(action.node_id, unreachable(action.address, error))
            return
        link = _Link(action.node_id, action.address, deque(targets))
        self._links[action.node_id] = link
        self._try_next(link, None)

    def _try_next(self, link: _Link, failed: OSError | None) -> None:
        error = link.open_next() if link.targets else failed or OSError(errno.EHOSTUNREACH, "no address")
        if error is not None:
            self._links.pop(link.node_id, None)
            self._lost(link.node_id, unreachable(link.address, error))
        elif link.socket is not None:
            self._selector.register(link.socket, selectors.EVENT_WRITE, link)

    def _handle(self, link: _Link | None, events: int) -> bool:
        """Do what a socket is ready for. Return whether that is news to the machine. link: None for the waker."""
        if link is None:
            self._drain()
            return True
        if self._links.get(link.node_id) is not link:
            return False
        try:
            if not link.is_open:
                self._finish_opening(link)
                return True
            if events & selectors.EVENT_WRITE:
                self._send(link)
            return bool(events & selectors.EVENT_READ) and self._receive(link)
        except OSError as error:
            self._end(link, reason(error))
            return True

    def _finish_opening(self, link: _Link) -> None:
        assert link.socket is not None
        number = link.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._selector.unregister(link.socket)
            link.socket.close()
            self._try_next(link, OSError(number, os.strerror(number)))
            return
        link.is_open = True
        self._selector.modify(link.socket, selectors.EVENT_READ, link)
        self._machine.connected(link.node_id, self._clock.monotonic_ms())

    def _write(self, link: _Link, parts: Sequence[Buffer]) -> None:
        is_first = not link.unsent
        link.unsent.extend(map(memoryview, parts))
        if is_first and link.is_open:
            try:
                self._send(link)
            except OSError as error:
                self._end(link, reason(error))

    def _send(self, link: _Link) -> None:
        assert link.socket is not None
        was_full = self._selector.get_key(link.socket).events != selectors.EVENT_READ
        try:
            while link.unsent:
                offered = list(islice(link.unsent, _PARTS_MAX))
                sent = link.socket.sendmsg(offered)
                if not link.take_sent(sent, len(offered)):
                    break
        except BlockingIOError:
            pass
        is_full = bool(link.unsent)
        if is_full != was_full:
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if is_full else 0)
            self._selector.modify(link.socket, wanted, link)

    def _receive(self, link: _Link) -> bool:
        """Receive until a response is whole or there is nothing more. Return whether there is news."""
        assert link.socket is not None
        try:
            while count := link.socket.recv_into(self._machine.buffer(link.node_id)):
                if self._machine.received(link.node_id, count, self._clock.monotonic_ms()):
                    return True
        except BlockingIOError:
            return False
        self._end(link, "connection closed by the other side")
        return True

    def _end(self, link: _Link, why: str) -> None:
        self._drop(link)
        self._lost(link.node_id, ConnectionLostError(why))

    def _lost(self, node_id: int, error: BrokerUnavailableError) -> None:
        self._machine.disconnected(node_id, error, self._clock.monotonic_ms())

    def _drop(self, link: _Link) -> None:
        self._links.pop(link.node_id, None)
        if link.socket is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(link.socket)
            link.socket.close()

    def _drain(self) -> None:
        with contextlib.suppress(OSError):
            self._woken.recv(64)
        self._is_woken = False
