"""The features of a cluster: levels that clients and Kafka's tools read, and those that an administrator may change (KIP-584).

The levels are those of Apache Kafka 4.1. A level that is not in the image is the default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from kafkalake.cluster.image import ClusterImage
from kafkalake.errors import InvalidUpdateVersionError

KRAFT_VERSION = "kraft.version"
UPGRADE = 1
"""The type of an update that may not lower a level."""


class Feature(NamedTuple):
    """The supported levels of a feature, and its level in a new lake. `may_change`: a cluster may have any of them."""

    lowest: int
    highest: int
    default: int
    may_change: bool = False


FEATURES = {
    "eligible.leader.replicas.version": Feature(0, 1, 1),
    "group.version": Feature(0, 1, 1),
    KRAFT_VERSION: Feature(0, 1, 0, may_change=True),
    "metadata.version": Feature(7, 27, 27),
    "transaction.version": Feature(0, 2, 2, may_change=True),
}
"""metadata.version 27 is 4.1-IV1. transaction.version tells clients whether to use KIP-890; all are served, whatever it says."""


class FeatureUpdate(NamedTuple):
    """An update that is asked for. type: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""

    feature: str
    level: int
    type: int


def level_of(image: ClusterImage, feature: str) -> int:
    """Return the level of a feature in a cluster."""
    return image.features.get(feature, FEATURES[feature].default)


def levels_of(image: ClusterImage) -> Iterator[tuple[str, int]]:
    """Yield all features and their levels, by name."""
    return ((feature, level_of(image, feature)) for feature in FEATURES)


def update_features(image: ClusterImage, levels: Mapping[str, int]) -> ClusterImage:
    """Return the next version, in which features have these levels; the same image if they have them already."""
    changed = {feature: level for feature, level in levels.items() if level_of(image, feature) != level}
    if not changed:
        return image
    return replace(image, version=image.version + 1, features={**image.features, **changed})


def check_update(image: ClusterImage, update: FeatureUpdate) -> None:
    """Raise `InvalidUpdateVersionError` with Kafka's words if a level is not supported, or cannot be changed to."""
    name, level, kind = update
    controller = f"Local controller {image.controller_id}"
    begin = f"Invalid update version {level} for feature {name}."
    feature = FEATURES.get(name)
    if feature is None:
        raise InvalidUpdateVersionError(f"{begin} {controller} does not support this feature.")
    if not feature.lowest <= level <= feature.highest:
        raise InvalidUpdateVersionError(
            f"{begin} {controller} only supports versions {feature.lowest}-{feature.highest}"
        )
    now = level_of(image, name)
    if level < now and kind == UPGRADE:
        raise InvalidUpdateVersionError(
            f"{begin} Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade."
        )
    if level > now and kind != UPGRADE:
        raise InvalidUpdateVersionError(f"{begin} Can't downgrade to a newer version.")
    if level != now and not feature.may_change:
        raise InvalidUpdateVersionError(f"{begin} This release has no other level.")
