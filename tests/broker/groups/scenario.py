"""A classic group driven by a script: requests by name, a manual clock, timers that fire when the clock passes them."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Mapping

from manual_clock import ManualClock

from kafkalake.broker.coordination.decisions import Append, CancelTimer, ErrorClass, Reply, SetTimer
from kafkalake.broker.groups.classic import ClassicGroup
from kafkalake.broker.groups.config import GroupConfig
from kafkalake.broker.groups.requests import GroupProtocol, JoinRequest, JoinResult, SyncRequest, SyncResult

SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


def protocols(*names: str, topic: str = "clicks") -> tuple[GroupProtocol, ...]:
    """Assignors with a subscription to `topic`, as a consumer sends them."""
    name = topic.encode()
    metadata = b"\x00\x01" + b"\x00\x00\x00\x01" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"
    return tuple(GroupProtocol(one, metadata) for one in names or ("range",))


def join_request(member_id: str = "", **changes: object) -> JoinRequest:
    """A join of a dynamic member; `changes` replace fields."""
    values: dict[str, object] = {
        "member_id": member_id,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": protocols(),
    }
    return JoinRequest(**{**values, **changes})  # type: ignore[arg-type]


class Scenario:
    """Carries decisions out: replies are kept by waiter, timers fire in `advance`, appends are durable at once.

    With `hold_appends` appends wait for `durable()` or `fail(error)`.
    """

    def __init__(self, **config: int) -> None:
        self.clock = ManualClock()
        numbers = itertools.count(1)
        values = {"group_initial_rebalance_delay_ms": DELAY_MS, **config}
        self.config = GroupConfig(**values)
        self.group = ClassicGroup("g", self.config, self.clock, lambda: f"{next(numbers)}")
        self.replies: dict[str, JoinResult | SyncResult] = {}
        self.timers: dict[Hashable, int] = {}
        self.written: list[object] = []
        self.hold_appends = False
        self._held: list[Append] = []
        self._waiters = itertools.count(1)

    def run(self) -> None:
        """Carry out what the group has decided."""
        while self.group.decisions:
            decisions, self.group.decisions = self.group.decisions, []
            for decision in decisions:
                match decision:
                    case Reply(waiter, result):
                        assert isinstance(waiter, str)
                        assert waiter not in self.replies, "answered twice"
                        assert isinstance(result, JoinResult | SyncResult)
                        self.replies[waiter] = result
                    case SetTimer(name, delay_ms):
                        assert delay_ms >= 0
                        self.timers[name] = self.clock.monotonic_ms() + delay_ms
                    case CancelTimer(name):
                        self.timers.pop(name, None)
                    case Append() as append if self.hold_appends:
                        self._held.append(append)
                    case Append(records, ticket):
                        self.written += records
                        self.group.appended(ticket, None)

    def durable(self) -> None:
        """The held appends are durable."""
        held, self._held = self._held, []
        for append in held:
            self.written += append.records
            self.group.appended(append.ticket, None)
        self.run()

    def fail(self, error: ErrorClass) -> None:
        """The held appends could not be written."""
        held, self._held = self._held, []
        for append in held:
            self.group.appended(append.ticket, error)
        self.run()

    def advance(self, milliseconds: int) -> None:
        """Time passes; timers fire on the way, in order."""
        end = self.clock.monotonic_ms() + milliseconds
        while self.timers:
            name = min(self.timers, key=self.timers.__getitem__)
            due = self.timers[name]
            if due > end:
                break
            self.clock.advance(max(due - self.clock.monotonic_ms(), 0))
            del self.timers[name]
            self.group.timer_fired(name)
            self.run()
        self.clock.advance(max(end - self.clock.monotonic_ms(), 0))

    def join(self, member_id: str = "", **changes: object) -> str:
        """Send a join; returns its waiter."""
        waiter = f"join {next(self._waiters)}"
        self.group.join(join_request(member_id, **changes), waiter)
        self.run()
        return waiter

    def new_member_id(self) -> str:
        """The id that a first join is given."""
        return self.joined(self.join()).member_id

    def sync(self, member_id: str, assignments: Mapping[str, bytes] | None = None, **changes: object) -> str:
        """Send a sync of the current generation; returns its waiter."""
        waiter = f"sync {next(self._waiters)}"
        values: dict[str, object] = {
            "generation_id": self.group.generation_id,
            "assignments": assignments or {},
            **changes,
        }
        self.group.sync(SyncRequest(member_id, **values), waiter)  # type: ignore[arg-type]
        self.run()
        return waiter

    def heartbeat(self, member_id: str, generation_id: int | None = None, instance: str | None = None) -> None:
        self.group.heartbeat(member_id, self.group.generation_id if generation_id is None else generation_id, instance)
        self.run()

    def joined(self, waiter: str) -> JoinResult:
        """The answer to a join."""
        result = self.replies[waiter]
        assert isinstance(result, JoinResult)
        return result

    def synced(self, waiter: str) -> SyncResult:
        """The answer to a sync."""
        result = self.replies[waiter]
        assert isinstance(result, SyncResult)
        return result

    def stable(self, *instances: str | None) -> list[str]:
        """Bring the group to Stable with one member for each of `instances` (None: dynamic); returns their ids, leader first."""
        waiters = []
        for instance in instances or (None,):
            member_id = "" if instance is not None else self.new_member_id()
            waiters.append(self.join(member_id, group_instance_id=instance))
        self.advance(3 * DELAY_MS)
        results = [self.joined(waiter) for waiter in waiters]
        leader = results[0].leader
        ids = sorted((result.member_id for result in results), key=lambda one: one != leader)
        self.sync(leader, {one: f"part of {one}".encode() for one in ids})
        for follower in ids[1:]:
            assert self.synced(self.sync(follower)).error is None
        assert self.group.state.value == "Stable"
        return ids
