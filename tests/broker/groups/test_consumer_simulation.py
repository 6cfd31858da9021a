"""Simulated consumers of the new protocol, while they die and come back, time passes, writes fail and the coordinator restarts.

What must hold: no two living members believe they own one partition at the same time; what the group says is what its journal
says; when the faults are over, the living own every partition of their topic exactly once.
"""

from __future__ import annotations

import pytest
from broker.groups.consumer_worlds import OurGroup
from examples import examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkalake.broker.groups.consumer_requests import HeartbeatRequest, HeartbeatResult
from kafkalake.errors import FencedMemberEpochError, KafkaStorageError, UnknownMemberIdError, UnreleasedInstanceIdError

MEMBERS = st.integers(0, 3)
PARTITIONS = {("t", number) for number in range(5)}
REBALANCE_MS = 20_000


class Consumer:
    """What a client does; it believes in what it owns until it is told otherwise or its session ends."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.instance = "static" if number == 0 else None
        self.incarnation = 0
        self.alive = False
        self.epoch = 0
        self.owned: set[tuple[str, int]] = set()
        self.last_heard_ms = 0

    @property
    def member_id(self) -> str:
        return f"member-{self.number}-{self.incarnation}"

    def request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            self.member_id,
            self.epoch,
            group_instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_MS,
            topics=("t",),
            assignor="uniform" if self.number % 2 else "range",
        )

    def forget(self) -> None:
        self.epoch, self.owned = 0, set()


class OneOwner(RuleBasedStateMachine):
    """Four consumers of one group."""

    def __init__(self) -> None:
        super().__init__()
        self.world = OurGroup({"t": len(PARTITIONS)})
        self.consumers = [Consumer(number) for number in range(4)]

    def _beat(self, consumer: Consumer, request: HeartbeatRequest) -> HeartbeatResult | None:
        """The answer; None where the journal does not take it."""
        return self.world.replies.get(self.world.send(request))

    def _step(self, consumer: Consumer) -> None:
        """One heartbeat. What it is told to give up is gone at once; the next heartbeat says so."""
        if not consumer.alive:
            return
        request = consumer.request()
        owned = self.world.ids(consumer.owned)
        result = self._beat(consumer, _with_owned(request, owned))
        if result is None or result.error is KafkaStorageError:
            return
        if result.error in (FencedMemberEpochError, UnknownMemberIdError):
            consumer.forget()
            return
        if result.error is UnreleasedInstanceIdError:
            return
        assert result.error is None
        consumer.last_heard_ms = self.world.clock.monotonic_ms()
        consumer.epoch = result.member_epoch
        if result.assignment is not None:
            consumer.owned = set(self.world.names(result.assignment))

    @rule(number=MEMBERS)
    def step(self, number: int) -> None:
        consumer = self.consumers[number]
        consumer.alive = True
        self._step(consumer)

    @rule()
    def everybody(self) -> None:
        for consumer in self.consumers:
            self._step(consumer)

    @rule(number=MEMBERS)
    def lost_answer(self, number: int) -> None:
        """The heartbeat arrives, its answer does not."""
        consumer = self.consumers[number]
        if consumer.alive and consumer.epoch > 0:
            self._beat(consumer, _with_owned(consumer.request(), self.world.ids(consumer.owned)))

    @rule(number=MEMBERS)
    def die(self, number: int) -> None:
        """The process is killed; it comes back under another id."""
        consumer = self.consumers[number]
        consumer.alive = False
        consumer.incarnation += 1
        consumer.forget()

    @rule(number=MEMBERS)
    def leave(self, number: int) -> None:
        consumer = self.consumers[number]
        if consumer.alive and consumer.epoch > 0:
            consumer.owned = set()
            epoch = -2 if consumer.instance else -1
            self._beat(consumer, HeartbeatRequest(consumer.member_id, epoch, group_instance_id=consumer.instance))
            self.die(number)

    @rule(milliseconds=st.sampled_from([1_000, 15_000, 46_000]))
    def time(self, milliseconds: int) -> None:
        """A member that hears nothing for its session gives up what it has, as clients do, before the group gives it away."""
        end = self.world.clock.monotonic_ms() + milliseconds
        for consumer in self.consumers:
            if consumer.owned and end - consumer.last_heard_ms >= min(REBALANCE_MS, 45_000):
                consumer.forget()
                consumer.incarnation += 1
        self.world.advance(milliseconds)

    @rule(fails=st.booleans())
    def slow_or_failing_journal(self, fails: bool) -> None:
        self.world.hold = True
        for consumer in self.consumers:
            if consumer.alive and consumer.epoch > 0:
                self._beat(consumer, _with_owned(consumer.request(), self.world.ids(consumer.owned)))
        self.world.hold = False
        if fails:
            self.world.fail(KafkaStorageError)
        self.world.durable()

    @rule()
    def restart(self) -> None:
        self.world.start()

    @invariant()
    def one_owner(self) -> None:
        owned = [one for consumer in self.consumers for one in consumer.owned]
        assert len(owned) == len(set(owned))

    def teardown(self) -> None:
        for _ in range(30):
            self.world.advance(5_000)
            for consumer in self.consumers:
                self._step(consumer)
        living = [consumer for consumer in self.consumers if consumer.alive]
        owned = sorted(one for consumer in living for one in consumer.owned)
        assert owned == (sorted(PARTITIONS) if living else [])
        assert self.world.describe()[1] == ("Stable" if living else "Empty") or not self.world.group.exists
        before = self.world.describe()
        self.world.start()
        assert self.world.describe() == before


def _with_owned(request: HeartbeatRequest, owned: frozenset[object]) -> HeartbeatRequest:
    values = {name: getattr(request, name) for name in request.__dataclass_fields__}
    return HeartbeatRequest(**{**values, "owned": owned})


OneOwner.TestCase.settings = examples(60, stateful_step_count=40)
TestOneOwner = pytest.mark.exhaustive(OneOwner.TestCase)
