"""Where the replicas of new partitions are placed.

What must hold: the replicas of a partition are on different brokers, the first of them, its leader, is on an active one, and none
is on a broker that shuts down. What is sought, in this order:

1. fenced brokers only where there are not enough others;
2. the replicas of a partition on different racks, or as evenly over the racks as there are racks;
3. each broker leads equally many partitions of the topic, and leaders alternate between racks;
4. all the others follow each leader in turn, so that all of them take over when it fails;
5. each broker has equally many replicas of the topic;
6. what is left over goes to the brokers with the fewest leaders and replicas in the cluster, then by lot.

Each replica is placed on the broker that is best by these measures at that moment. As in Kafka the racks come before the load: the
only broker of a rack has a replica of each partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

from kafkalake.cluster.image import BrokerRegistration, ClusterImage, PartitionRegistration
from kafkalake.errors import InvalidReplicationFactorError


class Placement:
    """Places the replicas of new partitions, of one topic after another: each counts for the next."""

    def __init__(self, image: ClusterImage, random: Random) -> None:
        self._image = image
        self._random = random
        self._load = _Load(image)

    def place(
        self, count: int, replication_factor: int, existing: Sequence[PartitionRegistration] = ()
    ) -> list[tuple[int, ...]]:
        """Return the replicas of `count` new partitions of a topic that has the partitions `existing`.

        Raise `InvalidReplicationFactorError` if there are too few brokers, or none is active.
        """
        check_factor(self._image, replication_factor)
        placer = _Placer(self._image, _usable(self._image, replication_factor), existing, self._load, self._random)
        return [placer.place(replication_factor) for _ in range(count)]


def check_factor(image: ClusterImage, replication_factor: int) -> None:
    """Raise `InvalidReplicationFactorError` if partitions cannot have so many replicas, with Kafka's message for a topic."""
    try:
        _usable(image, replication_factor)
    except InvalidReplicationFactorError as error:
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): {error}"
        ) from None


def factor_of(partitions: Sequence[PartitionRegistration]) -> int:
    """Return the replicas of a partition that is added to a topic: as many as its first one has, as in Kafka."""
    return len(partitions[0].replicas)


def _usable(image: ClusterImage, replication_factor: int) -> list[BrokerRegistration]:
    """Return the brokers on which partitions are placed, with so many replicas. Raise as `Placement.place`."""
    brokers = [each for each in image.brokers.values() if not each.is_shutting_down]
    if replication_factor <= 0:
        raise InvalidReplicationFactorError(
            f"Invalid replication factor {replication_factor}: the replication factor must be positive."
        )
    if not any(each.is_active for each in brokers):
        raise InvalidReplicationFactorError("All brokers are currently fenced.")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"The target replication factor of {replication_factor} cannot be reached because only {len(brokers)} "
            "broker(s) are registered."
        )
    return brokers


class _Load:
    """The counts of the whole cluster: of the partitions that prefer each broker as their leader, and of its replicas."""

    def __init__(self, image: ClusterImage) -> None:
        everywhere = [each for partitions in image.partitions.values() for each in partitions]
        self.led_by = Counter(each.replicas[0] for each in everywhere if each.replicas)
        self.on = Counter(broker_id for each in everywhere for broker_id in each.replicas)

    def count(self, replicas: Sequence[int]) -> None:
        """Count one more partition."""
        self.led_by.update(replicas[:1])
        self.on.update(replicas)


class _Placer:
    """The counts of one topic by which the next replica is placed, beside the load of the whole cluster."""

    def __init__(
        self,
        image: ClusterImage,
        brokers: list[BrokerRegistration],
        existing: Iterable[PartitionRegistration],
        load: _Load,
        random: Random,
    ) -> None:
        lots = list(range(len(brokers)))
        random.shuffle(lots)
        self._brokers = sorted(brokers, key=lambda each: each.broker_id)
        self._lots = {each.broker_id: lot for each, lot in zip(self._brokers, lots, strict=True)}
        self._racks = {broker_id: each.rack for broker_id, each in image.brokers.items()}
        self._led_by: Counter[int] = Counter()
        self._led_in: Counter[str | None] = Counter()
        self._on: Counter[int] = Counter()
        self._pairs: Counter[tuple[int, int]] = Counter()
        for partition in existing:
            self._count(partition.replicas)
        self._load = load

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of one more partition."""
        leader = min((each for each in self._brokers if each.is_active), key=self._as_leader)
        replicas = [leader.broker_id]
        racks = Counter([leader.rack])
        while len(replicas) < replication_factor:
            follower = min(
                (each for each in self._brokers if each.broker_id not in replicas),
                key=lambda each: self._as_follower(each, leader.broker_id, racks),
            )
            replicas.append(follower.broker_id)
            racks[follower.rack] += 1
        self._count(replicas)
        self._load.count(replicas)
        return tuple(replicas)

    def _as_leader(self, broker: BrokerRegistration) -> tuple[int, ...]:
        broker_id = broker.broker_id
        of_topic = (self._led_by[broker_id], self._led_in[broker.rack], self._on[broker_id])
        return *of_topic, self._load.led_by[broker_id], self._load.on[broker_id], self._lots[broker_id]

    def _as_follower(self, broker: BrokerRegistration, leader: int, racks: Counter[str | None]) -> tuple[int, ...]:
        broker_id = broker.broker_id
        of_topic = (racks[broker.rack], self._pairs[leader, broker_id], self._on[broker_id])
        return broker.is_fenced, *of_topic, self._load.on[broker_id], self._lots[broker_id]

    def _count(self, replicas: Sequence[int]) -> None:
        for first in replicas[:1]:
            self._led_by[first] += 1
            self._led_in[self._racks.get(first)] += 1
            self._pairs.update((first, each) for each in replicas[1:])
        self._on.update(replicas)
