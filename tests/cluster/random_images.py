"""Images of a cluster, made from a seed."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from uuid import UUID

from kafkalake.cluster.image import (
    BrokerRegistration,
    ClusterImage,
    ConfigResource,
    ControllerRegistration,
    Endpoint,
    PartitionRegistration,
    ResourceKind,
)


def following(image: ClusterImage, **changes: object) -> ClusterImage:
    return replace(image, version=image.version + 1, **changes)  # type: ignore[arg-type]


def random_id(random: Random) -> UUID:
    return UUID(int=random.getrandbits(128))


def random_broker(random: Random, broker_id: int) -> BrokerRegistration:
    listeners = ("PLAINTEXT", "INSIDE")[: random.randrange(3)]
    return BrokerRegistration(
        broker_id,
        epoch=random.getrandbits(40),
        incarnation_id=random_id(random),
        endpoints=tuple(Endpoint(name, f"host-{broker_id}", 9092 + each) for each, name in enumerate(listeners)),
        rack=random.choice((None, "", "a")),
        machine=random.choice(("", "m-1")),
        boot_id=random.choice(("", "b-1")),
        is_fenced=random.random() < 0.5,
        is_shutting_down=random.random() < 0.5,
        is_voter=bool(broker_id % 3),
    )


def random_controller(random: Random, node_id: int) -> ControllerRegistration:
    listeners = ("CONTROLLER", "INSIDE")[: random.randrange(3)]
    endpoints = tuple(Endpoint(name, f"host-{node_id}", 9093 + each) for each, name in enumerate(listeners))
    return ControllerRegistration(node_id, random_id(random), endpoints)


def random_partition(random: Random) -> PartitionRegistration:
    ids = [tuple(random.sample(range(6), random.randrange(4))) for _ in range(7)]
    replicas, isr, offline, elr, last_known_elr, adding, removing = ids
    return PartitionRegistration(
        leader=random.randrange(-1, 6),
        leader_epoch=random.randrange(-1, 100),
        replicas=replicas,
        isr=isr,
        offline=offline,
        partition_epoch=random.randrange(100),
        elr=elr,
        last_known_elr=last_known_elr,
        adding=adding,
        removing=removing,
        is_recovering=random.random() < 0.5,
    )


def random_change(random: Random, image: ClusterImage) -> ClusterImage:
    """Return the next version: some of its parts have changed, grown or shrunk."""
    topics = dict(image.partitions)
    for topic_id in random.sample(sorted(topics), min(len(topics), random.randrange(3))):
        del topics[topic_id]
    for _ in range(random.randrange(4)):
        topic_id = random.choice([random_id(random), *topics])
        topics[topic_id] = tuple(random_partition(random) for _ in range(random.randrange(1, 4)))
    brokers = {each: random_broker(random, each) for each in random.sample(range(5), random.randrange(5))}
    changes: dict[str, object] = {
        "cluster_id": "lake",
        "controller_id": random.randrange(-1, 5),
        "controller_epoch": image.controller_epoch + 1,
        "topics_version": random.randrange(-1, 100),
        "next_producer_id": random.getrandbits(62),
        "brokers": brokers,
        "partitions": topics,
        "config": {
            ConfigResource(random.choice(list(ResourceKind)), f"name-{each}"): {"setting": str(random.random())}
            for each in range(random.randrange(3))
        },
        "features": {f"feature-{each}": each for each in range(random.randrange(3))},
    }
    kept = random.sample(sorted(changes), random.randrange(len(changes) + 1))
    controllers = {each: random_controller(random, each) for each in range(5, 5 + random.randrange(3))}
    changed = {"controllers": controllers} if random.random() < 0.5 else {}
    return following(image, **{name: changes[name] for name in kept}, **changed)
