"""Who leads a partition, after each kind of change."""

from __future__ import annotations

from uuid import UUID

import pytest
from cluster_images import TOPIC, check_next, cluster, only, partition, rules, text

from kafkalake.cluster.election import (
    ELECTIONS_MAX,
    Election,
    choose_leader,
    elect_leaders,
    leader_imbalance,
    rebalance_leaders,
    settle,
)
from kafkalake.cluster.image import NO_LEADER, PartitionRegistration
from kafkalake.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    KafkaError,
    PreferredLeaderNotAvailableError,
    UnknownTopicOrPartitionError,
)

ONLINE, PREFERRED, UNCLEAN = Election.ONLINE, Election.PREFERRED, Election.UNCLEAN


@pytest.mark.parametrize(
    ("found", "unfenced", "election", "leader", "is_unclean"),
    [
        (partition(1, "012", "012"), "012", ONLINE, 1, False),  # the leader stays
        (partition(1, "012", "012"), "012", PREFERRED, 0, False),
        (partition(1, "012", "12"), "012", PREFERRED, 1, False),  # the preferred replica is not in the ISR
        (partition(-1, "012", "012"), "012", ONLINE, 0, False),  # in order of the replicas, not of the ISR
        (partition(-1, "012", "21"), "012", ONLINE, 1, False),
        (partition(1, "012", "12"), "02", ONLINE, 2, False),
        (partition(-1, "012", "1", elr="20"), "02", ONLINE, 0, False),  # from the ELR, in order of the replicas
        (partition(-1, "012", "1", elr="2"), "12", ONLINE, 1, False),  # from the ISR before the ELR
        (partition(-1, "012", "1", elr="2"), "0", ONLINE, NO_LEADER, False),
        (partition(-1, "012", "1", elr="2"), "0", UNCLEAN, 0, True),
        (partition(-1, "012", "1", last="1"), "01", ONLINE, 1, True),  # the last known leader
        (partition(-1, "012", "1", last="1"), "01", UNCLEAN, 1, True),  # before any other
        (partition(-1, "012", "1", last="1"), "0", ONLINE, NO_LEADER, False),
        (partition(-1, "01", "01", offline="0"), "01", ONLINE, 1, False),  # a replica without a log does not lead
        (partition(-1, "0", "0", offline="0"), "0", UNCLEAN, NO_LEADER, False),
        (partition(-1, "0", "0"), "0", ONLINE, 0, False),
        (partition(0, "0", "0"), "12", UNCLEAN, NO_LEADER, False),  # others are no replicas
        (PartitionRegistration(0, 1, (1,), (1,)), "01", ONLINE, 1, False),  # a leader that is no replica
    ],
)
def test_who_leads(
    found: PartitionRegistration, unfenced: str, election: Election, leader: int, is_unclean: bool
) -> None:
    brokers = cluster(unfenced=unfenced, fenced="".join({*"012"} - {*unfenced})).brokers
    assert choose_leader(brokers, found, election) == (leader, is_unclean)
    without_the_fenced = cluster(unfenced=unfenced).brokers
    assert choose_leader(without_the_fenced, found, election) == (leader, is_unclean)


def test_a_leader_that_shuts_down_stays_until_another_can_lead() -> None:
    alone = cluster(unfenced="1", shutting_down="0").brokers
    assert choose_leader(alone, partition(0, "01", "0"), UNCLEAN) == (0, False)
    assert choose_leader(alone, partition(0, "01", "01"), ONLINE) == (1, False)
    assert choose_leader(alone, partition(0, "01", "0", elr="1"), ONLINE) == (1, False)
    assert choose_leader(alone, partition(-1, "01", "0"), ONLINE) == (NO_LEADER, False)


@pytest.mark.parametrize(
    ("before", "target", "min_isr", "after"),
    [
        # A replica leaves the ISR: it is eligible only if the ISR is now smaller than min.insync.replicas.
        (partition(0, "012", "012"), partition(0, "012", "01"), 2, "0 01/-/- +0+1"),
        (partition(0, "012", "01"), partition(0, "012", "0"), 2, "0 0/1/- +0+1"),
        (partition(0, "012", "01"), partition(0, "012", "0"), 1, "0 0/-/- +0+1"),
        (partition(0, "012", "012"), partition(0, "012", "0"), 3, "0 0/12/- +0+1"),
        (partition(0, "01", "01"), partition(0, "01", "01"), 3, "0 01/-/- +0+0"),  # no more than there are replicas
        # It returns, and nobody needs the ELR any more.
        (partition(0, "012", "0", elr="12"), partition(0, "012", "02", elr="12"), 3, "0 02/1/- +0+1"),
        (partition(0, "012", "0", elr="12"), partition(0, "012", "02", elr="12"), 2, "0 02/-/- +0+1"),
        # An election from the ELR makes it the ISR, and the replica that was in the ISR eligible.
        (partition(5, "512", "5", elr="12"), partition(5, "512", "5", elr="12"), 2, "1 1/52/- +1+1"),
        (partition(5, "512", "5", last="5"), partition(5, "512", "5", last="5"), 2, "none 5/-/5 +1+1"),
        # The last known leader leads again, and its data may lack something.
        (partition(-1, "012", "0", last="0"), partition(-1, "012", "0", last="0"), 2, "0! 0/-/- +1+1"),
        (partition(0, "012", "012"), partition(0, "012", "012"), 2, "0 012/-/- +0+0"),
    ],
)
def test_what_becomes_of_a_partition(
    before: PartitionRegistration, target: PartitionRegistration, min_isr: int, after: str
) -> None:
    found = settle(cluster().brokers, before, target, rules(min_isr))
    assert text(found) == after
    assert (found is before) == after.endswith("+0+0")


def test_an_unclean_election_needs_leave_and_is_marked() -> None:
    before = partition(-1, "312", "3", elr="3")
    assert settle(cluster().brokers, before, before, rules()).leader == NO_LEADER
    assert text(settle(cluster().brokers, before, before, rules(unclean=True))) == "1! 1/-/- +1+1"


@pytest.mark.parametrize(
    ("found", "election", "after"),
    [
        (partition(1, "012", "012"), PREFERRED, "0 012/-/- +1+1"),
        (partition(0, "012", "012"), PREFERRED, ElectionNotNeededError),
        (partition(1, "012", "12"), PREFERRED, PreferredLeaderNotAvailableError),
        (partition(1, "312", "312"), PREFERRED, PreferredLeaderNotAvailableError),
        (partition(-1, "312", "3"), PREFERRED, PreferredLeaderNotAvailableError),
        (partition(-1, "012", "2"), PREFERRED, "2 2/-/- +1+1"),  # as in Kafka: a leader at all
        (partition(1, "012", "12"), UNCLEAN, ElectionNotNeededError),
        (partition(-1, "312", "3"), UNCLEAN, "1! 1/-/- +1+1"),
        (partition(-1, "34", "3"), UNCLEAN, EligibleLeadersNotAvailableError),
    ],
)
def test_an_administrator_asks_for_an_election(
    found: PartitionRegistration, election: Election, after: str | type[KafkaError]
) -> None:
    image = cluster(found)
    elected, errors = elect_leaders(image, [(TOPIC, 0)], election, lambda _: rules())
    check_next(image, elected)
    if isinstance(after, str):
        assert (text(only(elected)), errors) == (after, {})
    else:
        assert elected is image
        assert [type(error) for error in errors.values()] == [after]


def test_elections_of_several_partitions_are_one_version() -> None:
    image = cluster(partition(1, "01", "01"), partition(0, "01", "01"), partition(2, "02", "02"))
    unknown = [(TOPIC, 3), (TOPIC, -1), (UUID(int=9), 0)]
    after, errors = elect_leaders(image, [(TOPIC, 0), (TOPIC, 1), (TOPIC, 2), *unknown], PREFERRED, lambda _: rules())
    assert after.version == image.version + 1
    assert [each.leader for each in after.partitions[TOPIC]] == [0, 0, 0]
    assert isinstance(errors.pop((TOPIC, 1)), ElectionNotNeededError)
    assert {type(error) for error in errors.values()} == {UnknownTopicOrPartitionError}
    assert list(errors) == unknown


def test_brokers_that_lead_too_little_of_what_they_should_get_it_back() -> None:
    moved, own = partition(1, "01", "01"), partition(0, "01", "01")
    image = cluster(moved, own, partition(1, "10", "10"), partition(1, "21", "1"))
    assert leader_imbalance(image) == {0: 0.5, 1: 0.0, 2: 1.0}
    assert rebalance_leaders(image, 100, lambda _: rules()) is image
    after = rebalance_leaders(image, 50, lambda _: rules())
    assert after is image  # 2 is above the percentage, but not in the ISR
    after = rebalance_leaders(image, 10, lambda _: rules())
    check_next(image, after)
    assert [each.leader for each in after.partitions[TOPIC]] == [0, 0, 1, 1]


def test_a_reassignment_and_a_partition_without_leader_are_not_rebalanced() -> None:
    adding = PartitionRegistration(1, 0, (0, 1), (0, 1), adding=(0,))
    image = cluster(adding, partition(-1, "03", "3"))
    assert rebalance_leaders(image, 0, lambda _: rules()) is image


def test_elections_of_preferred_leaders_are_limited() -> None:
    image = cluster(*[partition(1, "01", "01")] * (ELECTIONS_MAX + 1))
    after = rebalance_leaders(image, 10, lambda _: rules())
    assert [each.leader for each in after.partitions[TOPIC]] == [0] * ELECTIONS_MAX + [1]
