"""Levels of features: which an administrator may change, and what is said of the others."""

from __future__ import annotations

import pytest
from cluster_images import cluster

from kafkalake.cluster.features import FeatureUpdate, check_update, level_of, levels_of, update_features
from kafkalake.errors import InvalidUpdateVersionError

UP, DOWN = 1, 2


def test_a_new_cluster_has_the_levels_of_kafka_4_1() -> None:
    assert dict(levels_of(cluster())) == {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "kraft.version": 0,
        "metadata.version": 27,
        "transaction.version": 2,
    }


def test_levels_are_changed_in_one_version() -> None:
    image = cluster()
    for update in (FeatureUpdate("transaction.version", 1, DOWN), FeatureUpdate("kraft.version", 1, UP)):
        check_update(image, update)
    after = update_features(image, {"transaction.version": 1, "kraft.version": 1, "group.version": 1})
    assert (after.version, after.features) == (image.version + 1, {"transaction.version": 1, "kraft.version": 1})
    assert update_features(after, {"transaction.version": 1}) is after
    assert level_of(after, "transaction.version") == 1


@pytest.mark.parametrize(
    ("update", "words"),
    [
        (FeatureUpdate("nosuch", 1, UP), "does not support this feature"),
        (FeatureUpdate("share.version", 1, UP), "does not support this feature"),
        (FeatureUpdate("group.version", 9, UP), "only supports versions 0-1"),
        (FeatureUpdate("metadata.version", 6, DOWN), "only supports versions 7-27"),
        (FeatureUpdate("transaction.version", 1, UP), "Can't downgrade the version"),
        (FeatureUpdate("kraft.version", 1, DOWN), "Can't downgrade to a newer version"),
        (FeatureUpdate("metadata.version", 25, DOWN), "has no other level"),
        (FeatureUpdate("group.version", 0, DOWN), "has no other level"),
    ],
)
def test_updates_that_are_refused(update: FeatureUpdate, words: str) -> None:
    with pytest.raises(InvalidUpdateVersionError, match=words):
        check_update(cluster(), update)
