"""Blocks of producer ids: each broker takes ids from its own block, so that an id is assigned once in the cluster."""

from __future__ import annotations

from dataclasses import replace

from kafkalake.cluster.image import ClusterImage
from kafkalake.cluster.registration import check_broker_epoch
from kafkalake.errors import KafkaError

BLOCK = 1000
"""The number of ids in a block, as in Kafka."""
_PRODUCER_ID_MAX = 2**63 - 1


def raise_next_producer_id(image: ClusterImage, least: int) -> ClusterImage:
    """Return the next version, whose next block begins at `least` or later: ids below were assigned without the controller."""
    if image.next_producer_id >= least:
        return image
    return replace(image, version=image.version + 1, next_producer_id=least)


def allocate_producer_ids(image: ClusterImage, broker_id: int, broker_epoch: int) -> ClusterImage:
    """Return the next version, in which a broker has the `BLOCK` ids from `image.next_producer_id` on.

    Raise `StaleBrokerEpochError` if the broker is not registered with that epoch, `KafkaError` if all ids are used up.
    """
    check_broker_epoch(image, broker_id, broker_epoch)
    if image.next_producer_id > _PRODUCER_ID_MAX - BLOCK:
        raise KafkaError(
            "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit"
        )
    return replace(image, version=image.version + 1, next_producer_id=image.next_producer_id + BLOCK)
