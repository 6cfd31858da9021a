"""The ISR that a leader asks for, and partitions that move to other brokers."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from cluster_images import TOPIC, check_next, cluster, only, partition, rules, text
from reassignments import begin_reassignment, cancel_reassignment

from kafkalake.cluster.election import ElectionRules
from kafkalake.cluster.image import ClusterImage, PartitionRegistration
from kafkalake.cluster.partition_changes import ANY_EPOCH, IsrChange, Replica, alter_partitions
from kafkalake.cluster.registration import fence_broker
from kafkalake.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KafkaError,
    NewLeaderElectedError,
    NoReassignmentInProgressError,
    NotControllerError,
    StaleBrokerEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)

P = (TOPIC, 0)


def two(_: object) -> ElectionRules:
    return rules(2)


def isr(
    ids: str, leader_epoch: int = 5, partition_epoch: int = 7, epoch: int | None = None, *, recovering: bool = False
) -> IsrChange:
    """Return a change to an ISR, with the epochs of `cluster` and `partition`."""
    replicas = tuple(Replica(int(each), 10 * int(each) if epoch is None else epoch) for each in ids)
    return IsrChange(P, leader_epoch, partition_epoch, replicas, recovering)


def alter(image: ClusterImage, change: IsrChange, leader: int = 0) -> tuple[ClusterImage, KafkaError | None]:
    after, errors = alter_partitions(image, leader, 10 * leader, [change], two)
    check_next(image, after)
    return after, errors.get(P)


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (partition(0, "012", "012"), isr("01"), "0 01/-/- +0+1"),
        (partition(0, "012", "01"), isr("0"), "0 0/1/- +0+1"),
        (partition(0, "012", "0", elr="1"), isr("02"), "0 02/-/- +0+1"),
        (partition(0, "012", "0", elr="1"), isr("021"), "0 021/-/- +0+1"),
        (partition(0, "012", "01"), isr("012", epoch=ANY_EPOCH), "0 012/-/- +0+1"),
        (partition(0, "012", "01"), isr("01"), "0 01/-/- +0+0"),
        (replace(partition(0, "012", "0"), is_recovering=True), isr("0", recovering=True), "0! 0/-/- +0+0"),
        (replace(partition(0, "012", "0"), is_recovering=True), isr("01"), "0 01/-/- +0+1"),
    ],
)
def test_a_leader_changes_its_isr(before: PartitionRegistration, change: IsrChange, after: str) -> None:
    found, error = alter(cluster(before), change)
    assert (text(only(found)), error) == (after, None)


@pytest.mark.parametrize(
    ("change", "leader", "error"),
    [
        (isr("01", leader_epoch=6), 0, NotControllerError),
        (isr("01", partition_epoch=8), 0, NotControllerError),
        (isr("01", leader_epoch=4, partition_epoch=6), 0, FencedLeaderEpochError),
        (isr("01"), 1, InvalidRequestError),
        (isr("01", partition_epoch=6), 0, InvalidUpdateVersionError),
        (isr("03"), 0, InvalidRequestError),
        (isr("011"), 0, InvalidRequestError),
        (isr("1"), 0, InvalidRequestError),
        (isr(""), 0, InvalidRequestError),
        (isr("0", recovering=True), 0, InvalidRequestError),
        (isr("01", epoch=0), 0, IneligibleReplicaError),  # 1 has registered anew since the leader saw it fetch
        (isr("04"), 0, IneligibleReplicaError),
        (isr("05"), 0, IneligibleReplicaError),
        (isr("06"), 0, IneligibleReplicaError),
    ],
)
def test_an_isr_is_refused(change: IsrChange, leader: int, error: type[KafkaError]) -> None:
    image = cluster(partition(0, "012456", "012"), unfenced="0123", fenced="4", shutting_down="5")
    after, refused = alter(image, change, leader)
    assert (after, type(refused)) == (image, error)


def test_a_recovering_leader_is_alone_in_the_isr() -> None:
    image = cluster(replace(partition(0, "012", "0"), is_recovering=True))
    after, refused = alter(image, isr("01", recovering=True))
    assert (after, type(refused)) == (image, InvalidRequestError)


def test_one_refused_partition_does_not_stop_the_others() -> None:
    image = cluster(partition(0, "012", "012"), partition(1, "012", "012"), partition(0, "02", "02"))
    asked = {(TOPIC, 0): "01", (TOPIC, 1): "01", (TOPIC, 2): "0", (TOPIC, 3): "0", (UUID(int=9), 0): "0"}
    changes = [replace(isr(ids), partition=of) for of, ids in asked.items()]
    after, errors = alter_partitions(image, 0, 0, changes, two)
    check_next(image, after)
    assert [each.isr for each in after.partitions[TOPIC]] == [(0, 1), (0, 1, 2), (0,)]
    assert {of[1]: type(error) for of, error in errors.items() if of[0] == TOPIC} == {
        1: InvalidRequestError,
        3: UnknownTopicOrPartitionError,
    }
    assert isinstance(errors[UUID(int=9), 0], UnknownTopicIdError)
    with pytest.raises(StaleBrokerEpochError):
        alter_partitions(image, 0, 1, changes, two)


def test_a_leader_that_shuts_down_hands_over_to_the_replica_that_caught_up() -> None:
    image = cluster(partition(0, "012", "0"), unfenced="12", shutting_down="0")
    after, error = alter(image, isr("02"))
    assert text(only(after)) == "2 2/0/- +1+1"
    assert isinstance(error, NewLeaderElectedError)


# Reassignment.


def moving(found: PartitionRegistration) -> str:
    """Return replicas, those added and removed, leader and ISR."""
    lists = (found.replicas, found.adding, found.removing, found.isr)
    replicas, adding, removing, in_sync = ("".join(map(str, each)) or "-" for each in lists)
    return f"{replicas} +{adding} -{removing} {found.leader}/{in_sync}"


def test_a_partition_moves_when_the_new_replicas_are_in_the_isr() -> None:
    image = cluster(partition(0, "01", "01"), unfenced="0123")
    first = begin_reassignment(image, P, (2, 3), two)
    check_next(image, first)
    assert moving(only(first)) == "2301 +23 -01 0/01"
    second, error = alter(first, isr("012", partition_epoch=8))
    assert (moving(only(second)), error) == ("2301 +23 -01 0/012", None)
    last, error = alter(second, isr("0123", partition_epoch=9))
    assert moving(only(last)) == "23 +- -- 2/23"
    assert isinstance(error, NewLeaderElectedError)
    assert text(only(last)) == "2 23/-/- +1+3"


def test_a_leader_that_stays_gets_a_new_epoch_when_replicas_are_removed() -> None:
    image = cluster(partition(0, "012", "012"))
    after = begin_reassignment(image, P, (0, 2), two)
    check_next(image, after)
    assert (moving(only(after)), text(only(after))) == ("02 +- -- 0/02", "0 02/-/- +1+1")


def test_another_order_of_the_same_replicas_counts_at_once() -> None:
    image = cluster(partition(0, "012", "012"))
    after = begin_reassignment(image, P, (2, 0, 1), two)
    assert (moving(only(after)), text(only(after))) == ("201 +- -- 0/012", "0 012/-/- +0+1")
    assert begin_reassignment(after, P, (2, 0, 1), two) is after


def test_removed_replicas_stay_until_the_others_are_in_sync() -> None:
    image = cluster(partition(0, "012", "01"))
    after = begin_reassignment(image, P, (1, 2), two)
    assert moving(only(after)) == "120 +- -0 0/01"


def test_a_second_move_takes_the_place_of_the_first_and_can_be_cancelled() -> None:
    image = cluster(partition(0, "01", "01"), unfenced="01234")
    first = begin_reassignment(image, P, (2, 3), two)
    second = begin_reassignment(first, P, (4, 0), two)
    check_next(first, second)
    assert moving(only(second)) == "40231 +423 -231 0/01"
    assert moving(only(cancel_reassignment(second, P, two))) == "01 +- -- 0/01"
    last, _ = alter(second, isr("014", partition_epoch=9))
    assert moving(only(last)) == "40 +- -- 0/04"


def test_a_move_is_cancelled() -> None:
    image = cluster(partition(0, "01", "01"), unfenced="0123")
    first, _ = alter(begin_reassignment(image, P, (2, 3), two), isr("012", partition_epoch=8))
    after = cancel_reassignment(first, P, two)
    check_next(first, after)
    assert moving(only(after)) == "01 +- -- 0/01"
    with pytest.raises(NoReassignmentInProgressError):
        cancel_reassignment(after, P, two)


def test_a_move_is_cancelled_only_to_a_replica_with_all_records() -> None:
    image = cluster(replace(partition(2, "201", "2"), adding=(2,)))
    with pytest.raises(InvalidReplicaAssignmentError, match="would require an unclean leader election"):
        cancel_reassignment(image, P, two)
    assert text(only(cancel_reassignment(image, P, lambda _: rules(2, unclean=True)))) == "0! 0/-/- +1+1"
    eligible = cluster(replace(partition(2, "201", "2", elr="1"), adding=(2,)))
    assert text(only(cancel_reassignment(eligible, P, two))) == "1 1/-/- +1+1"


def test_a_move_goes_on_over_the_end_of_a_broker() -> None:
    image = cluster(partition(0, "01", "01"), unfenced="0123")
    after = fence_broker(begin_reassignment(image, P, (2, 3), two), 0, 0, two)
    assert moving(only(after)) == "2301 +23 -01 1/1"


def test_the_replication_factor_changes_only_if_it_may() -> None:
    image = cluster(partition(0, "01", "01"), unfenced="0123")
    moved = begin_reassignment(image, P, (2, 3, 0), two)
    for now, replicas, message in (
        (image, (0,), "The replication factor is changed from 2 to 1"),
        (moved, (2, 3), "The replication factor is changed from 3 to 2"),
    ):
        with pytest.raises(InvalidReplicationFactorError, match=message):
            begin_reassignment(now, P, replicas, two, may_change_factor=False)
    assert begin_reassignment(image, P, (2, 3), two, may_change_factor=False).version == image.version + 1


def test_an_unknown_partition_does_not_move() -> None:
    for change in (
        lambda of: begin_reassignment(cluster(), of, (0,), two),
        lambda of: cancel_reassignment(cluster(), of, two),
    ):
        with pytest.raises(UnknownTopicOrPartitionError):
            change((TOPIC, 1))
