"""The election of the controller: a broker that does not reach the current one claims its place, once most others miss it too.

The votes decide nothing: a claim is a commit like any other, and of two claims of one version the store refuses one. They only
spare the cluster the elections that a broker without a network would begin again and again. For the same reason a broker that
nobody answers does not claim while the lake shows that the controller lives: it still renews its lease there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum

from kafkalake.cluster.image import ClusterImage


class Vote(Enum):
    """An answer to a candidate, or what its absence shows."""

    REACHES = "reaches the controller"
    MISSES = "does not reach the controller"
    GONE = "nothing listens at the broker's address"


def claim(image: ClusterImage, broker_id: int) -> ClusterImage:
    """Return the next version, with a broker as the controller, in an epoch in which there was none.

    A process is the controller of that epoch from when its commit has succeeded. It must not conclude it from an image, which an
    earlier process of the same broker may have committed.
    """
    return replace(
        image, version=image.version + 1, controller_id=broker_id, controller_epoch=image.controller_epoch + 1
    )


def is_controller(image: ClusterImage, broker_id: int, controller_epoch: int) -> bool:
    """Return whether the process that claimed an epoch for a broker is still the controller, if `image` is the newest.

    It asks this when a commit is refused as stale: versions without a controller's doing, such as of a cleanup, make one stale too.
    """
    return (image.controller_id, image.controller_epoch) == (broker_id, controller_epoch)


def electors(image: ClusterImage, broker_id: int) -> tuple[int, ...]:
    """Return the nodes that a candidate asks: all that are registered, but itself and the controller it does not reach."""
    return tuple(sorted(image.nodes - {broker_id, image.controller_id}))


def vote(image: ClusterImage, controller_epoch: int, *, reaches: bool) -> Vote | None:
    """Return a broker's answer to a candidate that does not reach the controller of an epoch, None if it does not know it yet.

    reaches: whether the broker reaches the controller of `image`.
    """
    if image.controller_epoch < controller_epoch:
        return None
    has_newer = image.controller_epoch > controller_epoch  # the candidate's image is outdated
    return Vote.REACHES if has_newer or reaches else Vote.MISSES


def may_claim(
    image: ClusterImage,
    broker_id: int,
    votes: Mapping[int, Vote],
    *,
    controller_is_gone: bool,
    silent_ms: int,
    patience_ms: int,
) -> bool:
    """Return whether a broker that does not reach the controller claims its place.

    votes: of the `electors` that answered, and of those that are gone. controller_is_gone: nothing listens at its address.
    silent_ms: since its last sign of life, be it a response, a version or a renewed lease; `patience_ms` of that are enough.
    """
    if image.controller_id == broker_id or image.controller_id not in image.nodes:
        return True  # it was an earlier process of this broker, or there is none
    asked = [(votes.get(elector), _is_fenced(image, elector)) for elector in electors(image, broker_id)]
    counted = [each for each, is_fenced in asked if each is not Vote.GONE and not (each is None and is_fenced)]
    if 2 * counted.count(Vote.MISSES) > len(counted):
        return True
    if Vote.REACHES in counted:
        return False
    return controller_is_gone or silent_ms >= patience_ms


def _is_fenced(image: ClusterImage, node_id: int) -> bool:
    broker = image.brokers.get(node_id)
    return broker is not None and broker.is_fenced


def pause_ms(
    image: ClusterImage, broker_id: int, election_timeout_ms: int, uniform: Callable[[float, float], float]
) -> float:
    """Return how long a broker waits before its claim, so that of several candidates one comes first: 0 for a lone broker."""
    return uniform(0, election_timeout_ms) if electors(image, broker_id) else 0
