"""The replica from which a consumer reads: rules of Kafka's rack-aware selector."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from kafkalake.cluster.image import BrokerRegistration, ClusterImage, Endpoint, PartitionRegistration
from kafkalake.cluster.read_replicas import preferred_read_replica
from kafkalake.cluster.replication import Follower, Leadership, begin_leadership

LISTENER = "PLAINTEXT"


def image(**racks: str | None) -> ClusterImage:
    """Brokers 0, 1, ... in these racks, `r0=None`: in none."""
    endpoint = (Endpoint(LISTENER, "localhost", 9092, "PLAINTEXT"),)
    return ClusterImage(
        "lake",
        brokers={
            number: BrokerRegistration(number, 1, UUID(int=number), endpoint, rack=rack, is_fenced=False)
            for number, rack in enumerate(racks.values())
        },
    )


def leadership(*followers: Follower, isr: tuple[int, ...] = (0, 1, 2)) -> Leadership:
    """Of broker 0, with what it knows of its followers."""
    registered = PartitionRegistration(0, 1, (0, 1, 2), isr)
    return replace(begin_leadership(registered, 0, 0, 1, 0), followers=followers)


THREE = image(r0="a", r1="b", r2="b")
FIRST, SECOND = Follower(1, log_end=10, log_start=0), Follower(2, log_end=10, log_start=0)


@pytest.mark.parametrize(
    ("rack", "offset", "expected"),
    [("b", 5, 2), ("b", 10, 2), ("a", 5, None), ("c", 5, None), ("", 5, None), ("b", 11, None)],
)
def test_a_replica_in_the_rack_is_preferred(rack: str, offset: int, expected: int | None) -> None:
    assert preferred_read_replica(leadership(FIRST, SECOND), THREE, LISTENER, rack, offset) == expected


def test_the_leader_comes_first_in_its_own_rack() -> None:
    assert preferred_read_replica(leadership(FIRST, SECOND), image(r0="b", r1="b", r2="b"), LISTENER, "b", 5) is None


@pytest.mark.parametrize(
    ("second", "isr"),
    [
        (SECOND, (0, 1)),  # it is not in the ISR
        (SECOND._replace(log_end=4), (0, 1, 2)),  # it has not got the offset yet
        (SECOND._replace(log_start=6), (0, 1, 2)),  # it has deleted the offset
        (SECOND._replace(log_end=9), (0, 1, 2)),  # the other one has more
    ],
)
def test_a_replica_that_cannot_serve_or_has_less_is_not_preferred(second: Follower, isr: tuple[int, ...]) -> None:
    assert preferred_read_replica(leadership(FIRST, second, isr=isr), THREE, LISTENER, "b", 5) == 1


def test_a_replica_that_is_fenced_or_has_no_address_at_the_listener_is_not_preferred() -> None:
    state = leadership(FIRST, SECOND)
    assert preferred_read_replica(state, THREE, "OTHER", "b", 5) is None
    fenced = replace(THREE, brokers={**THREE.brokers, 2: replace(THREE.brokers[2], is_fenced=True)})
    assert preferred_read_replica(state, fenced, LISTENER, "b", 5) == 1
    gone = replace(THREE, brokers={0: THREE.brokers[0]})
    assert preferred_read_replica(state, gone, LISTENER, "b", 5) is None
