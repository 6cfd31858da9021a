"""The quorum of controllers as Kafka's tools see it: its voters may be elected, its observers are the other brokers.

Its log are the versions of the image.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import NAMESPACE_OID, UUID, uuid5

from kafkalake.cluster.image import NO_CONTROLLER, ClusterImage


class Followed(NamedTuple):
    """The version that a broker had followed at its last heartbeat, and when that and the last one with the newest version came."""

    version: int
    heard_ms: int
    caught_up_ms: int


def voters(cluster: ClusterImage) -> list[int]:
    """Return the ids of the nodes that may be elected as the controller, and of the one that is."""
    able = {each.broker_id for each in cluster.brokers.values() if each.is_voter}
    return sorted({cluster.controller_id, *able, *cluster.controllers} - {NO_CONTROLLER})


def observers(cluster: ClusterImage) -> list[int]:
    """Return the ids of the brokers that are no voters."""
    return sorted(cluster.brokers.keys() - set(voters(cluster)))


def directory_id(cluster: ClusterImage, broker_id: int) -> UUID:
    """Return the id that Kafka has for the directory of a voter's log: here it is made of the cluster's and the broker's."""
    return uuid5(NAMESPACE_OID, f"{cluster.cluster_id}/{broker_id}")
