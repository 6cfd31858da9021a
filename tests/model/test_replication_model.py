"""The check of all states finds nothing wrong in the replication of a partition, and each bug once its guard is removed.

`MODEL_WALKS=100000` walks so often through states with all faults together.
"""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest
from exploration import explore, wander
from memory_control_store import MemoryControlStore
from replication_model import Decisions, Replication
from replication_state import Bounds, Log, representative

from kafkalake.cluster import election, partition_changes, replication
from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import BrokerRegistration, ClusterImage, PartitionRegistration
from kafkalake.cluster.partition_changes import Replica
from kafkalake.cluster.replication import Leadership
from kafkalake.storage.leader_epochs import LeaderEpochs

pytestmark = pytest.mark.exhaustive

WALKS = int(os.environ.get("MODEL_WALKS", 20))
TWO = (0, 1)
LED_BY_TWO = ("0 takes over", "1 learns")
LED = (*LED_BY_TWO, "2 learns")
COMMITTED = (*LED, "0 appends 0", "1 fetches", "1 fetches")
COMMITTED_BY_ALL = (*LED, "0 appends 0", "1 fetches", "2 fetches", "1 fetches", "2 fetches")
COMMITTED_BY_TWO = (*LED_BY_TWO, "0 appends 0", "1 fetches", "1 fetches")
"""What has happened before all is looked at. A follower's second fetch tells the leader that it has the record."""
ALL_FAULTS = Bounds(
    values=6, lossy=1, clean=3, fences=4, shrinks=4, reassignments=4, ambiguous=2, delayed=3, elections=5
)
TARGETS = ((0, 1), (1, 2), (0, 2), (0, 1, 2))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("model", "least"),
    [
        (Replication(Bounds(values=2, elections=2), begun=LED), 10_000),
        (Replication(Bounds(values=2, fences=1, ambiguous=1), begun=LED), 10_000),
        (Replication(Bounds(values=1, fences=1, lossy=1), begun=COMMITTED_BY_ALL), 10_000),
        (Replication(Bounds(values=2, clean=1), begun=COMMITTED), 3_000),
        (Replication(Bounds(values=2, shrinks=1), begun=LED), 1_000),
        (Replication(Bounds(values=1, delayed=1, lossy=1), begun=LED), 8_000),
        (
            Replication(
                Bounds(values=1, reassignments=1, elections=1),
                replicas=TWO,
                targets=((0, 2), (1, 2)),
                begun=LED_BY_TWO,
            ),
            1_000,
        ),
    ],
    ids=["elections", "ambiguous fence", "power loss and fence", "kill", "shrink", "late fetch", "reassignment"],
)
def test_nothing_committed_is_lost_or_changed(model: Replication, least: int) -> None:
    explored = explore(model.start(), model.steps, 100_000, representative)
    assert explored.violation == ()
    assert explored.states > least, "the model has lost most of its steps"


def test_nothing_is_lost_or_changed_by_all_faults_together() -> None:
    model = Replication(ALL_FAULTS, targets=TARGETS)
    for seed in range(WALKS):
        assert wander(model.start(), model.steps, Random(seed), 300) == (), f"walk {seed}"


# The guards. Each is removed from production's decision.


def cut_at_the_watermark(log: Log) -> int:
    return log.high_watermark


def take_over_without_an_epoch(epochs: LeaderEpochs, epoch: int, log_end: int) -> None:
    """Leave it to the first append."""


def accept_every_epoch(asked: int, leader_epoch: int) -> None:
    """Fence no fetch."""


def watermark_by_the_isr(state: Leadership, log_end: int, now: int) -> int:
    return replication.high_watermark(replace(state, proposed=None), log_end, now)


def watermark_with_any_isr(state: Leadership, log_end: int, now: int) -> int:
    return replication.high_watermark(replace(state, min_isr=1), log_end, now)


def grow_below_the_epochs_start(
    state: Leadership, broker_id: int, high_watermark: int, broker: BrokerRegistration | None
) -> Leadership:
    grown = replication.propose_growth(replace(state, epoch_start=0), broker_id, high_watermark, broker)
    return replace(grown, epoch_start=state.epoch_start) if grown.proposed != state.proposed else state


def admit_any_incarnation(image: ClusterImage, replica: Replica, leader: int) -> bool:
    return replica.broker_id == leader or image.brokers[replica.broker_id].is_active


def forget_who_is_eligible(
    before: PartitionRegistration, target: PartitionRegistration, rules: ElectionRules, lossy: int | None
) -> PartitionRegistration:
    return target


class StoreWithoutComparison(MemoryControlStore):
    """Writes each commit after the newest, whatever it was decided on."""

    def commit(self, image: ClusterImage) -> None:
        self._images.append(image)


INCOMPLETE = "leader completeness: broker {} leads without what was committed"
REMOVED = "broker {} removes what is below its own watermark"


@pytest.mark.parametrize(
    ("model", "violation"),
    [
        (
            Replication(
                Bounds(values=1, clean=1, fences=1),
                Decisions(begin_to_follow=cut_at_the_watermark),
                replicas=TWO,
                begun=LED_BY_TWO,
            ),
            INCOMPLETE.format(1),
        ),
        (
            Replication(
                Bounds(values=2, elections=2),
                Decisions(take_over=take_over_without_an_epoch),
                replicas=TWO,
                begun=COMMITTED_BY_TWO,
            ),
            REMOVED.format(1),
        ),
        (
            Replication(Bounds(values=1, elections=2), Decisions(check_leader_epoch=accept_every_epoch), begun=LED),
            REMOVED.format(1),
        ),
        (
            Replication(
                Bounds(values=1, elections=1),
                Decisions(high_watermark=watermark_by_the_isr),
                isr=TWO,
                begun=LED,
            ),
            INCOMPLETE.format(2),
        ),
        (
            Replication(
                Bounds(values=1, elections=2, delayed=1),
                Decisions(propose_growth=grow_below_the_epochs_start),
                isr=TWO,
                begun=COMMITTED,
            ),
            INCOMPLETE.format(2),
        ),
        (
            Replication(
                Bounds(values=1, lossy=1, shrinks=1),
                Decisions(high_watermark=watermark_with_any_isr),
                replicas=TWO,
                begun=LED_BY_TWO,
            ),
            "global loss: no replica has offset 0",
        ),
        (
            Replication(Bounds(values=0, fences=2, ambiguous=1), Decisions(make_store=StoreWithoutComparison)),
            "an epoch of the partition has fallen",
        ),
    ],
    ids=[
        "cut at the watermark",
        "takeover without an epoch",
        "fetch not fenced",
        "watermark by the ISR in force",
        "growth below the start of the epoch",
        "watermark with too small an ISR",
        "store without comparison",
    ],
)
def test_a_guard_that_is_removed_is_missed(model: Replication, violation: str) -> None:
    expect(model, violation)


def test_a_controller_that_does_not_check_broker_epochs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_changes, "_is_eligible", admit_any_incarnation)
    expect(Replication(Bounds(values=1, lossy=1, elections=1), isr=TWO, begun=COMMITTED), INCOMPLETE.format(2))


def test_an_election_of_a_last_replica_that_lost_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_with_eligible", forget_who_is_eligible)
    bounds = Bounds(values=1, lossy=1, shrinks=1)
    expect(Replication(bounds, replicas=TWO, begun=LED_BY_TWO), INCOMPLETE.format(0))


def expect(model: Replication, violation: str) -> None:
    """Expect a violation, by a short way, which the guard rules out."""
    explored = explore(model.start(), model.steps, 20_000, representative)
    assert explored.violation[-1:] == (violation,)
    assert len(explored.violation) <= 12
