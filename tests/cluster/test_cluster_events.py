"""Whatever happens to brokers and topics in whatever order: each image is consistent, and follows the one before."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from uuid import UUID

import pytest
from cluster_images import check_next, incarnation
from examples import examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from reassignments import begin_reassignment, cancel_reassignment

from kafkalake.cluster.election import Election, ElectionRules, elect_leaders, rebalance_leaders
from kafkalake.cluster.image import NO_LEADER, ClusterImage, TopicIdPartition
from kafkalake.cluster.partition_changes import IsrChange, Replica, alter_partitions
from kafkalake.cluster.placement import Placement
from kafkalake.cluster.registration import (
    begin_controlled_shutdown,
    fence_broker,
    register_broker,
    report_offline_logs,
    unfence_broker,
    unregister_broker,
)
from kafkalake.cluster.topic_changes import add_partitions, create_topics, delete_topics, new_partitions
from kafkalake.errors import (
    DuplicateBrokerRegistrationError,
    IneligibleReplicaError,
    InvalidReplicaAssignmentError,
    KafkaError,
    NewLeaderElectedError,
    NoReassignmentInProgressError,
)

BROKERS = st.integers(0, 3)


class Events(RuleBasedStateMachine):
    """A cluster of up to four brokers. `rules_of`: even topics need two replicas in sync, every third elects uncleanly."""

    def __init__(self) -> None:
        super().__init__()
        self.image = ClusterImage("lake")
        self.created = 0
        self.incarnations = 0

    @initialize()
    def start(self) -> None:
        for broker_id in range(3):
            self.register(broker_id, is_clean=True)
            self.unfence(broker_id)
        self.create(2, 3, 0)
        self.create(2, 3, 0)

    def rules_of(self, topic_id: UUID) -> ElectionRules:
        return ElectionRules(1 + (topic_id.int % 2 == 0), topic_id.int % 3 == 0)

    def change(self, after: ClusterImage, joined: Collection[int] = ()) -> None:
        """Follow an image. `joined`: the replicas that have caught up with the leader of the partition that changes."""
        before, self.image = self.image, after
        check_next(before, after)
        self.check_clean_elections(before, joined)

    def check_clean_elections(self, before: ClusterImage, joined: Collection[int]) -> None:
        """A leader that was neither in the ISR nor in the ELR, or that was the last known one, is marked."""
        for topic_id, registrations in self.image.partitions.items():
            for old, new in zip(before.partitions.get(topic_id, ()), registrations, strict=False):
                if new.leader not in (NO_LEADER, old.leader):
                    is_clean = new.leader in {*old.isr, *old.elr, *joined} - {*old.last_known_elr}
                    assert is_clean or new.is_recovering

    def epoch(self, broker_id: int) -> int:
        return self.image.brokers[broker_id].epoch

    def of_registered(self, broker_id: int, decide: Callable[[ClusterImage, int, int], ClusterImage]) -> None:
        if broker_id in self.image.brokers:
            self.change(decide(self.image, broker_id, self.epoch(broker_id)))

    @rule(broker_id=BROKERS, is_clean=st.booleans())
    def register(self, broker_id: int, is_clean: bool) -> None:
        self.incarnations += 1
        broker = incarnation(broker_id, self.incarnations, rack="ab"[broker_id % 2])
        known = self.image.brokers.get(broker_id)
        try:
            self.change(register_broker(self.image, broker, self.rules_of, is_clean=is_clean))
        except DuplicateBrokerRegistrationError:
            assert known is not None and known.is_active
        else:
            assert self.image.brokers[broker_id].epoch == self.image.version

    @rule(broker_id=BROKERS)
    def unfence(self, broker_id: int) -> None:
        self.of_registered(broker_id, lambda *of: unfence_broker(*of, self.rules_of))

    @rule(broker_id=BROKERS, is_clean=st.booleans())
    def restart(self, broker_id: int, is_clean: bool) -> None:
        self.fence(broker_id)
        self.register(broker_id, is_clean)
        self.unfence(broker_id)

    @rule(broker_id=BROKERS)
    def fence(self, broker_id: int) -> None:
        self.of_registered(broker_id, lambda *of: fence_broker(*of, self.rules_of))

    @rule(broker_id=BROKERS)
    def shut_down(self, broker_id: int) -> None:
        self.of_registered(broker_id, lambda *of: begin_controlled_shutdown(*of, self.rules_of))
        for partitions in self.image.partitions.values():
            for each in partitions:
                leader = self.image.brokers.get(each.leader)
                if leader is not None and leader.is_shutting_down:
                    assert not any(self.image.brokers[i].is_active for i in each.isr if i in self.image.brokers)

    @rule(broker_id=BROKERS)
    def unregister(self, broker_id: int) -> None:
        if broker_id in self.image.brokers:
            self.change(unregister_broker(self.image, broker_id, self.rules_of))

    @rule(broker_id=BROKERS, data=st.data())
    def report_offline(self, broker_id: int, data: st.DataObject) -> None:
        offline = data.draw(st.sets(st.sampled_from(self.partitions()))) if self.partitions() else set()
        self.of_registered(broker_id, lambda *of: report_offline_logs(*of, offline, self.rules_of))

    @rule(count=st.integers(1, 3), factor=st.integers(1, 3), seed=st.integers(0, 99))
    def create(self, count: int, factor: int, seed: int) -> None:
        try:
            placed = Placement(self.image, Random(seed)).place(count, factor)
        except KafkaError:
            return
        self.created += 1
        created = {UUID(int=self.created): new_partitions(self.image, placed)}
        self.change(create_topics(self.image, created, self.created))

    @precondition(lambda self: self.image.partitions)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        topic_id = data.draw(st.sampled_from(sorted(self.image.partitions)))
        self.change(delete_topics(self.image, [topic_id], self.created))

    @precondition(lambda self: self.image.partitions)
    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        topic_id = data.draw(st.sampled_from(sorted(self.image.partitions)))
        existing = self.image.partitions[topic_id]
        try:
            placed = Placement(self.image, Random(0)).place(1, len(existing[0].replicas), existing)
        except KafkaError:
            return
        more = new_partitions(self.image, placed, first=len(existing))
        self.change(add_partitions(self.image, {topic_id: more}, self.created))

    @precondition(lambda self: self.image.partitions)
    @rule(data=st.data(), is_recovered=st.booleans())
    def alter_isr(self, data: st.DataObject, is_recovered: bool) -> None:
        of = data.draw(st.sampled_from(self.partitions()))
        before = self.image.partition(of)
        assert before is not None
        if before.leader == NO_LEADER:
            return
        others = data.draw(st.sets(st.sampled_from(before.replicas)))
        is_recovering = before.is_recovering and not is_recovered
        in_sync = (before.leader, *(() if is_recovering else sorted(others - {before.leader})))
        isr = tuple(Replica(each, self.epoch(each) if each in self.image.brokers else 0) for each in in_sync)
        asked = IsrChange(of, before.leader_epoch, before.partition_epoch, isr, is_recovering)
        after, errors = alter_partitions(self.image, before.leader, self.epoch(before.leader), [asked], self.rules_of)
        self.change(after, in_sync)
        for error in errors.values():
            assert isinstance(error, IneligibleReplicaError | NewLeaderElectedError)

    @precondition(lambda self: self.image.partitions)
    @rule(data=st.data(), replicas=st.lists(BROKERS, unique=True, min_size=1, max_size=3))
    def reassign(self, data: st.DataObject, replicas: list[int]) -> None:
        of = data.draw(st.sampled_from(self.partitions()))
        self.change(begin_reassignment(self.image, of, replicas, self.rules_of))

    @precondition(lambda self: self.image.partitions)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        of = data.draw(st.sampled_from(self.partitions()))
        try:
            self.change(cancel_reassignment(self.image, of, self.rules_of))
        except NoReassignmentInProgressError:
            found = self.image.partition(of)
            assert found is not None and not found.adding and not found.removing
        except InvalidReplicaAssignmentError:
            found = self.image.partition(of)
            assert found is not None and {*found.isr, *found.elr} <= {*found.adding}

    @rule(election=st.sampled_from([Election.PREFERRED, Election.UNCLEAN]))
    def elect(self, election: Election) -> None:
        before, asked = self.image, self.partitions()
        after, errors = elect_leaders(before, asked, election, self.rules_of)
        self.change(after)
        for each in asked:
            assert (after.partition(each) is before.partition(each)) == (each in errors)

    @rule(percentage=st.integers(0, 100))
    def rebalance(self, percentage: int) -> None:
        self.change(rebalance_leaders(self.image, percentage, self.rules_of))

    def partitions(self) -> list[TopicIdPartition]:
        return [(each, index) for each, known in sorted(self.image.partitions.items()) for index in range(len(known))]


@pytest.mark.exhaustive
def test_every_image_follows_the_one_before() -> None:
    run_state_machine_as_test(Events, settings=examples(60, stateful_step_count=40))  # type: ignore[no-untyped-call]
