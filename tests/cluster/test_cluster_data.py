"""No acknowledged record is lost by an election that is not marked as unclean, whatever brokers do and lose (KIP-966).

Around the decisions stands the least of replication: logs are lists, a follower copies its leader's, and the high watermark is the
least log end of the ISR, moved only while that has `min.insync.replicas`.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any
from uuid import UUID

import pytest
from cluster_images import check_next, cluster, incarnation, only, partition
from examples import examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from kafkalake.cluster.election import ElectionRules, settle
from kafkalake.cluster.image import NO_LEADER, ClusterImage, PartitionRegistration
from kafkalake.cluster.partition_changes import IsrChange, Replica, alter_partitions
from kafkalake.cluster.registration import begin_controlled_shutdown, fence_broker, register_broker, unfence_broker

BROKERS = st.integers(0, 2)
TOPIC = UUID(int=1)


def common(one: list[int], other: list[int]) -> list[int]:
    """Return the records with which both logs begin."""
    return [each for each, _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))]


class Replication(RuleBasedStateMachine):
    """A partition with three replicas. `acknowledged` is what a producer with acks=all was told, and no election marked."""

    of_topic = ElectionRules(2)

    def __init__(self) -> None:
        super().__init__()
        self.image = cluster(partition(0, "012", "012"))
        self.logs: dict[int, list[int]] = {0: [], 1: [], 2: []}
        self.acknowledged: list[int] = []
        self.epoch_start = 0
        self.produced = 0
        self.incarnations = 0

    @property
    def now(self) -> PartitionRegistration:
        return only(self.image)

    def rules_of(self, _: UUID) -> ElectionRules:
        return self.of_topic

    def change(self, after: ClusterImage) -> None:
        before, self.image = self.image, after
        check_next(before, after)
        old, new = only(before), self.now
        if new.leader == NO_LEADER or new.leader_epoch == old.leader_epoch:
            return
        log = self.logs[new.leader]
        self.epoch_start = len(log)
        if new.is_recovering:
            self.acknowledged = common(self.acknowledged, log)
        assert log[: len(self.acknowledged)] == self.acknowledged

    @rule()
    def produce(self) -> None:
        if self.now.leader != NO_LEADER:
            self.produced += 1
            self.logs[self.now.leader].append(self.produced)

    @rule(broker_id=BROKERS, count=st.integers(0, 2))
    def fetch(self, broker_id: int, count: int) -> None:
        """A follower truncates to what it has in common with the leader, and copies some more."""
        if self.now.leader not in (NO_LEADER, broker_id) and not self.image.brokers[broker_id].is_fenced:
            log = self.logs[self.now.leader]
            end = len(common(self.logs[broker_id], log))
            self.logs[broker_id] = log[: end + count]

    @rule()
    def replicate(self) -> None:
        """A record is acknowledged by the whole ISR."""
        self.produce()
        for broker_id in self.now.isr:
            self.fetch(broker_id, 2)
        self.acknowledge()

    @rule()
    def acknowledge(self) -> None:
        if self.now.leader != NO_LEADER and len(self.now.isr) >= self.of_topic.min_isr:
            log = self.logs[self.now.leader]
            end = min(len(common(self.logs[each], log)) for each in self.now.isr)
            self.acknowledged = max(self.acknowledged, log[:end], key=len)

    @rule(broker_id=BROKERS, joins=st.booleans())
    def alter_isr(self, broker_id: int, joins: bool) -> None:
        """The leader takes a replica into the ISR that has reached its epoch, or drops one. First it recovers."""
        now = self.now
        if now.leader in (NO_LEADER, broker_id):
            return
        isr = [each for each in now.isr if each != broker_id]
        if joins:
            end = len(common(self.logs[broker_id], self.logs[now.leader]))
            if end < max(self.epoch_start, len(self.acknowledged)) or now.is_recovering:
                return
            isr.append(broker_id)
        self.ask_for(tuple(isr))

    @rule()
    def recover(self) -> None:
        if self.now.leader != NO_LEADER:
            self.ask_for(self.now.isr)

    def ask_for(self, isr: tuple[int, ...]) -> None:
        now, brokers = self.now, self.image.brokers
        replicas = tuple(Replica(each, brokers[each].epoch) for each in isr)
        asked = IsrChange((TOPIC, 0), now.leader_epoch, now.partition_epoch, replicas)
        self.change(alter_partitions(self.image, now.leader, brokers[now.leader].epoch, [asked], self.rules_of)[0])

    @rule(broker_id=BROKERS)
    def fence(self, broker_id: int) -> None:
        self.change(fence_broker(self.image, broker_id, self.image.brokers[broker_id].epoch, self.rules_of))

    @rule(broker_id=BROKERS)
    def unfence(self, broker_id: int) -> None:
        self.change(unfence_broker(self.image, broker_id, self.image.brokers[broker_id].epoch, self.rules_of))

    @rule(broker_id=BROKERS, kept=st.none() | st.integers(0, 3))
    def restart(self, broker_id: int, kept: int | None) -> None:
        """A broker ends, and registers anew with all of its log, or with only some records."""
        self.fence(broker_id)
        self.incarnations += 1
        if kept is not None:
            self.logs[broker_id] = self.logs[broker_id][:kept]
        broker = incarnation(broker_id, self.incarnations)
        self.change(register_broker(self.image, broker, self.rules_of, is_clean=kept is None))

    @rule(broker_id=BROKERS)
    def shut_down(self, broker_id: int) -> None:
        epoch = self.image.brokers[broker_id].epoch
        self.change(begin_controlled_shutdown(self.image, broker_id, epoch, self.rules_of))


class OneInSync(Replication):
    """The same, where a leader alone may acknowledge."""

    of_topic = ElectionRules(1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("machine", [Replication, OneInSync])
def test_no_acknowledged_record_is_lost_unmarked(machine: type[Replication]) -> None:
    run_state_machine_as_test(machine, settings=examples(80, stateful_step_count=40))  # type: ignore[no-untyped-call]


def lose_the_only_other_replica(of: Replication) -> None:
    """The last but one replica of the ISR loses its log, returns, and then the last one ends."""
    of.fence(2)
    of.replicate()
    of.restart(1, kept=0)
    of.unfence(1)
    of.fence(0)


def test_a_replica_that_lost_records_does_not_lead_for_one_that_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    guarded = Replication()
    lose_the_only_other_replica(guarded)
    assert (guarded.now.leader, len(guarded.acknowledged)) == (NO_LEADER, 1)
    guarded.unfence(0)
    assert (guarded.now.leader, guarded.now.is_recovering) == (0, False)

    def without_lossy(*of: Any, lossy: int | None = None) -> PartitionRegistration:
        return settle(*of)

    monkeypatch.setattr("kafkalake.cluster.registration.settle", without_lossy)
    with pytest.raises(AssertionError):
        lose_the_only_other_replica(Replication())
