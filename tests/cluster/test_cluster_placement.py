"""Where replicas are placed: on different brokers, by racks, with leaders and load spread evenly."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from cluster_images import cluster, incarnation, partition
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from kafkalake.cluster.image import BrokerRegistration, ClusterImage, PartitionRegistration
from kafkalake.cluster.placement import Placement
from kafkalake.errors import InvalidReplicationFactorError


def racked(racks: list[str | None], fenced: frozenset[int] = frozenset()) -> ClusterImage:
    brokers: dict[int, BrokerRegistration] = {}
    for broker_id, rack in enumerate(racks):
        brokers[broker_id] = replace(incarnation(broker_id), rack=rack, is_fenced=broker_id in fenced)
    return ClusterImage("lake", brokers=brokers)


_racks = st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=9)


@given(st.data(), _racks, st.integers(1, 40), st.integers(0, 2**32))
@examples(150)
def test_replicas_are_distinct_spread_over_racks_and_led_evenly(
    data: st.DataObject, racks: list[str | None], count: int, seed: int
) -> None:
    fenced = data.draw(st.frozensets(st.integers(0, len(racks) - 1), max_size=len(racks) - 1))
    factor = data.draw(st.integers(1, len(racks)))
    image = racked(racks, fenced)
    placed = Placement(image, Random(seed)).place(count, factor)
    assert placed == Placement(image, Random(seed)).place(count, factor)
    active = set(range(len(racks))) - fenced
    sizes = Counter(racks[each] for each in active)
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in active
        assert len(active & set(replicas)) == min(
            factor, len(active)
        )  # fenced ones only where there are too few others
        used = Counter(racks[each] for each in replicas if each in active)
        most = max(used.values())
        assert all(used[rack] >= min(most - 1, size) for rack, size in sizes.items()), "a rack was passed over"
    led = Counter(replicas[0] for replicas in placed)
    assert max(led[each] for each in active) - min(led[each] for each in active) <= 1


@pytest.mark.parametrize("racks", [[None] * 3, ["a", "b", "c"], ["a", "a", "b", "b", "c", "c"], [None] * 5])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_of_round_numbers_each_broker_has_the_same(racks: list[str | None], factor: int) -> None:
    for seed in range(5):
        placed = Placement(racked(racks), Random(seed)).place(12 * len(racks), factor)
        assert set(Counter(replicas[0] for replicas in placed).values()) == {12}
        assert set(Counter(each for replicas in placed for each in replicas).values()) == {12 * factor}
        leaders = [racks[replicas[0]] for replicas in placed]
        if racks[0] is not None:
            assert all(len({*leaders[at : at + 3]}) == 3 for at in range(0, len(leaders), 3)), "racks alternate"


def test_the_followers_of_a_leader_are_all_the_others_in_turn() -> None:
    placed = Placement(racked([None] * 4), Random(1)).place(36, 2)
    for leader in range(4):
        assert Counter(second for first, second in placed if first == leader) == {
            other: 3 for other in range(4) if other != leader
        }


def test_topics_of_one_partition_are_spread_by_load() -> None:
    image = racked([None] * 3)
    topics: list[PartitionRegistration] = []
    for seed in range(30):
        (replicas,) = Placement(image, Random(seed)).place(1, 2)
        topics.append(PartitionRegistration(replicas[0], 0, replicas, replicas))
        image = replace(image, partitions={incarnation(0, 1).incarnation_id: tuple(topics)})
    assert set(Counter(each.leader for each in topics).values()) == {10}
    assert set(Counter(broker_id for each in topics for broker_id in each.replicas).values()) == {20}


def test_more_partitions_of_a_topic_go_where_it_has_few() -> None:
    existing = [partition(0, "01", "01"), partition(0, "01", "01")]
    placed = Placement(racked([None] * 3), Random(0)).place(4, 1, existing)
    assert Counter(first for (first,) in placed) == {1: 2, 2: 2}


def test_a_broker_that_shuts_down_gets_none() -> None:
    placed = Placement(cluster(unfenced="01", shutting_down="2"), Random(0)).place(12, 2)
    assert {each for replicas in placed for each in replicas} == {0, 1}


@pytest.mark.parametrize(
    ("image", "factor", "message"),
    [
        (cluster(), 0, "Invalid replication factor 0: the replication factor must be positive."),
        (cluster(unfenced="", fenced="012"), 1, "All brokers are currently fenced."),
        (
            cluster(unfenced="0", fenced="1", shutting_down="2"),
            3,
            "The target replication factor of 3 cannot be reached because only 2 broker(s) are registered.",
        ),
    ],
)
def test_too_few_brokers_are_refused_as_kafka_words_it(image: ClusterImage, factor: int, message: str) -> None:
    with pytest.raises(InvalidReplicationFactorError) as refused:
        Placement(image, Random(0)).place(1, factor)
    assert str(refused.value) == f"Unable to replicate the partition {factor} time(s): {message}"
