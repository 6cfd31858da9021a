"""Reassignments of one partition, by `kafkalake.cluster.partition_changes.alter_reassignments`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkalake.cluster.image import ClusterImage, TopicIdPartition
from kafkalake.cluster.partition_changes import RulesOf, alter_reassignments
from kafkalake.errors import KafkaError


def begin_reassignment(
    image: ClusterImage,
    of: TopicIdPartition,
    replicas: Sequence[int],
    rules: RulesOf,
    *,
    may_change_factor: bool = True,
) -> ClusterImage:
    """Return the next version, in which a partition moves to `replicas`, whatever move is under way. Raise its error."""
    return _only(of, alter_reassignments(image, {of: replicas}, rules, may_change_factor=may_change_factor))


def cancel_reassignment(image: ClusterImage, of: TopicIdPartition, rules: RulesOf) -> ClusterImage:
    """Return the next version, in which a partition has the replicas of before its reassignment. Raise its error."""
    return _only(of, alter_reassignments(image, {of: None}, rules))


def _only(of: TopicIdPartition, altered: tuple[ClusterImage, Mapping[TopicIdPartition, KafkaError]]) -> ClusterImage:
    image, errors = altered
    if of in errors:
        raise errors[of]
    return image
